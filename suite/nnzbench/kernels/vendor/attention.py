"""Dense attention, the baseline of `sparse_attention`: cuBLAS, a masked softmax, cuBLAS.

All scores are computed and kept, m x k of them, as a standard Transformer does; the mask is applied in the softmax, so
that the result is that of the sparse kernel and is checked against the same reference.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnzbench.devices import Device
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import About
from nnzbench.kernels.sputnik.softmax import masked_softmax_plan
from nnzbench.kernels.vendor.cublas import MODES, Handle, product
from nnzbench.kernels.vendor.inputs import Inputs, Preparing
from nnzbench.kernels.vendor.support import Freed, Output, finish, open_library, require_gpu, require_math
from nnzbench.plans.plan import Candidate, Prepared
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem


def prepare_attention(device: GpuDevice, math: str, operands: Operands) -> Prepared:
    """softmax(Q K^T over the mask) V, products in math mode `f32` or `tf32`, softmax in fp32.

    Raises `Unsupported` without cuBLAS or for rows too long for the softmax, `LaunchError` where there is no memory.
    """
    dense = operands.dense
    require_math(device, math)
    preparing = Preparing(Inputs(device))  # not shared: its device memory is measured
    handle = open_library(device, "cublas", lambda: Handle(device))
    mask = operands.sparse
    q, keys, v = preparing.arrays(("q", "k", "v"), lambda: (dense["q"], dense["k"], dense["v"]))
    features = q.shape[1]
    scores = device.empty((mask.m, mask.k), np.float32)
    softmax = masked_softmax_plan(mask, np.empty((0, 0), np.float32))
    bits = preparing.array(("mask",), lambda: softmax.buffers["mask"])
    output = Output(device, mask.m, features, "f32")
    steps = (
        product(handle, math, (mask.m, features, mask.k), q, keys, scores, b_transposed=True),
        device.bind(softmax, {"mask": bits, "x": scores}),
        product(handle, math, (mask.m, mask.k, features), scores, v, output.array),
    )

    def run() -> None:
        for step in steps:
            step()

    return finish(device, run, output, [Freed(scores)], preparing)


class DenseAttention:
    """All scores, as cuBLAS computes them."""

    name = "dense_attention"
    paper = "NVIDIA cuBLAS and a softmax kernel of this suite"
    ops = frozenset({"attention"})
    dtypes = frozenset({"f32"})

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """One per math mode. Raises `Unsupported` without a GPU."""
        gpu = require_gpu(device, self.name)
        for math in MODES["f32"]:

            def prepare(math: str = math) -> Prepared:
                return prepare_attention(gpu, math, operands)

            yield Candidate(math, math, prepare)


register(
    DenseAttention(),
    About(
        "library",
        maths=frozenset(MODES["f32"]),
        work="dense",
        reference=True,
        nothing_to_tune=True,
        rank=260,
    ),
)
