// What `tensor_spmm.cu` has on its way to shared memory: panels of B, which a block's threads copy together, and the packed
// chunks of A, which each warp has copied for itself.
#pragma once

#include "bulk_copy.cuh"
#include "nnz.cuh"
#include "tensor_spmm_shape.cuh"

#if TOKENS

// What a warp turns of a panel, B being n rows of k: in each of its turns it loads 64 neighbours of eight rows, eight of two
// rows a lane, and a lane stores them as pairs to eight rows of the panel. The eight lanes of a pair begin with different
// rows, of which eight lie in different banks (`piece_at`).
struct PanelSource {
    const nnz::Half* b;
    int k, n, row, column;
    int lane = threadIdx.x % 32;
    bool begun = false;

    static constexpr int kLanePairs = 4;  // of columns, that lanes of a warp have side by side
    static constexpr int kLaneRows = 8 * 32 / kLanePairs;
    static constexpr int kAcross = kBlockN / 2 / kLanePairs;
    static constexpr int kTurns = kAcross * (kPanelK / kLaneRows);  // of all warps
    static constexpr int kEach = (kTurns + kWarps - 1) / kWarps;
    static constexpr int kAtOnce = kEach < 4 ? kEach : 4;
    static_assert(kPanelK % kLaneRows == 0, "whole turns");

    uint4 low[kAtOnce], high[kAtOnce];

    __device__ __forceinline__ PanelSource(const nnz::Half* from, int first_row, int first_column, int rows,
                                           int columns)
        : b(from), k(rows), n(columns), row(first_row), column(first_column) {}

    // Of a turn, the pair of columns and the first of eight rows that are this lane's.
    __device__ __forceinline__ int pair_of(int turn) const { return turn % kAcross * kLanePairs + lane % kLanePairs; }
    __device__ __forceinline__ int first_of(int turn) const {
        return turn / kAcross * kLaneRows + 8 * (lane / kLanePairs);
    }

    // Eight elements of a row of B, of which k has whole eights; zeros behind its edges.
    __device__ __forceinline__ uint4 eight(int of_row, int at) const {
        uint4 found = make_uint4(0, 0, 0, 0);
        if (of_row < n && at < k) {
            found = nnz::ldg(reinterpret_cast<const uint4*>(b + static_cast<long long>(of_row) * k + at));
        }
        return found;
    }

    // Asks for what this lane stores of the next panel in its turns from `turn` on.
    __device__ __forceinline__ void load(int turn) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const int own = turn + i * kWarps;
            const int of_row = column + 2 * pair_of(own);
            const int at = own < kTurns ? row + first_of(own) : k;
            low[i] = eight(of_row, at);
            high[i] = eight(of_row + 1, at);
        }
    }

    // The pairs of two rows' eight elements to column `pair` of the rows from `first` on.
    __device__ __forceinline__ void store(char* panel, uint4 one, uint4 other, int pair, int first) const {
        const unsigned halves[2][4] = {{one.x, one.y, one.z, one.w}, {other.x, other.y, other.z, other.w}};
        unsigned pairs[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            pairs[i] = __byte_perm(halves[0][i / 2], halves[1][i / 2], i % 2 == 0 ? 0x5410 : 0x7632);
        }
        const int from = lane / kLanePairs;
#pragma unroll
        for (int step = 1; step < 8; step *= 2) {
            unsigned turned[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) turned[i] = from & step ? pairs[(i + step) % 8] : pairs[i];
#pragma unroll
            for (int i = 0; i < 8; ++i) pairs[i] = turned[i];
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int at = piece_at(first + (i + from) % 8, pair / 4) + pair % 4 * 4;
            *reinterpret_cast<unsigned*>(panel + at) = pairs[i];
        }
    }

    // Asks for the first turns' part of the next panel.
    __device__ __forceinline__ void begin() {
        load(threadIdx.x / 32);
        begun = true;
    }

    // Turns the next panel, zeros behind B's edges.
    __device__ __forceinline__ void request(char* panel, const nnz::Half*, int) {
#pragma unroll 1
        for (int turn = threadIdx.x / 32; turn < kTurns; turn += kAtOnce * kWarps) {
            if (!begun) load(turn);
            begun = false;
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                const int own = turn + i * kWarps;
                if (own < kTurns) store(panel, low[i], high[i], pair_of(own), first_of(own));
            }
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

    __device__ __forceinline__ PanelSource(const nnz::Half* b, int first_row, int first_column, int k, int n) {
        const int row = threadIdx.x / kPieces, piece = threadIdx.x % kPieces;
        const int column = first_column + 8 * piece;
        from = b + static_cast<long long>(first_row + row) * n + column;
        left = k - first_row - row;
        columns = n - column;
        at = piece_at(row, piece);
    }

    __device__ __forceinline__ void begin() {}

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
                    reinterpret_cast<nnz::Half*>(to)[part] = inside ? nnz::ldg(from + part) : nnz::Half{0};
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

    __device__ __forceinline__ explicit SliceStart(const int4* from) {
        const int4 first = nnz::ldg(from), second = nnz::ldg(from + 1), third = nnz::ldg(from + 2);
        chunk = first.x;
        last = first.y;
        next_panel = first.z;
        places[0] = second.x;
        places[1] = second.y;
        places[2] = second.z;
        places[3] = second.w;
        places[4] = third.x;
        places[5] = third.y;
        places[6] = third.z;
        places[7] = third.w;
    }
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

    // Waits for the chunk to be used next, and has another one copied to the slot of the one before it.
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
