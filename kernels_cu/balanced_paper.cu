// Y = W X for a balanced W, mapped as Balanced Sparsity describes it (section 4): one thread per range, so that all threads
// of a row do the same KEEP multiply-adds, with X in shared memory where every thread stays in its own bank.
//
// Who computes what
//   grid    x: groups of WARPS rows, y: groups of COLUMNS columns of X
//   warp    one row; lane l takes ranges l, l + 32, ...; the lanes add up through shuffles
//
// Values and positions are ordered (m, KEEP, ranges), so that the lanes of a warp read neighbouring ones. Element i of
// range b lies at slot i * ranges + b of shared memory: with 32 ranges and one column lane b only reads bank b.
//
// Defines
//   KEEP      entries per range and row      COLUMNS      columns of X in shared memory: 1, 2 or 4
//   WARPS     rows per block                 POSITION16   positions of two bytes instead of one
//   F16       values and X in fp16
#include "nnz.cuh"
#include "pack.cuh"
#include "vector_columns.cuh"

constexpr int kKeep = KEEP;
constexpr int kColumns = COLUMNS;
constexpr int kWarps = WARPS;
constexpr int kThreads = kWarps * 32;

static_assert(kColumns == 1 || kColumns == 2 || kColumns == 4, "COLUMNS must be a vector width");

#if POSITION16
using Position = unsigned short;
#else
using Position = unsigned char;
#endif
using Slot = nnz::Columns<kColumns>::type;

// x: (k, n), y: (m, n), row-major.
extern "C" __global__ void __launch_bounds__(kThreads)
    balanced_paper(int m, int k, int n, int width, int ranges, const Value* __restrict__ values,
                   const Position* __restrict__ positions, const Value* __restrict__ x, Value* __restrict__ y) {
    DYN_SHARED(float, shared);
    const int first = blockIdx.y * kColumns;
    for (int i = threadIdx.x; i < width * ranges; i += kThreads) {
        const int row = i % ranges * width + i / ranges;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
            const bool inside = row < k && first + c < n;
            shared[i * kColumns + c] = inside ? widen(x[static_cast<long long>(row) * n + first + c]) : 0.0f;
        }
    }
    __syncthreads();

    const int lane = threadIdx.x % 32;
    const int row = blockIdx.x * kWarps + threadIdx.x / 32;
    if (row >= m) return;
    float sums[kColumns] = {};
    for (int range = lane; range < ranges; range += 32) {
        const long long at = static_cast<long long>(row) * kKeep * ranges + range;
#pragma unroll 8
        for (int j = 0; j < kKeep; ++j) {
            const float value = widen(values[at + j * ranges]);
            const int slot = positions[at + j * ranges] * ranges + range;
            nnz::multiply_add(sums, value, reinterpret_cast<const Slot*>(shared)[slot]);
        }
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) {
            sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], distance);
        }
        if (lane == 0 && first + c < n) y[static_cast<long long>(row) * n + first + c] = narrow(sums[c]);
    }
}
