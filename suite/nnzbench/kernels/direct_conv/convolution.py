"""Direct sparse convolution: the published kernel, and one of our own that reads and writes plain NCHW images.

Ours is generated for a layer's weights. A block computes some output channels of a tile of whole output rows; its input
is staged in shared memory, padding included, so that neither padding nor a change of layout costs a pass of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Literal

from nnzbench.kernels.codegen.addressing import convolved
from nnzbench.kernels.direct_conv import cpp as conv_cpp
from nnzbench.kernels.direct_conv import paper as direct_conv_paper
from nnzbench.kernels.direct_conv import ptx as conv_ptx
from nnzbench.kernels.direct_conv.model import ConvModel
from nnzbench.kernels.direct_conv.program import make_program
from nnzbench.kernels.direct_conv.tile import ConvTiling
from nnzbench.kernels.registry import About, kernel
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.problems.operands import Operands, storage_dtype
from nnzbench.problems.problem import Problem

CANDIDATES = 6
"""Tilings tried."""


def make_plan(problem: Problem, operands: Operands, tiling: ConvTiling, arch: str) -> Plan:
    """Generates the program of one tiling. Raises `Unsupported` where it does not fit the architecture."""
    start = time.perf_counter()
    assert problem.conv is not None
    program = make_program(operands.sparse, problem.conv, tiling, _element(problem))
    sources = [conv_ptx.emit(program, arch, part) for part in range(len(program.parts))]
    elapsed = (time.perf_counter() - start) * 1e3
    return Plan(
        variant=tiling.name,
        language="ptx",
        source=sources[0],
        defines={},
        buffers=program.buffers(operands.dense["x"].astype(storage_dtype(problem.dtype), copy=False)),
        output="y",
        launches=program.launches(sources),
        math=problem.dtype,
        generate_ms=elapsed,
        cpu_source=conv_cpp.emit(program),
    )


def _element(problem: Problem) -> Literal[2, 4]:
    return 2 if problem.dtype == "f16" else 4


@kernel(
    "Pietroń, Żurek: direct sparse convolution, 2021",
    "conv2d conv1d",
    "f32 f16",
    About("own", paper_variants="paper_", weights_in_code=True, rank=160),
)
def direct_conv(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Sparse filters of any size, padding and stride; fp32, or fp16 summed in fp32.

    Our most promising tiling, the published variants, then our others: generating each takes its time.
    """
    shape = convolved(problem)
    found = iter(ConvModel(shape, operands.sparse.nnz, _element(problem), arch).candidates(CANDIDATES))
    for tiling in islice(found, 1):
        yield make_plan(problem, operands, tiling, arch)
    refusal = None
    try:
        yield from direct_conv_paper.plans(problem, operands)
    except Unsupported as error:
        refusal = error
    for tiling in found:
        yield make_plan(problem, operands, tiling, arch)
    if refusal is not None:
        raise refusal
