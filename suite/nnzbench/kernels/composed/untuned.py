"""Kernel `untuned`: SpMM that measures nothing. A rule picks the family of kernels, whose own first choice runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nnzbench.core.architectures import sm_count
from nnzbench.core.plan import Plan, Unsupported
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.cost_rule import ranked_families
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.ring.spmm import ring
from nnzbench.kernels.row_stream import row_stream
from nnzbench.kernels.sputnik.spmm import sputnik
from nnzbench.kernels.tensor.spmm import tensor_spmm
from nnzbench.kernels.tensor.spmv import delta_spmv

KERNELS = {one.name: one for one in (delta_spmv, tensor_spmm, row_stream, ring, sputnik)}
"""Families that take a matrix as data, by name; `sputnik` takes any."""


@kernel("nnzbench", "spmm", "f32 f16 f8", About("own", nothing_to_tune=True, study=True))
def untuned(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """What a library without an autotuner would run: one plan per matrix, chosen from its row lengths and the GPU.

    It is the first plan of the family of least predicted time that takes the problem, `<family>_<its variant>`, in the
    arithmetic of the problem: fp32 is not rounded to TF32 here.
    """
    n = operands.dense["b"].shape[1]
    for family in ranked_families(operands.sparse, n, problem.dtype, sm_count(arch)):
        if family not in KERNELS or problem.dtype not in KERNELS[family].dtypes:
            continue
        try:
            plans = KERNELS[family].plans(problem, operands, arch)
            plan = next(plan for plan in plans if plan.math == problem.dtype)
        except (Unsupported, StopIteration):
            continue
        yield replace(plan, variant=f"{family}_{plan.variant}")
        return
    raise Unsupported("no family of kernels takes this matrix")
