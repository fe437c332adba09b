// C = A B, fp32. A: m x k, sparse, packed by the host; B: k x n and C: m x n, dense, row-major.
//
// Streams panels of B through shared memory past rows of C that never leave the registers. A row-split kernel that
// reads B through L1 fetches a row of B from L2 again whenever the rows that share it have drifted apart; here every
// block reads each row of B once, whatever the pattern, and 64 or more rows of A use it.
//
// Who computes what
//   grid    x: groups of kBlockM rows, y: tiles of kBlockN columns
//   block   walks K in chunks of BLOCK_K rows of B, copied STAGES - 1 chunks ahead of their use; PRODUCERS more
//           warps do the copying, and each other warp moves on as soon as its own chunk is there; without them all
//           threads copy and the block steps from chunk to chunk together
//   warp    owns ROW_STEPS x kSub rows for the whole walk; 32 / LANES = kSub of them advance side by side
//   lane    VEC neighbouring columns of one row
//
// What the host packs (`nnzbench.kernels.panel`): rows are dealt to warps so that all carry near-equal nonzeros. The
// nonzeros of a block and chunk are one segment, in the order they are met: warp, row step, unit, sub-row. A unit is two
// nonzeros as {byte offset of the B row in the panel, value bits} pairs, so one 128-bit load, the same for all lanes of a
// sub-row, feeds 2 * VEC FMAs per lane. Segments travel with their panel: read from global memory where they are used,
// each new cache line of them would stall its warp. Shorter sub-rows are filled with pairs that point to a row of zeros,
// never to data, so an Inf or NaN in a row of B that is not used can't leak.
//
// Defines
//   LANES      lanes per row: 8, 16 or 32          VEC         columns per lane: 1, 2 or 4 (LANES * VEC = tile width)
//   WARPS      warps per block                     ROW_STEPS   rows per sub-row lane group, 1 to 8
//   BLOCK_K    rows of B per chunk, at most 510    STAGES      chunks in shared memory, at least 2
//   FILL       elements per copy of B: 4, 2 or 1; n must be a multiple of it
//   PRODUCERS  warps that only copy (sm_80 on), or 0
#include "async_barrier.cuh"
#include "nnz.cuh"
#include "vector_columns.cuh"

constexpr int kLanes = LANES;
constexpr int kVec = VEC;
constexpr int kWarps = WARPS;
constexpr int kRowSteps = ROW_STEPS;
constexpr int kBlockK = BLOCK_K;
constexpr int kStages = STAGES;
constexpr int kFill = FILL;
constexpr int kProducers = PRODUCERS;

constexpr int kSub = 32 / kLanes;
constexpr int kBlockN = kLanes * kVec;
constexpr int kThreads = (kWarps + kProducers) * 32;
constexpr int kCopiers = kProducers > 0 ? kProducers * 32 : kThreads;  // threads that copy
constexpr int kSpanWords = 1 + (kRowSteps + 3) / 4;
constexpr int kPanelFloats = (kBlockK + 1) * kBlockN;  // the last row stays zero: where padding points
constexpr int kReadAhead = 2 * kSub;  // units behind a segment that are read, not used

static_assert(kLanes == 8 || kLanes == 16 || kLanes == 32, "LANES must divide a warp into 1, 2 or 4 sub-rows");
static_assert(kVec == 1 || kVec == 2 || kVec == 4, "VEC must be a vector width");
static_assert(kBlockN % kFill == 0, "FILL must divide the tile width");
static_assert(kBlockK <= 510, "a byte counts the units of a row in a chunk");
static_assert(kStages >= 2, "a chunk is copied while another is used");
static_assert(kRowSteps >= 1 && kRowSteps <= 8, "row steps are unrolled");

using Vector = nnz::Columns<kVec>::type;

__device__ __forceinline__ void use_unit(float* acc, uint4 unit, const char* panel) {
    const Vector b0 = *reinterpret_cast<const Vector*>(panel + unit.x);
    const Vector b1 = *reinterpret_cast<const Vector*>(panel + unit.z);
    nnz::multiply_add(acc, __uint_as_float(unit.y), b0);
    nnz::multiply_add(acc, __uint_as_float(unit.w), b1);
}

// Each thread keeps one column and strides over the chunk's rows, so that the addresses only advance.
__device__ __forceinline__ void copy_panel(float* stage, const float* __restrict__ b, int chunk, int k, int n, int n0,
                                           int copier) {
    constexpr int kPieces = kBlockN / kFill;
    constexpr int kRowsAtOnce = kCopiers / kPieces;
    static_assert(kCopiers % kPieces == 0, "every thread copies one column of the panel");
    const int column = copier % kPieces * kFill;
    const int first = copier / kPieces;
    const bool column_inside = n0 + column < n;
    const float* src = b + static_cast<long long>(chunk * kBlockK + first) * n + n0 + column;
    float* dst = stage + first * kBlockN + column;
#pragma unroll 4
    for (int row = first; row < kBlockK; row += kRowsAtOnce) {
        const bool inside = column_inside && chunk * kBlockK + row < k;
        if constexpr (kFill == 4) {
            nnz::cp_async16(dst, inside ? src : b, inside);
        } else if constexpr (kFill == 2) {
            nnz::cp_async8(dst, inside ? src : b, inside);
        } else {
            nnz::cp_async4(dst, inside ? src : b, inside);
        }
        src += static_cast<long long>(kRowsAtOnce) * n;
        dst += kRowsAtOnce * kBlockN;
    }
}

