// Y = W X for a W in EIE's format (Han et al., ISCA 2016, section III) and few columns of X: a nonzero takes one byte, its
// run of zeros in the upper four bits and an index into a codebook of 16 values in the lower.
//
// The paper interleaves: its processing element i holds every P-th row, encodes each column's entries there, and only
// columns of nonzero inputs are read. Here rows and columns change places, since no input is skipped and sums should stay
// in registers: lane l of kLanes holds every kLanes-th column of a row from l on, its slice. So an entry's place in its
// slice is a running sum within one lane; and as X lies in shared memory in its own order, lane l only ever reads bank l.
//
// Who computes what
//   grid    x: items by WARPS, y: groups of COLUMNS columns of X
//   block   brings X (of a part, where not all of it fits) to shared memory; each warp walks its item there
//   item    kRows = 32 / LANES neighbouring rows, by one warp: sub-row lane / LANES, slice lane % LANES
//   lane    decodes the entries of its slice, a part after the other, all lanes as many; then the lanes of a row add up
//
// With fewer than 32 lanes for a row, X lies in shared memory kRows times, so that every lane still has its own bank:
// element LANES * p + l of copy s is slot 32 * p + LANES * s + l.
//
// Entries travel in packs of 8, a pack of 32 lanes is 256 neighbouring bytes. The first COMMON packs of all items lie at
// equal distances and are requested before anything is waited for; what longer items have beyond is found through `offsets`.
// Slices that end early are filled with entries of run 0 and value 0, which read on in X; `places` slots are there to read.
//
// Buffers
//   common    (parts, items, COMMON, 32) packs        rest      (packs, 32), beyond the common ones, by part and item
//   offsets   (parts * items + 1) first pack in rest  codebook  16 values, that of index 0 is 0
//   x         (k, n), row-major                       y         (m, n), row-major
// Launch: block 32 * WARPS; kBookBytes + places * 32 slots of dynamic shared memory.
//
// Defines
//   LANES     of a row: 32, 16 or 8             WARPS     per block, 1 to 32
//   COMMON    packs per item, 0 to 12           BLOCKS    that an SM should hold
//   COLUMNS   1, 2, 4, in fp16 also 8           EXACT     1: COLUMNS divides n; for one column, 4 divides k
//   STAGED    units of X that a thread has on its way at once, 1 to 16
//   BULK      1: Hopper's copy engine brings X as it is (sm_90 on; 32 LANES, as many COLUMNS as n, one column in fp32)
//   SHIFTS    1: an index becomes an address by a shift and a mask, instead of a product of bytes
//   F16       1: X and Y in fp16; sums in fp32, and so is X in shared memory where COLUMNS is 1
#include "nnz.cuh"
#include "pack.cuh"
#include "reduce.cuh"
#if BULK
#include "bulk_copy.cuh"
#endif

constexpr int kLanes = LANES;
constexpr int kRows = 32 / LANES;
constexpr int kWarps = WARPS;
constexpr int kCommon = COMMON;
constexpr int kColumns = COLUMNS;
constexpr int kThreads = 32 * kWarps;
constexpr int kStaged = STAGED;
constexpr int kBook = (16 * 32 + kThreads - 1) / kThreads;  // numbers of the codebook's lines that a thread brings
// packs beyond the common ones that are on their way while others are decoded; 32 warps of an SM have 64 registers each
constexpr int kAhead = kWarps * BLOCKS > 16 ? 2 : 4;

static_assert(kLanes == 32 || kLanes == 16 || kLanes == 8, "LANES must divide a warp into 1, 2 or 4 rows");
static_assert(kColumns == 1 || kColumns == 2 || kColumns == 4 || kColumns == 8, "COLUMNS must be a vector width");
static_assert(kWarps >= 1 && kWarps <= 32, "a block has 1 to 32 warps");
static_assert(kCommon >= 0 && kCommon <= 12, "the common packs must fit in registers");
static_assert(kStaged >= 1 && kStaged <= 16, "a thread has 1 to 16 units of X on their way");

#if COLUMNS == 1
using Element = float;
#else
using Element = Value;
#endif
using Slot = Pack<Element, kColumns>;

constexpr unsigned kSlotBytes = sizeof(Element) * kColumns;
constexpr unsigned kStride = 32 * kSlotBytes;  // from a place to the next
constexpr unsigned kBookBytes = 16 * 32 * sizeof(float);

static_assert(kSlotBytes <= 16, "a slot is at most one vector load");
static_assert(!BULK || (kLanes == 32 && EXACT && (kColumns > 1 || !F16)), "X must lie as its slots do to be copied");

// What a thread has on its way of X at once: kStaged units, kWide rows of X each in the block's columns.
constexpr int kWide = kColumns == 1 && EXACT ? 4 : 1;
constexpr int kLoad = kWide > 1 ? kWide : EXACT ? kColumns : 1;
constexpr int kLoads = kWide * kColumns / kLoad;

