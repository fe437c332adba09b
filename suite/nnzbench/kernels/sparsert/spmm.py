"""SparseRT: SpMM and convolution by code generated for one sparse matrix, whose values are constants in instructions.

Wang, "SparseRT: Accelerating Unstructured Sparsity on GPUs for Deep Learning Inference", PACT 2020. This is a generator
of our own over the same idea (sections 3.3 to 3.5); `sparsert_paper` has the paper's own tilings.
A convolution is the product with the virtual im2col matrix of the image (section 3.6).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Literal

from nnzbench.kernels.codegen import cpp, ptx
from nnzbench.kernels.codegen.model import Planner
from nnzbench.kernels.codegen.program import ImagePixels, MatrixColumns, Program
from nnzbench.kernels.codegen.schedule import Tiling, make_schedule, recall, search_name
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.rows import convolved
from nnzbench.kernels.sparsert import PAPER
from nnzbench.plans.plan import Array, Plan, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

MAX_TAPS = 25
"""Each tap takes a 64-bit pointer per thread."""


def make_plan(
    planner: Planner,
    tiling: Tiling,
    dense: Array,
    arch: str,
    shape: tuple[int, ...],
    values: Literal["code", "buffer"] = "code",
) -> Plan:
    """Generates the program of one tiling. `dense` is B (k, n) or the image; the output has `shape`.

    Raises `Unsupported` where the tiling does not fit the architecture.
    """
    start = time.perf_counter()
    schedule = make_schedule(planner.matrix, tiling, planner.rows(tiling).tiles)
    program = Program(schedule, planner.addressing, planner.element, values)
    source = ptx.emit(program, arch)
    return Plan(
        variant=tiling.name + ("_pattern" if values == "buffer" else ""),
        language="ptx",
        source=source,
        defines={},
        buffers=program.buffers(dense, shape),
        output="c",
        launches=(program.launch(),),
        math="f16" if planner.element == 2 else "f32",
        generate_ms=(time.perf_counter() - start) * 1e3,
        cpu_source=cpp.emit(program),
    )


def planned(problem: Problem, operands: Operands, arch: str) -> tuple[Planner, Array, tuple[int, ...]]:
    """The planner of a product or convolution, its dense operand, and the output's shape.

    Raises `Unsupported` for an unknown architecture or too large a matrix.
    """
    c = problem.conv
    addressing = MatrixColumns(problem.n) if c is None else ImagePixels(c)
    planner = Planner(operands.sparse, addressing, arch, 2 if problem.dtype == "f16" else 4)
    planner.check()
    return planner, operands.dense["b" if c is None else "x"], (problem.m, problem.n) if c is None else c.output


def _plans(
    problem: Problem, operands: Operands, arch: str, values: Literal["code", "buffer"] = "code"
) -> Iterator[Plan]:
    """The plans of the planner's candidates, led by the winner of an earlier exhaustive search where there was one."""
    if problem.m == 0 or problem.n == 0:
        raise Unsupported("the output is empty")
    planner, dense, shape = planned(problem, operands, arch)
    known = recall(search_name(operands.pattern, problem, arch))
    for tiling in dict.fromkeys([*([known.tiling] if known else []), *planner.candidates()]):
        yield make_plan(planner, tiling, dense, arch, shape, values)


@kernel(PAPER, "spmm", "f32 f16", About("own", weights_in_code=True, rank=40))
def sparsert(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """SpMM with values in the code: the best tilings by the cost model, best first."""
    yield from _plans(problem, operands, arch)


@kernel(PAPER, "spmm", "f32 f16", About("own", study=True, weights_in_code=True, rank=100))
def sparsert_pattern(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """The same with only the pattern in the code: retraining the values needs no new program."""
    yield from _plans(problem, operands, arch, "buffer")


@kernel(PAPER, "conv2d conv1d", "f32 f16", About("own", weights_in_code=True, rank=50))
def sparsert_conv(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Sparse filters by generated code; any batch, padding and stride, filters of up to 25 taps.

    The best tilings by the cost model, best first.
    """
    c = convolved(problem)
    if c.r * c.s > MAX_TAPS:
        raise Unsupported(f"{c.r}x{c.s} filters need {c.r * c.s} pointers per thread, at most {MAX_TAPS}")
    yield from _plans(problem, operands, arch)