// Adds the products of the warp's nonzeros in one chunk. `span`: the warp's first unit in the segment, then the units of
// each row step, a byte each.
__device__ __forceinline__ void use_chunk(float (&acc)[kRowSteps][kVec], const unsigned (&span)[kSpanWords],
                                          const uint4* units, const char* panel) {
    units += span[0];
    uint4 first = units[0];
    uint4 second = units[kSub];
#pragma unroll
    for (int step = 0; step < kRowSteps; ++step) {
        int left = span[1 + step / 4] >> (step % 4 * 8) & 0xff;
#pragma unroll 1  // a handful of trips: unrolling further costs more in set-up than it saves
        for (; left >= 2; left -= 2) {
            const uint4 unit0 = first;
            const uint4 unit1 = second;
            units += 2 * kSub;
            first = units[0];
            second = units[kSub];
            use_unit(acc[step], unit0, panel);
            use_unit(acc[step], unit1, panel);
        }
        if (left > 0) {
            const uint4 unit0 = first;
            units += kSub;
            first = second;
            second = units[kSub];
            use_unit(acc[step], unit0, panel);
        }
    }
}

__device__ __forceinline__ void store_rows(const float (&acc)[kRowSteps][kVec], const int* __restrict__ row_ids,
                                           float* __restrict__ c, int n, int column) {
#pragma unroll
    for (int step = 0; step < kRowSteps; ++step) {
        const int row = row_ids[step * kSub];
        if (row < 0) continue;
        float* out = c + static_cast<long long>(row) * n + column;
        if constexpr (kFill % kVec == 0) {
            if (column < n) {
                Vector value;
#pragma unroll
                for (int v = 0; v < kVec; ++v) reinterpret_cast<float*>(&value)[v] = acc[step][v];
                *reinterpret_cast<Vector*>(out) = value;
            }
        } else {
#pragma unroll
            for (int v = 0; v < kVec; ++v) {
                if (column + v < n) out[v] = acc[step][v];
            }
        }
    }
}

// segments: first unit of each group's chunks, (groups * chunks + 1). spans: (groups, chunks, WARPS, kSpanWords).
// row_ids: (groups, WARPS, ROW_STEPS, kSub), -1 where there is no row. segment_units: those of the longest segment.
// Without a least number of blocks per multiprocessor ptxas saves registers by making each load wait for the one before.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    panel_spmm(int k, int n, int chunks, int segment_units, const int* __restrict__ segments,
               const unsigned* __restrict__ spans, const int* __restrict__ row_ids, const uint4* __restrict__ stream,
               const float* __restrict__ b, float* __restrict__ c) {
    DYN_SHARED(float, panels);
    uint4* const units = reinterpret_cast<uint4*>(panels + kStages * kPanelFloats);
    const int stage_units = segment_units + kReadAhead;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int sub = lane / kLanes;
    const int column = lane % kLanes * kVec;
    const int n0 = blockIdx.y * kBlockN;
    segments += blockIdx.x * chunks;

    for (int i = threadIdx.x; i < kStages * kBlockN; i += kThreads) {
        panels[i / kBlockN * kPanelFloats + kBlockK * kBlockN + i % kBlockN] = 0.0f;
    }

    const auto copy = [&](int chunk, int copier) {
        const int stage = chunk % kStages;
        copy_panel(panels + stage * kPanelFloats, b, chunk, k, n, n0, copier);
        const int segment = segments[chunk];
        for (int unit = copier; unit < segments[chunk + 1] - segment; unit += kCopiers) {
            nnz::cp_async16(units + stage * stage_units + unit, stream + segment + unit);
        }
    };
#if PRODUCERS
    __shared__ nnz::Barrier full[kStages];  // a chunk has landed
    __shared__ nnz::Barrier empty[kStages];  // every warp has used it
    if (threadIdx.x < kStages) {
        nnz::barrier_init(&full[threadIdx.x], kCopiers);
        nnz::barrier_init(&empty[threadIdx.x], kWarps);
    }
    __syncthreads();
    if (warp >= kWarps) {
        for (int chunk = 0; chunk < chunks; ++chunk) {
            const int stage = chunk % kStages;
            if (chunk >= kStages) nnz::barrier_wait(&empty[stage], (chunk / kStages - 1) & 1);
            copy(chunk, threadIdx.x - kWarps * 32);
            nnz::barrier_arrive_after_copies(&full[stage]);
        }
        return;
    }
#else
    for (int chunk = 0; chunk < kStages - 1; ++chunk) {
        if (chunk < chunks) copy(chunk, threadIdx.x);
        nnz::cp_async_commit();
    }
#endif

    float acc[kRowSteps][kVec] = {};
    unsigned span[kSpanWords];
    for (int chunk = 0; chunk < chunks; ++chunk) {
        const int stage = chunk % kStages;
#pragma unroll
        for (int word = 0; word < kSpanWords; ++word) {
            span[word] = nnz::ldg(spans + ((blockIdx.x * chunks + chunk) * kWarps + warp) * kSpanWords + word);
        }
#if PRODUCERS
        nnz::barrier_wait(&full[stage], (chunk / kStages) & 1);
#else
        nnz::cp_async_wait<kStages - 2>();
        __syncthreads();  // this chunk has landed for all, and nobody reads the one before any more
        if (chunk + kStages - 1 < chunks) copy(chunk + kStages - 1, threadIdx.x);
        nnz::cp_async_commit();
#endif
        use_chunk(acc, span, units + stage * stage_units + sub,
                  reinterpret_cast<const char*>(panels + stage * kPanelFloats + column));
#if PRODUCERS
        __syncwarp();
        if (lane == 0) nnz::barrier_arrive(&empty[stage]);
#endif
    }
    store_rows(acc, row_ids + (blockIdx.x * kWarps + warp) * kRowSteps * kSub + sub, c, n, n0 + column);
}
