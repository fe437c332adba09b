// y = max(depthwise 3x3 convolution of x + bias, 0), NCHW, fp32, padding 1 on every side, stride 1 or 2.
//
// Each channel is convolved with a filter of its own, then bias and ReLU are applied before the only store: the layer
// between the 1x1 convolutions of MobileNetV1 ("Sparse GPU Kernels for Deep Learning", Gale et al., SC 2020, VII-D).
//
// Who computes what: every thread computes OUTPUTS neighbouring outputs of one row, so that they share loads of x. The
// threads are numbered over (plane, output row, group of OUTPUTS), with no thread without work but at the very end; small
// planes of the last layers fill warps together. Rows and columns outside the image are skipped, never read.
//
// Buffers
//   x        planes x height x width, planes = batch * channels
//   weights  channels x 9
//   bias     channels
//   y        planes x out_height x out_width, out = (in - 1) / STRIDE + 1
// Launch: block THREADS; grid ceil(planes * out_height * ceil(out_width / OUTPUTS) / THREADS).
//
// Defines
//   STRIDE   1 or 2
//   OUTPUTS  outputs per thread: 1, 2 or 4
//   THREADS  threads per block
#include "nnz.cuh"

constexpr int kStride = STRIDE;
constexpr int kOutputs = OUTPUTS;
constexpr int kThreads = THREADS;
constexpr int kInputs = (kOutputs - 1) * kStride + 3;  // inputs per row that the thread's outputs need

static_assert(kStride == 1 || kStride == 2, "STRIDE must be 1 or 2");
static_assert(kOutputs == 1 || kOutputs == 2 || kOutputs == 4, "OUTPUTS must be 1, 2 or 4");
static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block must be whole warps, at most 1024 threads");

extern "C" __global__ void __launch_bounds__(kThreads)
    depthwise_conv(int planes, int channels, int height, int width, int out_height, int out_width,
                   const float* __restrict__ x, const float* __restrict__ weights, const float* __restrict__ bias,
                   float* __restrict__ y) {
    const int groups = (out_width + kOutputs - 1) / kOutputs;
    const int at = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
    const int line = at / groups;  // of all output rows of all planes
    const int plane = line / out_height;
    if (plane >= planes) return;
    const int out_row = line - plane * out_height;
    const int out_column = (at - line * groups) * kOutputs;
    const int channel = plane % channels;

    const int first_row = out_row * kStride - 1, first_column = out_column * kStride - 1;
    const float* const image = x + static_cast<long long>(plane) * height * width;
    float inputs[3][kInputs];
#pragma unroll
    for (int r = 0; r < 3; ++r) {
        const int row = first_row + r;
        const bool row_inside = row >= 0 && row < height;
#pragma unroll
        for (int i = 0; i < kInputs; ++i) {
            const int column = first_column + i;
            const bool inside = row_inside && column >= 0 && column < width;
            inputs[r][i] = inside ? nnz::ldg(image + row * width + column) : 0.0f;
        }
    }
    float taps[9];
#pragma unroll
    for (int t = 0; t < 9; ++t) taps[t] = nnz::ldg(weights + channel * 9 + t);
    const float shift = nnz::ldg(bias + channel);

    float* const out = y + (static_cast<long long>(plane) * out_height + out_row) * out_width + out_column;
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
        if (out_column + o >= out_width) break;
        float sum = shift;
#pragma unroll
        for (int r = 0; r < 3; ++r) {
#pragma unroll
            for (int s = 0; s < 3; ++s) sum += taps[r * 3 + s] * inputs[r][o * kStride + s];
        }
        out[o] = sum > 0.0f || sum != sum ? sum : 0.0f;  // keeps NaN
    }
}
