"""SparseRT as its paper has it, and the parts of its ablation (figure 8), each a kernel of its own.

`sparsert_paper` is tuned over (M_blocks, N_blocks, Gy); `sparsert_unbalanced` is the same without load balancing;
`sparsert_fixed` has one fixed choice; `sparsert_rolled` reads the schedule from memory instead of unrolling it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nnzbench.codegen import paper
from nnzbench.codegen.model import MAX_NONZEROS
from nnzbench.codegen.paper import PaperTiling
from nnzbench.kernel import Array, Plan, Unsupported, plans_that_fit, register
from nnzbench.matrices.formats import CSR
from nnzbench.operands import Operands
from nnzbench.problem import Problem

PAPER = "SparseRT (PACT 2020)"
FIXED_ROWS, FIXED_WIDTH = 16, 64
"""The fixed choice: about this many rows and columns per block, one group."""


def unrolled_plan(matrix: CSR, b: Array, tiling: PaperTiling, arch: str) -> Plan:
    """One tiling with the values in the code. Raises `Unsupported` where it does not fit `arch`."""
    start = time.perf_counter()
    schedule = paper.make_schedule(matrix, b.shape[1], tiling)
    source = paper.emit(schedule, arch)
    return Plan(
        variant=tiling.name,
        language="ptx",
        source=source,
        defines={},
        buffers={"b": b, "c": np.zeros((matrix.m, b.shape[1]), np.float32)},
        output="c",
        launches=(schedule.launch(paper.ENTRY, ("b", "c")),),
        generate_ms=(time.perf_counter() - start) * 1e3,
        cpu_source=paper.cpp(schedule),
    )


def rolled_plan(matrix: CSR, b: Array, tiling: PaperTiling, arch: str) -> Plan:
    """The same tiling with the schedule in memory. Raises `Unsupported` where it does not fit `arch`."""
    start = time.perf_counter()
    schedule = paper.make_schedule(matrix, b.shape[1], tiling)
    schedule.check(arch)
    tables = paper.tables(schedule)
    launch = schedule.launch("sparsert_rolled", ("b", "c", *tables))
    return Plan(
        variant=tiling.name,
        language="cuda",
        source="sparsert_rolled.cu",
        defines={"ROWS": schedule.rows, "THREADS": schedule.width * tiling.groups},
        buffers={"b": b, "c": np.zeros((matrix.m, b.shape[1]), np.float32), **tables},
        output="c",
        launches=(replace(launch, args=(*launch.args, schedule.n)),),
        generate_ms=(time.perf_counter() - start) * 1e3,
    )


@dataclass(frozen=True)
class PaperKernel:
    """One bar of the ablation; the variants are the tilings it is tuned over."""

    name: str
    unrolled: bool = True
    balanced: bool = True
    tuned: bool = True
    paper: str = PAPER
    ops: frozenset[str] = frozenset({"spmm"})
    dtypes: frozenset[str] = frozenset({"f32"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """Every feasible choice of the paper's parameters, or the fixed one."""
        matrix, b = operands.sparse, operands.dense["b"]
        if problem.m == 0 or problem.n == 0:
            raise Unsupported("the output is empty")
        if self.unrolled and matrix.nnz > MAX_NONZEROS:
            raise Unsupported(f"{matrix.nnz} nonzeros: unrolled code is assembled for at most {MAX_NONZEROS}")
        tilings = paper.grid(problem.m, problem.n)
        if not self.tuned:
            tilings = [_fixed(tilings, problem)] if tilings else []
        make = unrolled_plan if self.unrolled else rolled_plan
        yield from plans_that_fit(
            tilings,
            lambda tiling: make(matrix, b, replace(tiling, balanced=self.balanced), arch),
            "no choice of the paper's parameters divides this problem and fits a block",
        )


def _fixed(tilings: list[PaperTiling], problem: Problem) -> PaperTiling:
    def distance(t: PaperTiling) -> tuple[int, int, int]:
        return t.groups, abs(problem.n // t.n_blocks - FIXED_WIDTH), abs(problem.m // t.m_blocks - FIXED_ROWS)

    return min(tilings, key=distance)


register(PaperKernel("sparsert_paper"))
register(PaperKernel("sparsert_unbalanced", balanced=False))
register(PaperKernel("sparsert_fixed", tuned=False))
register(PaperKernel("sparsert_rolled", unrolled=False))
