// y = A x, fp16, fp32 sums, as MACKO does it (Macko and Boža, "MACKO: Sparse Matrix-Vector Multiplication for Low Sparsity",
// 2025, arXiv 2511.13061). A: m x k, sparse without structure, 20 bits an entry; x: k, y: m.
//
// An entry is a value and a step of 4 bits: how many zeros lie between it and the entry before it, or the beginning of its
// row. After 15 zeros that another one follows, that one is an entry too, so a column is a sum of steps. Neither values nor
// steps of a row begin at an aligned address: a warp reads from the eight entries on that hold the row's first, and takes what
// another row has of them for absent. Stored zeros are multiplied, so an Inf or NaN of x reaches rows through them.
//
// Who computes what
//   grid    x: blocks of kWarps rows
//   block   kWarps warps, each on its own
//   warp    one row, 32 times eight entries at a time. Its lanes add up their steps, and pass the sums on by shuffles: then
//           each knows the column before its own entries
//   lane    eight neighbouring entries: 16 bytes of values and 4 of steps in one load each, and x from the caches, entry by
//           entry. The lanes' sums are then added up by shuffles, so they come out the same in every run
//
// Buffers (host: `nnzbench.kernels.tensor.macko`)
//   offsets   (m + 1) entries up to each row
//   values    (eights, 8), those of all rows one after another, filled up with zeros at the end
//   steps     (eights) words: eight steps, the first in the lowest bits
// Launch: block 32 * kWarps.
//
// Of the authors' code (2025) are the choices that the paper leaves open: blocks of 32 rows and loads of eight entries.
#include "nnz.cuh"
#include "reduce.cuh"
#include "tensor_core.cuh"

constexpr int kWarps = 32;
constexpr int kThreads = 32 * kWarps;
constexpr int kTogether = 8;

// Of the lanes up to the calling one.
__device__ __forceinline__ int sum_up_to(int own, int lane) {
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
        const int before = __shfl_up_sync(0xffffffffu, own, apart);
        if (lane >= apart) own += before;
    }
    return own;
}

__device__ __forceinline__ int sum_of_steps(unsigned steps) {
    const unsigned pairs = (steps & 0x0f0f0f0fu) + (steps >> 4 & 0x0f0f0f0fu);
    return static_cast<int>(pairs * 0x01010101u >> 24);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    macko(int m, const int* __restrict__ offsets, const uint4* __restrict__ values, const unsigned* __restrict__ steps,
          const nnz::Half* __restrict__ x, nnz::Half* __restrict__ y) {
    const int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
    if (row >= m) return;
    const int lane = threadIdx.x % 32;
    const int begin = nnz::ldg(offsets + row), end = nnz::ldg(offsets + row + 1);
    float sum = 0.0f;
    int passed = 0;
#pragma unroll 1
    for (int first = begin / kTogether; first * kTogether < end; first += 32) {
        const int at = first + lane, entry = at * kTogether;
        uint4 eight = make_uint4(0, 0, 0, 0);
        unsigned word = 0;
        if (entry < end) {
            eight = nnz::ldg(values + at);
            word = nnz::ldg(steps + at);
        }
        if (entry < begin) word &= ~0u << 4 * (begin - entry);
        const int own = sum_of_steps(word), up_to = sum_up_to(own, lane);
        int column = passed + up_to - own + entry - begin;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
            column += static_cast<int>(word >> 4 * i & 15u);
            const unsigned two = i < 2 ? eight.x : i < 4 ? eight.y : i < 6 ? eight.z : eight.w;
            if (entry + i >= begin && entry + i < end) {
                const nnz::Half value = static_cast<nnz::Half>(i % 2 ? two >> 16 : two);
                sum = nnz::fma_rn(nnz::widen_half(value), nnz::widen_half(nnz::ldg(x + column + i)), sum);
            }
        }
        passed += __shfl_sync(0xffffffffu, up_to, 31);
    }
    sum = nnz::reduce<nnz::Sum>(sum);
    if (lane == 0) y[row] = nnz::narrow_half(sum);
}