using Staged = Pack<Value, kLoad>[kStaged][kLoads];

// A part of X as a block brings it: rows begin .. end, columns from `first` on, to `units` units of all lanes' slots.
struct Part {
    const Value* __restrict__ x;
    int n, first, begin, end, units, turn;

    // From `turn` on: blocks do not all ask for the same line at once.
    __device__ __forceinline__ int row_of(int unit) const {
        return begin + (unit + turn < units ? unit + turn : unit + turn - units) * kWide;
    }
    __device__ __forceinline__ bool inside(int row, int column) const {
        return row < end && (EXACT || first + column < n);
    }
    __device__ __forceinline__ void bring(Staged& staged, int from) const {
#pragma unroll
        for (int u = 0; u < kStaged; ++u) {
            const int unit = from + u * kThreads, row = row_of(unit);
#pragma unroll
            for (int c = 0; c < kLoads; ++c) {
                const bool real = unit < units && inside(row, c);
                staged[u][c] = load_here<kLoad>(x + (real ? static_cast<long long>(row) * n + first + c : 0));
            }
        }
    }
    // Writes what `bring` brought, zeros for what is not there.
    __device__ __forceinline__ void keep(const Staged& staged, int from, unsigned char* slots) const {
#pragma unroll
        for (int u = 0; u < kStaged; ++u) {
            const int unit = from + u * kThreads;
            if (unit >= units) break;
            const int row = row_of(unit);
            Pack<Element, kWide * kColumns> out;
#pragma unroll
            for (int c = 0; c < kLoads; ++c) {
                Pack<Value, kLoad> got = {};
                if (inside(row, c)) got.word = staged[u][c].word;
#if COLUMNS == 1
                const Floats<kLoad> wide = widen(got);
#pragma unroll
                for (int i = 0; i < kLoad; ++i) out.at[c * kLoad + i] = wide.at[i];
#else
#pragma unroll
                for (int i = 0; i < kLoad; ++i) out.at[c * kLoad + i] = got.at[i];
#endif
            }
            const unsigned element = row - begin;
            const unsigned slot = element / kLanes * 32 + element % kLanes;
#pragma unroll
            for (int copy = 0; copy < kRows; ++copy) {
                store<kWide * kColumns>(reinterpret_cast<Element*>(slots + (slot + copy * kLanes) * kSlotBytes), out);
            }
        }
    }
};

// Byte of the entry's place: `at` and kStride times the runs up to entry E of the word, whose four are bits 4 to 7 of bytes.
template <int E>
__device__ __forceinline__ unsigned run_to(unsigned runs, unsigned at) {
    return __dp4a(runs, (kStride / 16) * (0x01010101u >> (8 * (3 - E))), at);
}

// Byte of the entry's value in the codebook of its lane: 128 times index E of the word, whose four are bits 0 to 3 of bytes.
template <int E>
__device__ __forceinline__ unsigned value_of(unsigned word, unsigned lane_book) {
#if SHIFTS
    return ((E == 0 ? word << 7 : word >> (E == 0 ? 0 : 8 * E - 7)) & 0x780u) | lane_book;
#else
    return __dp4a(word & 0x0f0f0f0fu, 128u << (8 * E), lane_book);
#endif
}

template <int E>
__device__ __forceinline__ void use_entry(float (&sums)[kColumns], unsigned word, unsigned at, const unsigned char* x,
                                          const unsigned char* book, unsigned lane_book) {
    const float value = *reinterpret_cast<const float*>(book + value_of<E>(word, lane_book));
    Slot in;
    in.word = *reinterpret_cast<const Word<Element, kColumns>*>(x + at);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[c] = nnz::fma_rn(value, widen(in.at[c]), sums[c]);
}

// Multiplies the four entries of a word. `at`: what the runs so far make, without the entries themselves, which the
// caller's x counts; so that these are constants of an unrolled loop.
__device__ __forceinline__ void use_word(float (&sums)[kColumns], unsigned word, unsigned& at, const unsigned char* x,
                                         const unsigned char* book, unsigned lane_book) {
    const unsigned runs = word & 0xf0f0f0f0u;
    use_entry<0>(sums, word, run_to<0>(runs, at), x, book, lane_book);
    use_entry<1>(sums, word, run_to<1>(runs, at), x + kStride, book, lane_book);
    use_entry<2>(sums, word, run_to<2>(runs, at), x + 2 * kStride, book, lane_book);
    at = run_to<3>(runs, at);
    use_entry<3>(sums, word, at, x + 3 * kStride, book, lane_book);
}

__device__ __forceinline__ void use_pack(float (&sums)[kColumns], int2 pack, unsigned& at, const unsigned char* x,
                                         const unsigned char* book, unsigned lane_book) {
    use_word(sums, static_cast<unsigned>(pack.x), at, x, book, lane_book);
    use_word(sums, static_cast<unsigned>(pack.y), at, x + 4 * kStride, book, lane_book);
    at += 8 * kStride;
}

