// The chunks of `tensor_spmm.cu` in 16-bit types: columns as they come, by one warp or by four together, and gathered ones.
#pragma once

#include "tensor_spmm_expand.cuh"

// A chunk of columns as they come, as a lane reads it.
struct Plain {
    nnz::SharedAt at;  // its next entry
    nnz::SharedAt selections;  // or its bitmaps
    int lane;
#if !BITMAP
    nnz::Words<kMapWords> bits;
#endif

    __device__ __forceinline__ Plain(nnz::SharedAt head, int own_lane)
        : at(head + nnz::load_at<nnz::Half>(head + kStartsAt + 2 * own_lane)),
          selections(head + kHeadBytes + 4 * own_lane),
          lane(own_lane) {
#if !BITMAP
        bits = nnz::load_at<nnz::Words<kMapWords>>(head + 4 * kMapWords * lane);
#endif
    }

    // The registers of step Number, and what its products select.
    template <int Number>
    __device__ __forceinline__ unsigned expand_step(Registers& a) {
        const unsigned word = PAIRS ? 0 : nnz::load_at<unsigned>(selections + 128 * Number);
#if BITMAP
        const Step step = step_of(word, lane);
        expand<0>(step.bits, at, a);
        return step.selected;
#else
        expand<Number % kWordSteps * kStepBits>(bits.word[Number / kWordSteps], at, a);
        return word;
#endif
    }
};

// The steps from Number on of a chunk, `a` and `selected` being of the first: its rows of B are at bases[j % 8] + offset for
// column tile j. The next step's registers are on their way while this one's are multiplied.
template <int Number = 0>
__device__ __forceinline__ void multiply_plain(Sums& acc, const Registers& a, unsigned selected, Plain& chunk,
                                               const nnz::SharedAt (&bases)[kBases], int offset) {
    constexpr int kAt = Number * (kStepK * kRowBytes);
    unsigned b[kAhead][4];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) nnz::load_matrices(bases[j % 8] + (offset + kAt + j / 8 * kBlockBytes), b[j]);
    Registers next;
    unsigned next_selected = 0;
    if constexpr (Number + 1 < kSteps) next_selected = chunk.expand_step<Number + 1>(next);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
        nnz::multiply_tile<0>(acc[0][j], a[0], b[j % kAhead], selected);
        nnz::multiply_tile<1>(acc[1][j], a[1], b[j % kAhead], selected);
        const int ahead = j + kAhead;
        if (ahead < kColumns)
            nnz::load_matrices(bases[ahead % 8] + (offset + kAt + ahead / 8 * kBlockBytes), b[j % kAhead]);
    }
    if constexpr (Number + 1 < kSteps) multiply_plain<Number + 1>(acc, next, next_selected, chunk, bases, offset);
}

#if WIDE
// The same by four warps together. `rows` is where the chunk's first row of B lies.
template <int Number = 0>
__device__ __forceinline__ void multiply_wide_plain(Sums& acc, const Registers& a, unsigned selected, Plain& chunk,
                                                    nnz::SharedAt rows) {
    const nnz::SharedAt b = rows + Number * (kStepK * kRowBytes);
    nnz::wide_begin();
    nnz::multiply_wide<kBlockN, PAIRS ? -1 : 0>(acc[0], a[0], b, kBlockBytes, selected);
    nnz::multiply_wide<kBlockN, PAIRS ? -1 : 1>(acc[1], a[1], b, kBlockBytes, selected);
    nnz::wide_commit();
    if constexpr (Number + 1 < kSteps) {
        Registers next;
        nnz::wide_wait<1>();
        const unsigned next_selected = chunk.expand_step<Number + 1>(next);
        multiply_wide_plain<Number + 1>(acc, next, next_selected, chunk, rows);
    }
}
#endif

// Where the calling lane's row lies of the fragments of column tile `base`, of a panel's first step.
__device__ __forceinline__ int base_at(int lane, int base) { return piece_at(lane, base); }

// A chunk of gathered columns.
__device__ __forceinline__ void multiply_gathered(Sums& acc, nnz::SharedAt head, nnz::SharedAt& at, nnz::SharedAt panel,
                                                  int lane) {
    const uint2 kind = nnz::load_at<uint2>(head + kHeadBytes);
    const int steps = static_cast<int>(kind.x);
    const nnz::SharedAt columns = head + (kHeadBytes + 16);
    const nnz::SharedAt selections = head + (kHeadBytes + 16) + 64 * steps + 4 * lane;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const unsigned word = nnz::load_at<unsigned>(selections + 128 * step);
#if BITMAP
        const auto [bits, selected] = step_of(word, lane);
#else
        const unsigned selected = word;
        const unsigned bits = nnz::load_at<unsigned>(head + (lane * kMapWords + step / kWordSteps) * 4) >>
                              (step % kWordSteps * kStepBits);
#endif
        const bool narrow = kind.y >> step & 1u;
        const int slot = narrow ? lane & 15 : lane;
        nnz::SharedAt row = panel + piece_at(nnz::load_at<nnz::Half>(columns + 64 * step + 2 * slot), 0);
        Registers a;
        expand<0>(bits, at, a);
        if (narrow) {
            // two column tiles at once: the upper lanes tell rows of the second
            if constexpr (kColumns > 1) row = nnz::flip(row, lane & 16);
#pragma unroll
            for (int j = 0; j < kColumns; j += 2) {
                unsigned b[4];
                nnz::load_matrices(nnz::flip(row, j % 8 << 4) + j / 8 * kBlockBytes, b);
                nnz::multiply_half_tile<0>(acc[0][j], a[0][0], a[0][1], b[0], b[1], selected);
                nnz::multiply_half_tile<2>(acc[1][j], a[1][0], a[1][1], b[0], b[1], selected);
                if constexpr (kColumns > 1) {
                    nnz::multiply_half_tile<0>(acc[0][j + 1], a[0][0], a[0][1], b[2], b[3], selected);
                    nnz::multiply_half_tile<2>(acc[1][j + 1], a[1][0], a[1][1], b[2], b[3], selected);
                }
            }
            continue;
        }
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
            unsigned b[4];
            nnz::load_matrices(nnz::flip(row, j % 8 << 4) + j / 8 * kBlockBytes, b);
            nnz::multiply_tile<0>(acc[0][j], a[0], b, selected);
            nnz::multiply_tile<1>(acc[1][j], a[1], b, selected);
        }
    }
}
