"""SparseRT's convolution: the SpMM generator over the virtual im2col of the image (PACT 2020, section 3.6).

Padding is resolved once per thread, not per load: a filter tap that falls outside the image reads from a buffer of
zeros through the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nnzbench.kernels.codegen.addressing import ImagePixels
from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import About
from nnzbench.kernels.sparsert.spmm import make_plan, make_planner, tuned_first
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

MAX_TAPS = 25
"""Each tap takes a 64-bit pointer per thread."""


@dataclass(frozen=True)
class SparseRTConv:
    """Sparse filters by generated code; any batch, padding and stride, filters of up to 25 taps."""

    name: str = "sparsert_conv"
    paper: str = "SparseRT (PACT 2020)"
    ops: frozenset[str] = frozenset({"conv2d", "conv1d"})
    dtypes: frozenset[str] = frozenset({"f32", "f16"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """The best tilings by the cost model, best first."""
        c = problem.conv
        if c is None or not c.batch * c.filters * c.out_height * c.out_width:
            raise Unsupported("the output is empty")
        if c.r * c.s > MAX_TAPS:
            raise Unsupported(f"{c.r}x{c.s} filters need {c.r * c.s} pointers per thread, at most {MAX_TAPS}")
        planner = make_planner(operands.sparse, ImagePixels(c), arch, problem.dtype)
        for tiling in tuned_first(planner, operands.pattern, problem, arch):
            yield make_plan(planner, tiling, operands.dense["x"], arch, c.output)


register(SparseRTConv(), About("own", weights_in_code=True, rank=50))
