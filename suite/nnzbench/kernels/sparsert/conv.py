"""SparseRT's convolution: the SpMM generator over the virtual im2col of the image (PACT 2020, section 3.6).

Padding is resolved once per thread, not per load: a filter tap that falls outside the image reads from a buffer of
zeros through the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterator

from nnzbench.kernels.codegen.addressing import ImagePixels, convolved
from nnzbench.kernels.registry import kernel
from nnzbench.kernels.roles import About
from nnzbench.kernels.sparsert import PAPER
from nnzbench.kernels.sparsert.spmm import make_plan, make_planner, tuned_first
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

MAX_TAPS = 25
"""Each tap takes a 64-bit pointer per thread."""


@kernel(PAPER, "conv2d conv1d", "f32 f16", About("own", weights_in_code=True, rank=50))
def sparsert_conv(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Sparse filters by generated code; any batch, padding and stride, filters of up to 25 taps.

    The best tilings by the cost model, best first.
    """
    c = convolved(problem)
    if c.r * c.s > MAX_TAPS:
        raise Unsupported(f"{c.r}x{c.s} filters need {c.r * c.s} pointers per thread, at most {MAX_TAPS}")
    planner = make_planner(operands.sparse, ImagePixels(c), arch, problem.dtype)
    for tiling in tuned_first(planner, operands.pattern, problem, arch):
        yield make_plan(planner, tiling, operands.dense["x"], arch, c.output)
