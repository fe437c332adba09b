// Y = W X for a balanced W, mapped as Balanced Sparsity describes it (section 4): one thread per range of a row, so that all
// threads do the same KEEP multiply-adds, with X rearranged in shared memory so that every thread stays in its own bank.
//
// Who computes what
//   grid    x: as many blocks as are resident or fewer, y: groups of COLUMNS columns of X
//   block   brings its columns of X to shared memory once, then takes WARPS rows at a time, gridDim.x * WARPS apart
//   warp    one row at a time; lane l takes ranges l, l + 32, ...; the lanes add up through shuffles
//
// Values and positions are ordered (m, KEEP, RANGES), so that the lanes of a warp read neighbouring ones. Element i of
// range b lies at slot i * RANGES + b of shared memory: with 32 ranges and one column lane b only reads bank b, with four
// columns the eight lanes that are served at a time lie in different banks.
//
// The paper does not say how X gets there, how many rows share it, what a batch of 8 does or how lanes add up. Here one load of
// a warp is of 8 neighbouring ranges x 4 neighbouring elements: runs of 4 rows of X, and stores that meet in a bank at most four
// times (with four columns not at all). Blocks begin at different places, so that they do not all ask L2 for the same
// line at once. A batch of more than COLUMNS reads W once per group of columns.
//
// Buffers
//   values, positions   (m, KEEP, RANGES)      x   (k, n), row-major      y   (m, n), row-major
// Launch: block 32 * WARPS; WIDTH * RANGES * COLUMNS * 4 bytes of dynamic shared memory.
//
// Defines
//   KEEP, WIDTH   entries and columns of a range of a row; RANGES * WIDTH at least k
//   RANGES        ranges of a row
//   COLUMNS       columns of X in shared memory: 1, 2 or 4
//   WARPS         1 to 32
//   BLOCKS        blocks that an SM should hold
//   EXACT         1: COLUMNS divides n, so that a slot is one load of X
//   POSITION16    1: positions of two bytes instead of one
//   F16           1: values, X and Y in fp16; sums and X in shared memory in fp32
#include "nnz.cuh"
#include "pack.cuh"
#include "reduce.cuh"

constexpr int kKeep = KEEP;
constexpr int kWidth = WIDTH;
constexpr int kRanges = RANGES;
constexpr int kColumns = COLUMNS;
constexpr int kWarps = WARPS;
constexpr int kAhead = 16;  // entries of W whose loads are issued before their arithmetic
constexpr int kStaged = 4;  // loads of X likewise

static_assert(kColumns == 1 || kColumns == 2 || kColumns == 4, "COLUMNS must be a vector width");
static_assert(kWarps >= 1 && kWarps <= 32, "a block has 1 to 32 warps");

#if POSITION16
using Position = unsigned short;
#else
using Position = unsigned char;
#endif
using Slot = Pack<float, kColumns>;

// X's columns from `first` on to shared memory; a barrier must follow.
__device__ __forceinline__ void stage(Slot* slots, const Value* __restrict__ x, int k, int n, int first) {
    constexpr int kOctets = (kRanges + 7) / 8;
    constexpr int kUnits = kOctets * ((kWidth + 3) / 4);
    constexpr int kLoad = EXACT ? kColumns : 1;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int turn = static_cast<int>(blockIdx.x) * kWarps % kUnits;
    for (int unit = warp; unit < kUnits; unit += kWarps * kStaged) {
        Pack<Value, kLoad> held[kStaged][kColumns / kLoad];
        int slot[kStaged];
        bool keep[kStaged];
#pragma unroll
        for (int u = 0; u < kStaged; ++u) {
            const int untouched = unit + u * kWarps;
            const int at = untouched + turn < kUnits ? untouched + turn : untouched + turn - kUnits;
            const int range = at % kOctets * 8 + lane % 8;
            const int i = at / kOctets * 4 + lane / 8;
            const int row = range * kWidth + i;
            slot[u] = untouched < kUnits && range < kRanges && i < kWidth ? i * kRanges + range : -1;
            keep[u] = slot[u] >= 0 && row < k;
            const Value* const from = x + static_cast<long long>(row) * n + first;
#pragma unroll
            for (int c = 0; c < kColumns; c += kLoad) {
                load_if<kLoad>(keep[u] && (EXACT || first + c < n), from + c, held[u][c / kLoad]);
            }
        }
#pragma unroll
        for (int u = 0; u < kStaged; ++u) {
            if (slot[u] < 0) continue;
            Pack<float, kColumns> columns;
#pragma unroll
            for (int c = 0; c < kColumns; ++c) {
                const bool loaded = keep[u] && (EXACT || first + c < n);
                columns.at[c] = loaded ? widen(held[u][c / kLoad].at[c % kLoad]) : 0.0f;
            }
            slots[slot[u]].word = columns.word;
        }
    }
}

// Multiplies `Count` entries of a range: first the loads of W, then X in shared memory and arithmetic.
template <int Count>
__device__ __forceinline__ void multiply(float (&sums)[kColumns], const Value* values, const Position* positions,
                                         const Slot* range) {
    Value value[Count];
    int position[Count];
#pragma unroll
    for (int u = 0; u < Count; ++u) {
        value[u] = nnz::ldg(values + u * kRanges);
        position[u] = nnz::ldg(positions + u * kRanges);
    }
#pragma unroll
    for (int u = 0; u < Count; ++u) {
        Slot of;
        of.word = range[position[u] * kRanges].word;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) sums[c] = nnz::fma_rn(widen(value[u]), of.at[c], sums[c]);
    }
}

extern "C" __global__ void __launch_bounds__(kWarps * 32, BLOCKS)
    balanced_paper(int m, int k, int n, const Value* __restrict__ values, const Position* __restrict__ positions,
                   const Value* __restrict__ x, Value* __restrict__ y) {
    DYN_SHARED(Slot, slots);
    const int first = static_cast<int>(blockIdx.y) * kColumns;
    stage(slots, x, k, n, first);
    __syncthreads();

    const int lane = threadIdx.x % 32;
    const int rows = static_cast<int>(gridDim.x) * kWarps;
    for (int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32; row < m; row += rows) {
        float sums[kColumns] = {};
        for (int range = lane; range < kRanges; range += 32) {
            long long at = static_cast<long long>(row) * (kKeep * kRanges) + range;
#pragma unroll 1
            for (int j = 0; j < kKeep / kAhead; ++j, at += kAhead * kRanges) {
                multiply<kAhead>(sums, values + at, positions + at, slots + range);
            }
            if constexpr (kKeep % kAhead > 0) {
                multiply<kKeep % kAhead>(sums, values + at, positions + at, slots + range);
            }
        }
        nnz::reduce_each<16, kColumns>(sums, lane);
        const int column = first + lane / (32 / kColumns);
        if (lane % (32 / kColumns) == 0 && column < n) y[static_cast<long long>(row) * n + column] = narrow(sums[0]);
    }
}
