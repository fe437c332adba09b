"""Plans with exactly known results that every device must run alike; `check` holds a device to one of them."""

from dataclasses import dataclass

import numpy as np

from nnzbench.core.plan import Array, Launch, Plan
from nnzbench.devices import Device

SOURCE = r"""
#include "nnz.cuh"
#include <cuda_fp16.h>

extern "C" __global__ void scale_and_shift(const float* x, float* y, float scale, int shift, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = scale * nnz::ldg(x + i) + shift;
}

extern "C" __global__ void linear_index(int* y) {
    const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const int i = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
    y[i] = i;
}

extern "C" __global__ void histogram(const int* x, int* counts, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(counts + x[i], 1);
}

extern "C" __global__ void reverse(const float* x, float* y, int n) {
    DYN_SHARED(float, tile);
    for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = tile[n - 1 - i];
}

extern "C" __global__ void staged_copy(const float* x, float* y, int n) {
    DYN_SHARED(float, tile);
    const int i = 4 * threadIdx.x;
    nnz::cp_async16(tile + i, x + i, i < n);
    nnz::cp_async_commit();
    nnz::cp_async_wait<0>();
    __syncthreads();
    const int other = 4 * (blockDim.x - 1 - threadIdx.x);
    *reinterpret_cast<float4*>(y + i) = *reinterpret_cast<const float4*>(tile + other);
}

extern "C" __global__ void sum_rows(const int* x, int* y, int n) {
    __shared__ int part[32];
    int sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[blockIdx.x * n + i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; ++w) sum += part[w];
        y[blockIdx.x] = sum;
    }
}

extern "C" __global__ void lanes(int* y) {
    const int t = threadIdx.x;
    y[t] = __shfl_up_sync(0xffffffffu, t, 1, 8);
    y[32 + t] = __shfl_down_sync(0xffffffffu, t, 3, 16);
    y[64 + t] = __shfl_sync(0xffffffffu, t, 5, 8);
    y[96 + t] = static_cast<int>(__ballot_sync(0xffffffffu, t % 3 == 0));
    if (t < 16) y[128 + t] = __shfl_xor_sync(0xffffu, t, 3);
    else y[128 + t] = __any_sync(0xffff0000u, t == 20) + 2 * __all_sync(0xffff0000u, t >= 20);
}

extern "C" __global__ void half_math(const __half2* a, const __half2* b, __half2* y) {
    const int i = threadIdx.x;
    y[i] = __hfma2(a[i], b[i], __floats2half2_rn(1.0f, -1.0f));
}

extern "C" __global__ void all_but_last(float* y, int n) {
    if (threadIdx.x < n - 1) y[threadIdx.x] = 1.0f;
}

extern "C" __global__ void all_but_last_int(int* y, int n) {
    if (threadIdx.x < n - 1) y[threadIdx.x] = VALUE;
}
"""

OTHER = r"""
#include "nnz.cuh"

extern "C" __global__ void add_value(float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += VALUE;
}
"""


@dataclass(frozen=True)
class Case:
    name: str
    plan: Plan
    expected: Array
    poison: bool = True
    runs: int = 1


def _case(name, launches, buffers, expected, unpermute=None, **more):
    every = launches if isinstance(launches, tuple) else (launches,)
    plan = Plan(name, "cuda", SOURCE, {"VALUE": 7}, buffers, "y", every, unpermute=unpermute)
    dtype = buffers["y"].dtype if unpermute is None else None
    return Case(name, plan, np.asarray(expected, dtype), **more)


def _launch(entry, blocks, threads, *args, **more):
    return Launch(entry, (blocks, 1, 1), (threads, 1, 1), args, **more)


