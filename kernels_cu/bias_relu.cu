// c = max(c + bias of the row, 0) in place, fp32: what a dense product needs after a library has computed it
// ("Sparse GPU Kernels for Deep Learning", Gale et al., SC 2020, VII-D).
//
// Who computes what: a thread takes one element of c; blockIdx.y is the row, so that its bias is loaded once per warp.
//
// Buffers: bias m values, c m x n row-major. Launch: block THREADS; grid (ceil(n / THREADS), m).
//
// Defines: THREADS  threads per block
#include "nnz.cuh"

constexpr int kThreads = THREADS;
static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block must be whole warps, at most 1024 threads");

extern "C" __global__ void __launch_bounds__(kThreads) bias_relu(int n, const float* __restrict__ bias, float* c) {
    const int column = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
    if (column >= n) return;
    float* const at = c + static_cast<long long>(blockIdx.y) * n + column;
    const float x = *at + nnz::ldg(bias + blockIdx.y);
    *at = x > 0.0f || x != x ? x : 0.0f;  // keeps NaN
}
