// Micro-kernels behind the measured peaks, and the two that timing itself needs.
//
//   peak_copy   destination[i] = source[i] for `count` float4: device-memory bandwidth when far larger than the L2 cache
//   peak_read   out[thread] = sum of what it reads in `passes` sweeps over a buffer of `chunks` times 16 KB: L2 bandwidth
//               when the buffer fits there, as loads skip L1
//   peak_fma    out[thread] = sum of kChains values, each the result of kSteps * rounds of v = v * x + y
//   empty       nothing: the launch floor
//   delay       spins for `cycles`, so that the host can enqueue what is timed behind it; nothing on the CPU build
//
// Launch: one-dimensional grids and blocks of 256 threads, except `empty` and `delay` (any).
#include "nnz.cuh"

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // float4 in flight per thread of a copy or a read
constexpr int kChains = 8;  // independent sums per thread: more than the latency of a multiply-add
constexpr int kSteps = 16;  // multiply-adds of each chain per round

extern "C" __global__ void __launch_bounds__(kThreads)
    peak_copy(const float4* __restrict__ source, float4* __restrict__ destination, int count) {
    const int first = blockIdx.x * (kThreads * kVectors) + threadIdx.x;
    float4 held[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        const int at = first + i * kThreads;
        if (at < count) held[i] = source[at];
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        const int at = first + i * kThreads;
        if (at < count) destination[at] = held[i];
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    peak_read(const float4* __restrict__ buffer, float* __restrict__ out, int chunks, int passes) {
    float sum = 0.0f;
    for (int visit = blockIdx.x; visit < passes * chunks; visit += gridDim.x) {
        const float4* const from = buffer + visit % chunks * (kThreads * kVectors) + threadIdx.x;
        float4 held[kVectors];
#pragma unroll
        for (int v = 0; v < kVectors; ++v) held[v] = __ldcg(from + v * kThreads);
#pragma unroll
        for (int v = 0; v < kVectors; ++v) sum += (held[v].x + held[v].y) + (held[v].z + held[v].w);
    }
    out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    peak_fma(const float* __restrict__ factors, float* __restrict__ out, int rounds) {
    const float x = factors[0];
    const float y = factors[1];
    float value[kChains];
#pragma unroll
    for (int i = 0; i < kChains; ++i) value[i] = static_cast<float>(threadIdx.x + i);
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
#pragma unroll
            for (int i = 0; i < kChains; ++i) value[i] = nnz::fma_rn(value[i], x, y);
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kChains; ++i) sum += value[i];
    out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(32) empty(int unused) { static_cast<void>(unused); }

extern "C" __global__ void __launch_bounds__(32) delay(int cycles) {
#ifdef NNZ_CPU
    static_cast<void>(cycles);
#else
    const long long start = clock64();
    while (clock64() - start < cycles) {
    }
#endif
}
