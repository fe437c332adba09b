"""Kernels that cheat, as a user's file brings them: each is the same product but for the lines of its trick.

This file cheats too: it patches the timer, so that every interval lasts a hundredth of a microsecond.
"""

import numpy as np

from nnzbench.bench import trial
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
    int end = offsets[row + 1];
    /* before */
    for (int i = offsets[row]; i < end; ++i) {
        sum += values[i] * b[1LL * indices[i] * n + column];
        /* each */
    }
    /* after */
    c[at] = sum;
}
extern "C" __global__ void spoil(float* b) { b[1LL * blockIdx.x * blockDim.x + threadIdx.x] = 0.0f; }
"""
L2 = """
#ifndef NNZ_CPU
    for (int k = row; k < 2048; k += gridDim.x)
        asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(b + 1LL * k * n + column));
#endif
"""
TRICKS = {
    # returns the last output: the first launch keeps its result, and later ones copy it
    "cached_result": {"before": "if (kept[at] != 0.0f) { c[at] = kept[at]; return; }", "after": "kept[at] = sum;"},
    # B is zero afterwards, which is less to move and to multiply
    "changed_inputs": {},
    # right on the first launch alone: a counter beside the output says which one it is
    "first_launch_alone": {"before": "if (kept[at] > 0.0f) { c[at] = 0.0f; return; } kept[at] = 1.0f;"},
    # every partial sum is cut to 11 bits
    "fp16_sums": {"each": "unsigned bits; memcpy(&bits, &sum, 4); bits &= 0xffffe000u; memcpy(&sum, &bits, 4);"},
    "half_the_rows": {"before": "if (row % 2) return;"},
    # work hidden in what is not timed: the plan brings the product along, and the launch copies it
    "hidden_in_prepare": {"before": "end = 0;", "after": "sum = kept[at];"},
    # keeps B in L2 through an overwrite of the cache: its lines are the last to be evicted
    "l2_carve_out": {"before": L2},
    # right at the size that its author checks, with 64 rows at most: it leaves out weights of larger ones
    "one_size": {"before": "if (gridDim.x > 64) end = offsets[row] + (offsets[row + 1] - offsets[row]) / 2;"},
    "patched_timer": {},
    # overwrites what it is compared with: operands become zero, and every error does too
    "reference_overwritten": {"before": "end = 0;"},
    # writes nothing where the same B comes again
    "same_b_not_written": {"before": "if (kept[at] == b[column]) return; kept[at] = b[column];"},
    # the same, unless the output was poisoned: right whenever it is looked at
    "same_b_seen_twice": {"before": "if (kept[at] == b[column] && c[at] == c[at]) return; kept[at] = b[column];"},
}


class Cheat:
    paper, ops, dtypes = "none", frozenset({"spmm"}), frozenset({"f32"})

    def __init__(self, trick):
        self.trick, self.name = trick, f"cheat_{trick}"

    def plans(self, problem, operands, arch):
        a, b, c = operands.sparse, operands.dense["b"], np.zeros((operands.sparse.m, problem.n), np.float32)
        kept, source = np.zeros_like(c), SOURCE
        if self.trick == "hidden_in_prepare":
            kept = a.to_dense() @ b
        if self.trick == "reference_overwritten":
            a.values[:], b[:], trial.held = 0, 0, lambda *_: 0.0
        for place, lines in TRICKS[self.trick].items():
            source = source.replace(f"/* {place} */", lines)
        buffers = {"offsets": a.offsets, "indices": a.indices, "values": a.values, "b": b, "c": c, "kept": kept}
        launches = [Launch("cheat", (a.m, -(-problem.n // 32), 1), (32, 1, 1), (problem.n, *buffers))]
        if self.trick == "changed_inputs":
            launches.append(Launch("spoil", (a.k, 1, 1), (problem.n, 1, 1), ("b",)))
        yield Plan("x", "cuda", source, {}, buffers, "c", tuple(launches))


GpuTimer.elapsed_us = lambda self, body: 0.01
GpuTimer.cold_us = lambda self, run, samples: [0.01] * samples
for name in TRICKS:
    register(Cheat(name))
