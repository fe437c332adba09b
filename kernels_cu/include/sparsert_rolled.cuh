// SparseRT's tiling without its code generation: the schedule is data (SparseRT, PACT 2020, sections 3.3 to 3.5 and
// figure 8). A block of (width, groups) threads owns rows [row_start[x], row_start[x + 1]) and `width` columns, one per
// thread; group y walks entries [body_start[i], body_start[i + 1]) with i = x * groups + y.
//
// The accumulator's index comes from memory, so accumulators live in local memory: that is what unrolling removes.
#pragma once

#include "nnz.cuh"

// columns[i]      row of B that entry i loads
// first[i]        first nonzero of entry i: its nonzeros are first[i] .. first[i + 1]
// rows, values    of every nonzero; rows count from the block's first
// sums            shared, kRows x width, used where a block has several groups
template <int kRows>
static __device__ void rolled(const float* __restrict__ b, float* __restrict__ c, const int* __restrict__ row_start,
                              const int* __restrict__ body_start, const int* __restrict__ columns,
                              const int* __restrict__ first, const int* __restrict__ rows,
                              const float* __restrict__ values, int n, float* sums) {
    const int width = blockDim.x, groups = blockDim.y, group = threadIdx.y;
    const int column = blockIdx.y * width + threadIdx.x;
    const int top = row_start[blockIdx.x], count = row_start[blockIdx.x + 1] - top;
    const int body = blockIdx.x * groups + group;

    float accumulator[kRows];
    for (int i = 0; i < kRows; ++i) accumulator[i] = 0.0f;
    if (groups > 1) {
        for (int i = group; i < count; i += groups) sums[i * width + threadIdx.x] = 0.0f;
        __syncthreads();
    }
    for (int i = body_start[body]; i < body_start[body + 1]; ++i) {
        const float x = nnz::ldg(&b[static_cast<long long>(columns[i]) * n + column]);
        for (int j = first[i]; j < first[i + 1]; ++j) {
            accumulator[rows[j]] = nnz::fma_rn(x, values[j], accumulator[rows[j]]);
        }
    }
    float* out = c + static_cast<long long>(top) * n + column;
    if (groups == 1) {
        for (int i = 0; i < count; ++i) out[static_cast<long long>(i) * n] = accumulator[i];
        return;
    }
    for (int i = 0; i < count; ++i) atomicAdd(&sums[i * width + threadIdx.x], accumulator[i]);
    __syncthreads();
    for (int i = group; i < count; i += groups) out[static_cast<long long>(i) * n] = sums[i * width + threadIdx.x];
}