def _cases() -> tuple[Case, ...]:
    rng = np.random.default_rng(0)
    x = rng.integers(-99, 99, 1000).astype(np.float32)
    zeros, ints = np.zeros(1000, np.float32), np.zeros(768, np.int32)
    big = rng.standard_normal(16 * 1024).astype(np.float32)
    rows = rng.integers(-(2**20), 2**20, (7, 1500)).astype(np.int32)
    bins = rng.integers(0, 10, 5000).astype(np.int32)
    a, b = rng.standard_normal((2, 64)).astype(np.float16)
    t = np.arange(32)
    ballot = int(np.sum(1 << t[t % 3 == 0]))
    lanes = [np.where(t % 8 == 0, t, t - 1), np.where(t % 16 > 12, t, t + 3), t // 8 * 8 + 5]
    lanes += [np.full(32, ballot - 2**32 if ballot >= 2**31 else ballot), np.where(t < 16, t ^ 3, 1)]
    # products of halves and the sum are exact in float64, so that NumPy rounds once
    fma = (a.astype(np.float64) * b.astype(np.float64) + np.tile([1.0, -1.0], 32)).astype(np.float16)
    affine = _launch("scale_and_shift", 16, 64, "x", "y", -1.5, -3, 1000)
    first = _launch("scale_and_shift", 16, 64, "x", "between", 2.0, 1, 1000)
    last = _launch("scale_and_shift", 32, 32, "between", "y", 3.0, -1, 1000)
    staged = np.concatenate([np.arange(120, dtype=np.float32), np.zeros(8, np.float32)])
    pair, steps = {"x": x, "y": zeros}, {"x": x, "between": zeros, "y": zeros}

    def add(value, to):
        return _launch("add_value", 16, 64, to, 1000, source=OTHER, defines={"VALUE": value})

    def shared(threads, count):
        return _launch("reverse", 1, threads, "x", "y", count, shared_bytes=4 * count)

    several = (first, add(10, "between"), add(100, "between"), last, add(10, "y"))
    copied = _launch("staged_copy", 1, 32, "x", "y", 120, shared_bytes=512)
    counted = _launch("histogram", 79, 64, "x", "y", 5000)
    laid_out = (-1.5 * x.astype(np.float64) - 3).reshape(40, 25).T
    return (
        _case("scalar arguments", affine, pair, -1.5 * x - 3),
        _case("launches in order", (first, last), steps, 3 * (2 * x + 1) - 1),
        _case("launches of several programs", several, steps, 3 * (2 * x + 1 + 110) - 1 + 10),
        _case(
            "a layout and a type of its own", affine, pair, laid_out,
            unpermute=lambda raw: raw.astype(np.float64).reshape(40, 25).T,
        ),
        _case("three dimensions", Launch("linear_index", (2, 3, 2), (4, 2, 8), ("y",)), {"y": ints}, np.arange(768)),
        _case(
            "buffers keep their contents between runs", counted, {"x": bins, "y": ints[:10]},
            3 * np.bincount(bins, minlength=10), poison=False, runs=3,
        ),
        _case("dynamic shared memory", shared(128, 1000), pair, x[::-1]),
        _case("64 KiB of dynamic shared memory", shared(256, 16384), {"x": big, "y": np.zeros_like(big)}, big[::-1]),
        _case(
            "asynchronous copies", copied, {"x": staged[:120].copy(), "y": zeros[:128]},
            staged.reshape(32, 4)[::-1].ravel(),
        ),
        _case(
            "block reduction", _launch("sum_rows", 7, 192, "x", "y", 1500), {"x": rows, "y": ints[:7]}, rows.sum(axis=1)
        ),
        _case("warp operations", _launch("lanes", 1, 32, "y"), {"y": ints[:160]}, np.concatenate(lanes)),
        _case(
            "half precision", _launch("half_math", 1, 32, "a", "b", "y"),
            {"a": a, "b": b, "y": np.zeros(64, np.float16)}, fma,
        ),
        _case(
            "an unwritten element stays NaN", _launch("all_but_last", 1, 32, "y", 32), {"y": zeros[:32]},
            [1.0] * 31 + [np.nan],
        ),
        _case(
            "an unwritten integer stays the largest value", _launch("all_but_last_int", 1, 32, "y", 32),
            {"y": ints[:32]}, [7] * 31 + [2**31 - 1],
        ),
        _case(
            "a grid without blocks is no launch", _launch("all_but_last", 0, 32, "y", 32),
            {"y": np.full(32, 5.0, np.float32)}, [5.0] * 32, poison=False,
        ),
    )  # fmt: skip


CASES = _cases()


def check(device: Device, case: Case) -> None:
    """Runs the case and compares to the bit; a poisoned output must come out the same a second time."""
    prepared = device.prepare(case.plan)
    try:
        for _ in range(2 if case.poison else 1):
            if case.poison:
                prepared.poison()
            for _ in range(case.runs):
                prepared.run()
            result = prepared.read()
            assert result.dtype == case.expected.dtype
            np.testing.assert_array_equal(result, case.expected)
    finally:
        prepared.close()
