"""The CUDA language on the processor: halves to the bit, and a sample of everything that kernels use."""

import numpy as np
import pytest

from nnzbench.core.plan import Array, Launch, Plan
from nnzbench.devices.cpu_device import CpuDevice

pytestmark = pytest.mark.usefixtures("cache_dir")

HALVES = """
#include "nnz.cuh"
#include <cuda_fp16.h>
extern "C" __global__ void to_float(const __half* h, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = __half2float(h[i]);
}
extern "C" __global__ void to_half(const float* x, __half* h, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) h[i] = __float2half_rn(x[i]);
}
extern "C" __global__ void multiply_add(const __half* a, const __half* b, const __half* c, __half* h, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) h[i] = __hfma(a[i], b[i], c[i]);
}
"""


def run_halves(launch, buffers, output):
    prepared = CpuDevice().prepare(Plan("halves", "cuda", HALVES, {}, buffers, output, (launch,)))
    prepared.run()
    return prepared.read()


def test_every_half_converts_exactly():
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    launch = Launch("to_float", (256, 1, 1), (256, 1, 1), ("h", "y"))
    floats = run_halves(launch, {"h": halves, "y": np.zeros(65536, np.float32)}, "y")
    np.testing.assert_array_equal(floats, halves.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(floats), np.signbit(halves))


def test_floats_round_to_the_nearest_half():
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[:-1] + halves[1:]) / 2
    beside = [np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(0))]
    random = np.random.default_rng(0).integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    ends = np.array([65519, 65520, 1e30, np.inf, np.nan, 0, 2**-25, 2**-26, 1e-40], np.float32)
    x = np.concatenate([halves, ties, *beside, random, ends])
    x = np.concatenate([x, -x])
    launch = Launch("to_half", (-(-x.size // 1024), 1, 1), (1024, 1, 1), ("x", "h", x.size))
    rounded = run_halves(launch, {"x": x, "h": np.zeros(x.size, np.float16)}, "h")
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(rounded.view(np.uint16)[number], expected.view(np.uint16)[number])
    assert np.isnan(rounded[~number]).all()


def test_half_multiply_add_rounds_once():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 5000)).astype(np.float16)
    c = (rng.standard_normal(5000) * 10.0 ** rng.integers(-6, 4, 5000)).astype(np.float16)
    launch = Launch("multiply_add", (5, 1, 1), (1024, 1, 1), ("a", "b", "c", "h", 5000))
    result = run_halves(launch, {"a": a, "b": b, "c": c, "h": np.zeros(5000, np.float16)}, "h")
    exact = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
    np.testing.assert_array_equal(result, exact.astype(np.float16))


LANGUAGE = r"""
#include "nnz.cuh"
template <int N>
__device__ __noinline__ int twice(int x) { return x * N; }
__constant__ int table[2] = {40, 2};
__global__ void __launch_bounds__(32, 2) helper() {}
extern "C" __global__ void language(int* y, unsigned* u, float* f, double* d, long long* w) {
    const int t = threadIdx.x;
    __shared__ alignas(16) float4 quad[32];
    quad[t] = make_float4(t, 1, 2, 3);
    if (t == 0) {
        y[0] = twice<2>(table[0]) + table[1];
        y[1] = __popc(0xf0f0u) + __ffs(8) + __clz(1) + __clz(0);
        y[2] = min(3, -2) + max(7u, 3u);
        y[3] = static_cast<int>(__byte_perm(0x33221100u, 0x77665544u, 0x7250u));
        y[4] = __float_as_int(1.0f);
        y[5] = atomicCAS(y + 6, 0, 9);
        y[7] = sizeof(float3) + sizeof(int4) + alignof(float2) + (reinterpret_cast<size_t>(quad) % 16);
        f[1] = fminf(NAN, 2.0f) + max(1.5f, 1) + __fmaf_rn(2, 3, 4) + rsqrtf(4) + __frcp_rn(4);
        f[2] = __int_as_float(0x3f800000) + __saturatef(3);
        w[0] = clock64() > 0;
    }
    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.25);
    atomicMax(y + 8, t * 3 % 32);
    atomicMin(y + 9, -t);
    atomicOr(u, 1u << t);
    atomicExch(u + 1, 5u);
    atomicInc(u + 2, 9u);
    y[10] = __syncthreads_count(t % 4 == 0);
    y[11] = __syncthreads_or(t == 40) + 2 * __syncthreads_and(t < 32);
    y[16 + t % 4] = __popc(__match_any_sync(0xffffffffu, t % 4));
    y[12] = __reduce_add_sync(0xffffffffu, t);
    y[13] = __reduce_min_sync(0xffffffffu, -t);
    y[14] = __popc(__activemask());
    __syncwarp();
}
"""


def test_language():
    buffers: dict[str, Array] = {
        "y": np.zeros(20, np.int32),
        "u": np.zeros(3, np.uint32),
        "f": np.zeros(3, np.float32),
        "d": np.zeros(1, np.float64),
        "w": np.zeros(1, np.int64),
    }
    launch = Launch("language", (1, 1, 1), (32, 1, 1), tuple(buffers))
    results = {}
    for output in buffers:
        prepared = CpuDevice().prepare(Plan("language", "cuda", LANGUAGE, {}, buffers, output, (launch,)))
        prepared.run()
        results[output] = prepared.read().tolist()
    bit_counts, sizes = 8 + 4 + 31 + 32, 12 + 16 + 8
    assert results["y"][:8] == [82, bit_counts, 5, 0x77225500, 0x3F800000, 0, 9, sizes]
    assert results["y"][8:16] == [31, -31, 8, 2, 496, -31, 32, 0]
    assert results["y"][16:] == [8, 8, 8, 8]
    assert results["u"] == [0xFFFFFFFF, 5, 2]
    assert results["f"] == [16.0, 2 + 1.5 + 10 + 0.5 + 0.25, 2.0]
    assert results["d"] == [8.0]
    assert results["w"] == [1]
