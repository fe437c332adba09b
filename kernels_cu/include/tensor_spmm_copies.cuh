// What `tensor_spmm.cu` has on its way to shared memory: panels of B, which a block's threads copy together, and the packed
// chunks of A, which each warp has copied for itself.
#pragma once

#include "bulk_copy.cuh"
#include "nnz.cuh"
#include "tensor_spmm_shape.cuh"

#if TOKENS
// What a warp turns of a panel, B being n rows of k: 32 neighbours of eight rows at a time, of which a lane loads eight of one
// row. They are four matrices of 8x8, each with two neighbours of every lane's, and are stored as columns of the panel. Which
// two a lane gives to a matrix depends on the lane, so that the rows of one are in different banks (`piece_at`).
struct PanelSource {
    const nnz::Half* b;
    int k, n, row, column;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    static constexpr int kTall = kPanelK / 32;
    static constexpr int kTurns = kTall * (kBlockN / 8);  // of all warps
    static constexpr int kEach = (kTurns + kWarps - 1) / kWarps;
    static constexpr int kAtOnce = kEach < 8 ? kEach : 8;
    static constexpr int kMostHeld = 65536 / (BLOCKS * kThreads) > 128 ? 32 : 16;  // turns in a thread's registers
    static constexpr int kFirst = kPanels > 1 && 2 * kEach <= kMostHeld ? 2 : 1;  // panels asked for at the start
    static_assert(kPanelK % 32 == 0 && kEach <= kMostHeld, "whole turns, whose numbers are held in registers");

    uint4 held[kFirst][kEach];  // of the first panels

    __device__ __forceinline__ PanelSource(const nnz::Half* from, int first_row, int first_column, int rows,
                                           int columns)
        : b(from), k(rows), n(columns), row(first_row), column(first_column) {}

    // What this lane has of a turn of the panel at `first`: eight of k, which is whole eights; zeros behind B's edges.
    __device__ __forceinline__ uint4 load(int turn, int first) const {
        const int of_row = column + turn / kTall * 8 + lane / 4;
        const int at = first + turn % kTall * 32 + lane % 4 * 8;
        uint4 found = make_uint4(0, 0, 0, 0);
        if (turn < kTurns && of_row < n && at < k) {
            found = nnz::ldg(reinterpret_cast<const uint4*>(b + static_cast<long long>(of_row) * k + at));
        }
        return found;
    }

    // Matrix i has of lanes with t = lane % 4 their pair i - t.
    __device__ __forceinline__ void store(char* panel, int turn, uint4 eight) const {
        if (turn >= kTurns) return;
        const bool odd = lane & 1, far = lane & 2;
        const unsigned pairs[4] = {odd ? eight.w : eight.x, odd ? eight.x : eight.y, odd ? eight.y : eight.z,
                                   odd ? eight.z : eight.w};
        const unsigned turned[4] = {far ? pairs[2] : pairs[0], far ? pairs[3] : pairs[1], far ? pairs[0] : pairs[2],
                                    far ? pairs[1] : pairs[3]};
        const int t = lane % 8 / 2, pair = (lane / 8 - t) & 3;
        nnz::store_matrices(panel, piece_at(turn % kTall * 32 + 8 * t + 2 * pair + lane % 2, turn / kTall), turned);
    }

    // Asks for the first panels, of which the slice has `panels`.
    __device__ __forceinline__ void begin(int panels) {
#pragma unroll
        for (int j = 0; j < kFirst; ++j) {
#pragma unroll
            for (int i = 0; i < kEach; ++i) {
                held[j][i] = load(j < panels ? warp * kEach + i : kTurns, row + j * kPanelK);
            }
        }
        row += kFirst * kPanelK;
    }

    // Turns panel j of those.
    __device__ __forceinline__ void first(int j, char* panel) const {
#pragma unroll
        for (int i = 0; i < kEach; ++i) store(panel, warp * kEach + i, held[j][i]);
    }

    // Turns the next panel.
    __device__ __forceinline__ void request(char* panel, const nnz::Half*, int) {
#pragma unroll
        for (int done = 0; done < kEach; done += kAtOnce) {
            uint4 eights[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i)
                eights[i] = load(done + i < kEach ? warp * kEach + done + i : kTurns, row);
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i)
                store(panel, done + i < kEach ? warp * kEach + done + i : kTurns, eights[i]);
        }
        row += kPanelK;
    }
};
#else
// What a thread copies of a panel: one piece of every kThreads / kPieces rows. Columns are counted in halves.
struct PanelSource {
    const nnz::Half* from;
    int left;  // rows from its next one to B's last
    int columns;  // from its piece's first to B's last
    int at;  // in a panel

    static constexpr int kAtOnce = kThreads / kPieces;  // rows
    static constexpr int kFirst = kPanels - 1;  // panels asked for at the start

    __device__ __forceinline__ PanelSource(const nnz::Half* b, int first_row, int first_column, int k, int n) {
        const int row = threadIdx.x / kPieces, piece = threadIdx.x % kPieces;
        const int column = first_column + 8 * piece;
        from = b + static_cast<long long>(first_row + row) * n + column;
        left = k - first_row - row;
        columns = n - column;
        at = piece_at(row, piece);
    }

