// The small steps of whole networks that no other kernel of this suite computes, and a plain dense product that stands
// for a library's where there is none. fp32; none is meant to be fast beyond not standing in the way.
//
//   dense_product      C = A B, or A B^T where `transposed`, added to C where `accumulate`: A m x k, B k x n (n x k), all
//                      row-major. A thread per element of C; grid (ceil(n / 128), m). On a GPU cuBLAS takes its place
//   copy               y = x. A thread per element; grid ceil(size / 128)
//   layer_norm         y = (x - mean) / sqrt(variance + 1e-5) * gain + shift over each row of x (m x n). A warp per row,
//                      lane t takes columns t, t + 32, ...; grid ceil(m / 4)
//   bias_relu_columns  x = max(x + bias of the column, 0) in place over `size` elements of rows of n. A thread per element
//   first_convolution  y = max(3x3 convolution of x with stride 2 and padding 1 + bias, 0), CHW, `channels` at most 4.
//                      A thread computes one position for 8 filters, its inputs in registers; grid (ceil(positions / 128),
//                      ceil(filters / 8))
//   average_pool       y[c] = mean of the plane x[c]. A warp per channel; grid ceil(channels / 4)
//   classify           y[i] = weights[i] . x + bias[i]. A warp per class; grid ceil(classes / 4)
// Launch: block 128 for all of them.
//
// LayerNorm and the feed-forward network are those of a Transformer with the norm before each part; first and last layers
// are MobileNetV1's ("Sparse GPU Kernels for Deep Learning", Gale et al., SC 2020, VII-C and VII-D, leave them open).
#include "nnz.cuh"
#include "reduce.cuh"

constexpr unsigned kAll = 0xffffffffu;
constexpr int kFilters = 8;
constexpr int kChannels = 4;

__device__ __forceinline__ int warp_number() {
    return static_cast<int>(blockIdx.x) * 4 + static_cast<int>(threadIdx.x) / 32;
}

extern "C" __global__ void __launch_bounds__(128)
    dense_product(int m, int k, int n, int transposed, int accumulate, const float* __restrict__ a,
                  const float* __restrict__ b, float* __restrict__ c) {
    const int column = static_cast<int>(blockIdx.x) * 128 + static_cast<int>(threadIdx.x);
    const long long row = blockIdx.y;
    if (column >= n || row >= m) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) {
        const long long at =
            transposed != 0 ? static_cast<long long>(column) * k + i : static_cast<long long>(i) * n + column;
        sum = nnz::fma_rn(nnz::ldg(a + row * k + i), nnz::ldg(b + at), sum);
    }
    float* const to = c + row * n + column;
    *to = accumulate != 0 ? *to + sum : sum;
}

extern "C" __global__ void __launch_bounds__(128) copy(int size, const float* __restrict__ x, float* __restrict__ y) {
    const int at = static_cast<int>(blockIdx.x) * 128 + static_cast<int>(threadIdx.x);
    if (at < size) y[at] = nnz::ldg(x + at);
}

extern "C" __global__ void __launch_bounds__(128)
    layer_norm(int m, int n, const float* __restrict__ x, const float* __restrict__ gain,
               const float* __restrict__ shift, float* __restrict__ y) {
    const int row = warp_number(), lane = static_cast<int>(threadIdx.x) % 32;
    if (row >= m) return;
    const float* const from = x + static_cast<long long>(row) * n;
    float* const to = y + static_cast<long long>(row) * n;
    float sum = 0.0f;
    for (int i = lane; i < n; i += 32) sum += from[i];
    const float mean = nnz::reduce<nnz::Sum>(sum) / static_cast<float>(n);
    float squares = 0.0f;
    for (int i = lane; i < n; i += 32) {
        const float centred = from[i] - mean;
        squares += centred * centred;
    }
    const float scale = 1.0f / sqrtf(nnz::reduce<nnz::Sum>(squares) / static_cast<float>(n) + 1e-5f);
    for (int i = lane; i < n; i += 32) to[i] = (from[i] - mean) * scale * nnz::ldg(gain + i) + nnz::ldg(shift + i);
}

extern "C" __global__ void __launch_bounds__(128)
    bias_relu_columns(int size, int n, const float* __restrict__ bias, float* __restrict__ x) {
    const int at = static_cast<int>(blockIdx.x) * 128 + static_cast<int>(threadIdx.x);
    if (at >= size) return;
    const float value = x[at] + nnz::ldg(bias + at % n);
    x[at] = value > 0.0f || value != value ? value : 0.0f;  // keeps NaN
}

extern "C" __global__ void __launch_bounds__(128)
    first_convolution(int channels, int height, int width, int filters, const float* __restrict__ x,
                      const float* __restrict__ weights, const float* __restrict__ bias, float* __restrict__ y) {
    const int out_width = (width - 1) / 2 + 1;
    const int positions = ((height - 1) / 2 + 1) * out_width;
    const int position = static_cast<int>(blockIdx.x) * 128 + static_cast<int>(threadIdx.x);
    if (position >= positions) return;
    const int top = position / out_width * 2 - 1, left = position % out_width * 2 - 1;
    float inputs[kChannels][9];
#pragma unroll
    for (int channel = 0; channel < kChannels; ++channel) {
#pragma unroll
        for (int tap = 0; tap < 9; ++tap) {
            const int row = top + tap / 3, column = left + tap % 3;
            const bool inside = channel < channels && row >= 0 && row < height && column >= 0 && column < width;
            inputs[channel][tap] = inside ? nnz::ldg(x + (channel * height + row) * width + column) : 0.0f;
        }
    }
    const int first = static_cast<int>(blockIdx.y) * kFilters;
    for (int filter = first; filter < first + kFilters && filter < filters; ++filter) {
        float sum = nnz::ldg(bias + filter);
#pragma unroll
        for (int channel = 0; channel < kChannels; ++channel) {
            if (channel >= channels) break;
#pragma unroll
            for (int tap = 0; tap < 9; ++tap) {
                sum += inputs[channel][tap] * nnz::ldg(weights + (filter * channels + channel) * 9 + tap);
            }
        }
        y[filter * positions + position] = sum > 0.0f || sum != sum ? sum : 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(128)
    average_pool(int channels, int positions, const float* __restrict__ x, float* __restrict__ y) {
    const int channel = warp_number(), lane = static_cast<int>(threadIdx.x) % 32;
    if (channel >= channels) return;
    float sum = 0.0f;
    for (int i = lane; i < positions; i += 32) sum += nnz::ldg(x + channel * positions + i);
    sum = nnz::reduce<nnz::Sum>(sum);
    if (lane == 0) y[channel] = sum / static_cast<float>(positions);
}

extern "C" __global__ void __launch_bounds__(128)
    classify(int classes, int features, const float* __restrict__ x, const float* __restrict__ weights,
             const float* __restrict__ bias, float* __restrict__ y) {
    const int row = warp_number(), lane = static_cast<int>(threadIdx.x) % 32;
    if (row >= classes) return;
    float sum = 0.0f;
    for (int i = lane; i < features; i += 32) sum += nnz::ldg(weights + row * features + i) * nnz::ldg(x + i);
    sum = nnz::reduce<nnz::Sum>(sum);
    if (lane == 0) y[row] = sum + nnz::ldg(bias + row);
}
