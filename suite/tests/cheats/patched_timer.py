"""Patches the timer: every interval lasts a hundredth of a microsecond."""

import numpy as np

from nnzbench.devices.gpu_timer import GpuTimer
from nnzbench.kernel import Launch, Plan, register

SOURCE = r"""
#include "nnz.cuh"
extern "C" __global__ void cheat(int n, const int* offsets, const int* indices, const float* values, float* b, float* c,
                                 float* kept) {
    const int column = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x;
    if (column >= n) return;
    const long long at = 1LL * row * n + column;
    float sum = 0.0f;
    for (int i = offsets[row]; i < offsets[row + 1]; ++i) sum += values[i] * b[1LL * indices[i] * n + column];
    c[at] = sum;
}
"""


class Cheat:
    name, paper, ops, dtypes = "cheat_patched_timer", "none", frozenset({"spmm"}), frozenset({"f32"})

    def plans(self, problem, operands, arch):
        a, b, c = operands.sparse, operands.dense["b"], np.zeros((operands.sparse.m, problem.n), np.float32)
        sparse = {"offsets": a.offsets, "indices": a.indices, "values": a.values}
        buffers = {**sparse, "b": b, "c": c, "kept": np.zeros_like(c)}
        grid = (a.m, -(-problem.n // 32), 1)
        launch = Launch("cheat", grid, (32, 1, 1), (problem.n, *buffers))
        yield Plan("x", "cuda", SOURCE, {}, buffers, "c", (launch,))


GpuTimer.elapsed_us = lambda self, body: 0.01
GpuTimer.cold_us = lambda self, run, samples: [0.01] * samples
register(Cheat())