    // Copies to `panel`, zeros behind B's edges.
    __device__ __forceinline__ void request(char* panel, const nnz::Half* b, int n) {
        char* to = panel + at;
        const long long stride = static_cast<long long>(kAtOnce) * n;
#pragma unroll 4
        for (int row = 0; row < kPanelK; row += kAtOnce) {
#pragma unroll
            for (int part = 0; part < 8; part += kFill) {
                const bool inside = left > 0 && part < columns;
                if constexpr (kFill == 1) {
                    // not through the read-only cache: the launch before may write B
                    reinterpret_cast<nnz::Half*>(to)[part] = inside ? __ldcg(from + part) : nnz::Half{0};
                } else {
                    nnz::cp_async_bytes<2 * kFill>(to + 2 * part, inside ? from + part : b, inside);
                }
            }
            left -= kAtOnce;
            from += stride;
            to += kAtOnce * kRowBytes;
        }
    }
};
#endif

// What the host looked up of a strip's chunks in a slice, so that the first of them can be copied after one trip to memory.
struct SliceStart {
    int chunk, last;  // the first chunk, and the one behind the last
    int next_panel;  // the first chunk of the second panel
    int places[8];  // where the first chunks start; behind the last one, where it ends

    static constexpr int kLoads = 3;

    __device__ __forceinline__ explicit SliceStart(const int4* from)
        : SliceStart(nnz::ldg(from), nnz::ldg(from + 1), nnz::ldg(from + 2)) {}

    __device__ __forceinline__ SliceStart(int4 sizes, int4 a, int4 b)
        : chunk(sizes.x), last(sizes.y), next_panel(sizes.z), places{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w} {}
};

// The packed chunks of one strip, from `next` to `last`, through a ring of slots.
struct Chunks {
    const uint4* stream;
    const int* offsets;
    nnz::Barrier* filled;  // of each slot
    nnz::SharedAt ring;
    int slot_bytes, lane;
    int next = 0, last = 0;
    int from = 0, to = 0;  // of chunk `next`; the same behind the last one
    int free_slot = 0, slot = 0;  // to be filled and to be used next
    unsigned parity = 0;

    // `start` has chunks kFirstCopied to kCopied - 1 copied: under EARLY to all slots, so that the first chunk frees none.
    static constexpr int kFirstCopied = EARLY;
    static constexpr int kCopied = kStages - 1 + (EARLY && BULK);
    bool used = !(EARLY && BULK);  // whether a chunk's slot is free when the next one is taken
    static_assert(kCopied <= 6, "the host looks up where the first eight start");

    // Has chunk `next` copied, if there is one.
    __device__ __forceinline__ void copy() {
        const nnz::SharedAt at = ring + free_slot * slot_bytes;
#if BULK
        if (lane == 0 && to > from) {
            const int bytes = 16 * (to - from);
            nnz::barrier_arrive_expect(filled + free_slot, bytes);
            nnz::bulk_copy(at, stream + from, bytes, filled + free_slot);
        }
#else
        const uint4* src = stream + from + lane;
        nnz::SharedAt piece = at + 16 * lane;
#pragma unroll 1
        for (int i = to - from - lane; i > 0; i -= 32) {
            nnz::copy_to(piece, src);
            piece = piece + 512;
            src += 32;
        }
        nnz::cp_async_commit();
#endif
        free_slot = free_slot + 1 == kStages ? 0 : free_slot + 1;
    }

    // Has the next chunk copied. Where the one after it lies is known when it is needed.
    __device__ __forceinline__ void request() {
        copy();
        ++next;
        from = to;
        to = nnz::ldg(offsets + min(next + 1, last));
    }

#if EARLY
    // Has a first chunk copied, whatever of the `slot_bytes` at `head` it is, before anything is known of the others; null:
    // none. Lanes wait for it behind the block's next barrier.
    __device__ __forceinline__ void start_early(const uint4* head) {
#if BULK
        if (lane == 0) {
#pragma unroll
            for (int i = 0; i < kStages; ++i) nnz::barrier_init(filled + i, 1);
            nnz::barrier_init_fence();
        }
#endif
        const uint4* const all = stream;
        stream = head;
        to = head == nullptr ? 0 : slot_bytes / 16;
        copy();
        stream = all;
    }
#endif

    // Has the first chunks copied, if the warp has a strip; not the very first where it has been.
    __device__ __forceinline__ void start(const SliceStart& begin, bool active) {
        next = begin.chunk + kCopied;
        last = active ? begin.last : begin.chunk;
#pragma unroll
        for (int i = 0; i <= kCopied; ++i) {
            from = begin.places[i];
            to = active ? begin.places[i + 1] : from;
            if (i >= kFirstCopied && i < kCopied) copy();
        }
    }

    // Waits for the chunk to be used next, and has another one copied to the slot of the one before it. That one's lanes have
    // used what they read of it, so that `__syncwarp` is enough; where loads ran ahead of it, a slot would need a barrier of
    // its own for being empty.
    __device__ __forceinline__ nnz::SharedAt take() {
#if BULK
        nnz::barrier_wait(filled + slot, parity);
#else
        nnz::cp_async_wait<kStages - 2>();
#endif
        __syncwarp();
        if (used) request();
        used = true;
        const nnz::SharedAt at = ring + slot * slot_bytes;
        if (++slot == kStages) {
            slot = 0;
            parity ^= 1;
        }
        return at;
    }
};
