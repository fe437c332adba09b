// Softmax of every row of a dense matrix, in place, over the positions of a bit mask; all others become zero. fp32.
//
// The middle step of dense attention, the baseline of sparse attention ("Sparse GPU Kernels for Deep Learning", Gale et
// al., SC 2020, VII-C). The mask takes 1/32 of the matrix's bytes, so that what it costs is reading and writing scores.
//
// Who computes what: one block per row. Thread t keeps the elements t, t + THREADS, ... of the row in registers between
// the passes (maximum, sum, result), so each score is read once and written once. A row without a bit becomes zeros; NaN
// at a bit makes its row NaN.
//
// Buffers
//   mask  m x words unsigned ints: bit j % 32 of word j / 32 is column j
//   x     m x n scores, replaced by their softmax
// Launch: block THREADS; grid m.
//
// Defines
//   THREADS  threads per block
//   ITEMS    elements per thread: THREADS * ITEMS >= n
#include "nnz.cuh"
#include "reduce.cuh"

#ifndef THREADS  // a row of 12,288 columns, the length of the paper's sequences
#define THREADS 512
#define ITEMS 24
#endif

constexpr int kThreads = THREADS;
constexpr int kItems = ITEMS;
constexpr int kWarps = kThreads / 32;

static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block must be whole warps, at most 1024 threads");
static_assert(kItems >= 1 && kItems <= 64, "a thread keeps 1 to 64 elements");

// The reduction of x over the block, for every thread; `parts` must not be in use.
template <typename Operation>
__device__ __forceinline__ float over_block(float x, float* parts) {
    x = nnz::reduce<Operation>(x);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = parts[0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) x = Operation::of(x, parts[w]);
    return x;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    masked_softmax(int n, int words, const unsigned int* __restrict__ mask, float* x) {
    __shared__ float maxima[kWarps], sums[kWarps];
    const int first = static_cast<int>(threadIdx.x);
    const float lowest = -__int_as_float(0x7f800000);
    float* const row = x + static_cast<long long>(blockIdx.x) * n;
    const unsigned int* const bits = mask + static_cast<long long>(blockIdx.x) * words;

    float kept[kItems];
    float top = lowest;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        const int column = first + i * kThreads;
        const bool chosen = column < n && (nnz::ldg(bits + column / 32) >> (column % 32) & 1u) != 0;
        kept[i] = chosen ? row[column] : lowest;
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) top = nnz::Maximum::of(top, kept[i]);
    top = over_block<nnz::Maximum>(top, maxima);
    const float origin = top == lowest ? 0.0f : top;  // of an empty row: exp(-inf - 0) is 0

    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        kept[i] = expf(kept[i] - origin);
        sum += kept[i];
    }
    sum = over_block<nnz::Sum>(sum, sums);
    const float scale = sum == 0.0f ? 0.0f : 1.0f / sum;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        const int column = first + i * kThreads;
        if (column < n) row[column] = kept[i] * scale;
    }
}