// parts: of the columns of W, part_rows columns each but the last. items: of all rows. places: per lane in shared memory.
// turn: units of X by which a block begins behind the one before it, so small that the last begins within X.
extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
    eie(int m, int k, int n, int parts, int part_rows, int items, int places, int turn, const int2* __restrict__ common,
        const int2* __restrict__ rest, const int* __restrict__ offsets, const float* __restrict__ codebook,
        const Value* __restrict__ x, Value* __restrict__ y) {
    DYN_SHARED(unsigned char, shared);
    unsigned char* const slots = shared + kBookBytes;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int item = static_cast<int>(blockIdx.x) * kWarps + warp;
    const int first = static_cast<int>(blockIdx.y) * kColumns;
    const bool busy = item < items;
    const unsigned lane_book = lane * sizeof(float);

#if BULK
    __shared__ nnz::Barrier arrived;
    if (threadIdx.x == 0) {
        nnz::barrier_init(&arrived, 1);
        nnz::barrier_init_fence();
    }
#endif
    float sums[kColumns] = {};
    for (int part = 0; part < parts; ++part) {
        const int part_begin = part * part_rows, part_end = min(k, part_begin + part_rows);
#if BULK
        if (part > 0) __syncthreads();  // nobody reads the part before any more
        if (threadIdx.x == 0) {
            const int bytes = (part_end - part_begin) * static_cast<int>(kSlotBytes);
            nnz::barrier_arrive_expect(&arrived, bytes);
            nnz::bulk_copy(slots, x + static_cast<long long>(part_begin) * n, bytes, &arrived);
        }
#endif
        float lines[kBook];
        if (part == 0) {
#pragma unroll
            for (int i = 0; i < kBook; ++i) {
                const int at = threadIdx.x + i * kThreads;
                lines[i] = load_here<1>(codebook + (at < 16 * 32 ? at / 32 : 0)).at[0];
            }
        }
        Pack<int, 2> held[kCommon > 0 ? kCommon : 1];
        const int strand = part * items + (busy ? item : 0);
        const int* const packs =
            reinterpret_cast<const int*>(common) + (static_cast<long long>(strand) * kCommon * 32 + lane) * 2;
#pragma unroll
        for (int i = 0; i < kCommon; ++i) held[i] = load_here<2>(packs + i * 64);
        const int begin = load_here<1>(offsets + strand).word;
        const int next_begin = load_here<1>(offsets + strand + 1).word;
        const int end = busy ? next_begin : begin;

        // Everything is on its way; now what comes first is waited for.
#if BULK
        for (int slot = part_end - part_begin + threadIdx.x; slot < places * kLanes; slot += kThreads) {
            store<kColumns>(reinterpret_cast<Element*>(slots + slot * kSlotBytes), Slot{});
        }
#else
        const int units = places * kLanes / kWide;
        const Part own{x, n, first, part_begin, part_end, units, static_cast<int>(blockIdx.x) * turn};
        Staged staged;
        own.bring(staged, threadIdx.x);
        if (part > 0) __syncthreads();  // nobody reads the part before any more
        for (int unit = threadIdx.x; unit < units;) {
            own.keep(staged, unit, slots);
            unit += kThreads * kStaged;
            if (unit < units) own.bring(staged, unit);
        }
#endif
        if (part == 0) {
#pragma unroll
            for (int i = 0; i < kBook; ++i) {
                const int at = threadIdx.x + i * kThreads;
                if (at < 16 * 32) reinterpret_cast<float*>(shared)[at] = lines[i];
            }
        }
        __syncthreads();
#if BULK
        nnz::barrier_wait(&arrived, part & 1);
#endif

        const int* const further = reinterpret_cast<const int*>(rest) + lane * 2;
        Pack<int, 2> ahead[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
            load_if<2>(begin + i < end, further + static_cast<long long>(begin + i) * 64, ahead[i]);
        }
        unsigned at = lane * kSlotBytes;
        if (busy) {
#pragma unroll
            for (int i = 0; i < kCommon; ++i) use_pack(sums, held[i].word, at, slots, shared, lane_book);
        }
        for (int pack = begin; pack < end; pack += kAhead) {
            Pack<int, 2> now[kAhead];
#pragma unroll
            for (int i = 0; i < kAhead; ++i) {
                now[i] = ahead[i];
                const int next = pack + kAhead + i;
                load_if<2>(next < end, further + static_cast<long long>(next) * 64, ahead[i]);
            }
#pragma unroll
            for (int i = 0; i < kAhead; ++i) {
                if (pack + i < end) use_pack(sums, now[i].word, at, slots, shared, lane_book);
            }
        }
    }

#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[c] = nnz::reduce<nnz::Sum, kLanes>(sums[c]);
    const int row = item * kRows + lane / kLanes;
    if (row >= m) return;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
        if (lane % kLanes == c && first + c < n) y[static_cast<long long>(row) * n + first + c] = narrow(sums[c]);
    }
}
