"""Small problems on which every kernel shows its variants, so that all of them can be compiled without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import get_args

from nnzbench.core.plan import Plan, Unsupported
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import ConvShape, DType, Op, Problem
from nnzbench.kernels.registry import Kernel, about


def _problem(op: Op, m: int, k: int, n: int, sparsity: float = 0.75, source: str = "uniform:0") -> Problem:
    return Problem("representative", f"{op} {m}x{k}x{n} {source}", op, m, k, n, sparsity, source)


def _convolution(op: Op, shape: ConvShape) -> Problem:
    k = shape.channels // shape.groups * shape.r * shape.s
    n = shape.batch * shape.out_height * shape.out_width
    sparsity = 0.0 if op == "depthwise" else 0.75
    return replace(_problem(op, shape.filters, k, n, sparsity), name=f"{op} {shape}", conv=shape)


PROBLEMS = (
    # Column counts that allow 16, 8 and 4 byte accesses, a narrow one, and rows short and long.
    _problem("spmm", 16, 512, 128, 0.5),
    _problem("spmm", 16, 512, 66, 0.5),
    _problem("spmm", 16, 512, 49, 0.9),
    _problem("spmm", 16, 512, 8, 0.5),
    _problem("spmm", 16, 512, 4, 0.5),
    # Enough blocks for the largest tiles on the largest GPU.
    _problem("spmm", 2048, 256, 512, 0.99),
    _problem("spmm", 16, 512, 128, 0.75, "balanced:0"),
    _problem("spmm", 16, 512, 128, 0.5, "nm:2:4:0"),
    _problem("sddmm", 128, 64, 128),
    _problem("sddmm", 128, 63, 96),
    _problem("sddmm", 128, 32, 128),
    _problem("sparse_softmax", 128, 128, 128),
    _problem("spmv", 256, 512, 1),
    _problem("spmv", 256, 512, 1, 0.75, "balanced:0"),
    _problem("spmv", 256, 512, 1, 0.75, "codebook_uniform:0"),
    _problem("spmm", 16, 512, 8, 0.5, "codebook_uniform:0"),
    _problem("gemm", 64, 64, 64, 0.0),
    _problem("attention", 96, 128, 64, 0.75),
    _problem("pointwise", 16, 512, 128, 0.75),
    _problem("pointwise", 16, 512, 49, 0.9),
    _convolution("depthwise", ConvShape(1, 32, 14, 14, 32, 3, 3, 1, 1, 1, 32)),
    _convolution("depthwise", ConvShape(1, 32, 28, 28, 32, 3, 3, 1, 1, 2, 32)),
    _convolution("conv2d", ConvShape(2, 16, 14, 14, 32, 3, 3, 1, 1)),
    _convolution("conv2d", ConvShape(2, 32, 14, 14, 32, 1, 1)),
    _convolution("conv2d", ConvShape(1, 8, 28, 28, 16, 5, 5, 2, 2)),
    _convolution("conv1d", ConvShape(2, 16, 1, 64, 32, 1, 3, 0, 1)),
)


_made = cache(make_operands)


def sample_plans(kernel: Kernel, arch: str) -> Iterator[Plan]:
    """Every plan of `kernel` over `PROBLEMS` for `arch`; of one that generates its programs, those of the first problem
    it takes: a generated program differs for every matrix, and compiling more of them shows nothing new.

    What a kernel names as its own samples comes after `PROBLEMS`. Operands are made once for kernels and architectures.
    Raises `Unsupported` with the last reason where there is no plan at all.
    """
    reason = Unsupported(f"{kernel.name} computes nothing that the representative problems ask for")
    some = False
    sampled = set()  # ops and dtypes whose programs are generated from the matrix
    for problem in (*PROBLEMS, *about(kernel.name).samples):
        if problem.op not in kernel.ops:
            continue
        for dtype in get_args(DType):
            if dtype not in kernel.dtypes or (problem.op, dtype) in sampled:
                continue
            typed = replace(problem, dtype=dtype)
            try:
                for plan in kernel.plans(typed, _made(typed), arch):
                    some = True
                    if "\n" in plan.source:
                        sampled.add((problem.op, dtype))
                    yield plan
            except Unsupported as error:
                reason = error
    if not some:
        raise reason
