// SparseRT's tiling without its code generation: the schedule is data (SparseRT, PACT 2020, sections 3.3 to 3.6 and
// figure 8). A block of (width, groups) threads owns rows [row_start[x], row_start[x + 1]) and `width` columns, one per
// thread; group y walks entries [body_start[i], body_start[i + 1]) with i = x * groups + y.
//
// The accumulator's index comes from memory, so accumulators live in local memory: that is what unrolling removes.
#pragma once

#include "nnz.cuh"

// B is row-major (k, n) and C is row-major (m, n).
struct RolledMatrix {
    const float* __restrict__ b;
    int n;

    __device__ float load(int k, int column) const { return nnz::ldg(&b[static_cast<long long>(k) * n + column]); }
    __device__ long long place(int column) const { return column; }
    __device__ int row_stride() const { return n; }
};

// B is the virtual im2col matrix of an NCHW image (section 3.6): row (channel * R + i) * S + j is tap (i, j) of a
// channel, column (image * out_height + y) * out_width + x an output position; C is NCHW with one row per filter.
template <int kChannels, int kHeight, int kWidth, int kFilters, int kR, int kS, int kPadH, int kPadW, int kStride,
          int kOutHeight, int kOutWidth>
struct RolledImage {
    const float* __restrict__ b;

    __device__ float load(int k, int column) const {
        const int pixel = column % (kOutHeight * kOutWidth), image = column / (kOutHeight * kOutWidth);
        const int channel = k / (kR * kS), i = k / kS % kR, j = k % kS;
        const int y = pixel / kOutWidth * kStride + i - kPadH, x = pixel % kOutWidth * kStride + j - kPadW;
        if (y < 0 || y >= kHeight || x < 0 || x >= kWidth) return 0.0f;
        return nnz::ldg(&b[((static_cast<long long>(image) * kChannels + channel) * kHeight + y) * kWidth + x]);
    }
    __device__ long long place(int column) const {
        const int pixel = column % row_stride(), image = column / row_stride();
        return static_cast<long long>(image) * kFilters * row_stride() + pixel;
    }
    __device__ int row_stride() const { return kOutHeight * kOutWidth; }
};

// columns[i]      row of B that entry i loads
// first[i]        first nonzero of entry i: its nonzeros are first[i] .. first[i + 1]
// rows, values    of every nonzero; rows count from the block's first
// sums            shared, kRows x width, used where a block has several groups
template <int kRows, class Dense>
static __device__ void rolled(const Dense dense, float* __restrict__ c, const int* __restrict__ row_start,
                              const int* __restrict__ body_start, const int* __restrict__ columns,
                              const int* __restrict__ first, const int* __restrict__ rows,
                              const float* __restrict__ values, float* sums) {
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
        const float x = dense.load(columns[i], column);
        for (int j = first[i]; j < first[i + 1]; ++j) {
            accumulator[rows[j]] = nnz::fma_rn(x, values[j], accumulator[rows[j]]);
        }
    }
    const int stride = dense.row_stride();
    float* out = c + static_cast<long long>(top) * stride + dense.place(column);
    if (groups == 1) {
        for (int i = 0; i < count; ++i) out[static_cast<long long>(i) * stride] = accumulator[i];
        return;
    }
    for (int i = 0; i < count; ++i) atomicAdd(&sums[i * width + threadIdx.x], accumulator[i]);
    __syncthreads();
    for (int i = group; i < count; i += groups) out[static_cast<long long>(i) * stride] = sums[i * width + threadIdx.x];
}
