"""Kernel `balanced`: products with a matrix whose rows keep the same number of nonzeros in every column range.

Yao, Cao, Xiao, Zhang, Nie: "Balanced Sparsity for Efficient DNN Inference on GPU", AAAI 2019, section 4. Up to 16
columns, the time is that of reading W (`balanced_rows`); with many, as in a convolution's product, that of reading X in
shared memory (`balanced_wide`). Both are this project's own; variants `paper_...` are the paper's mapping.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nnzbench.kernels import balanced_rows, balanced_wide
from nnzbench.kernels.registry import kernel
from nnzbench.kernels.roles import About
from nnzbench.matrices.formats import MatrixError
from nnzbench.matrices.prune import BalancedMatrix
from nnzbench.plans.architectures import block_shared_bytes, sm_count
from nnzbench.plans.chain import SharedWork
from nnzbench.plans.plan import Array, Plan, Unsupported
from nnzbench.plans.tiles import TileConfiguration
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem
from nnzbench.problems.sources import range_count

_LARGEST_GRID_Y = 65535


@dataclass(frozen=True)
class PaperTiling(TileConfiguration):
    """The paper's mapping of a matrix, `columns` of X at a time and `blocks` resident on a multiprocessor."""

    keep: int
    width: int
    ranges: int
    columns: int
    warps: int
    blocks: int

    @property
    def name(self) -> str:
        return f"paper_w{self.warps}"

    @property
    def shared_bytes(self) -> int:
        return 4 * self.width * self.ranges * self.columns


def paper_plan(matrix: BalancedMatrix, x: Array, arch: str, warps: int = 32, shared: SharedWork | None = None) -> Plan:
    """The paper's mapping (section 4), variant `paper_w<warps>`: a thread per range of a row, X in shared memory.

    `x` is (k, n), `shared` what plans of one matrix share. Raises `Unsupported` where a column of X does not fit in
    shared memory, and where X has more groups of columns than a grid holds.
    """
    shared = shared or SharedWork()
    n = x.shape[1]
    column_bytes = matrix.width * matrix.ranges * 4
    limit = block_shared_bytes(arch) - 1024
    fitting = [c for c in (4, 2, 1) if c < 2 * n and column_bytes * c <= limit]
    if not fitting:
        elements = matrix.width * matrix.ranges
        raise Unsupported(f"the paper's mapping holds a column of X in shared memory; {elements} rows do not fit")
    columns = fitting[0]
    groups = -(-n // columns)
    if groups > _LARGEST_GRID_Y:
        raise Unsupported(f"{groups} groups of {columns} columns are more than a grid holds")
    resident = max(1, min(32 // warps, limit // (column_bytes * columns)))
    blocks = min(-(-matrix.m // warps), max(1, sm_count(arch) * resident // groups))  # X is staged once in each
    tile = PaperTiling(matrix.keep, matrix.width, matrix.ranges, columns, warps, resident)
    flags = {"EXACT": n % columns == 0, "POSITION16": matrix.positions.itemsize == 2, "F16": x.dtype == np.float16}
    buffers = {
        "values": shared.once("values", lambda: np.ascontiguousarray(matrix.values.transpose(0, 2, 1))),
        "positions": shared.once("positions", lambda: np.ascontiguousarray(matrix.positions.transpose(0, 2, 1))),
        "x": np.ascontiguousarray(x),
        "y": np.zeros((matrix.m, n), dtype=x.dtype),
    }
    defines = {name: int(flag) for name, flag in flags.items()}
    return tile.plan("balanced_paper", (blocks, groups, 1), (matrix.m, matrix.k, n), buffers, defines=defines)


def structure_bytes(problem: Problem, nnz: int) -> int:
    """A balanced matrix needs neither offsets nor column indices: a position within its range takes a byte or two."""
    width = -(-problem.k // range_count(problem))
    return nnz * (1 if width <= 256 else 2)


@kernel(
    "Yao, Cao, Xiao, Zhang, Nie: Balanced Sparsity for Efficient DNN Inference on GPU, AAAI 2019",
    "spmm spmv",
    "f32 f16",
    About("own", pattern="balanced", structure_bytes=structure_bytes, paper_variants=r"paper(_w\d+)?$", rank=150),
)
def balanced(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Y = W X for a balanced W: the paper's mapping, and beside it streams of rows (to 16 columns) or panels of X.

    Raises `Unsupported` where the matrix is not balanced, naming the row and range, or the output is empty.
    """
    x = operands.dense["b"]
    if problem.m == 0 or x.shape[1] == 0 or problem.k == 0:
        raise Unsupported("the product is empty")
    try:
        matrix = BalancedMatrix.from_csr(operands.sparse, range_count(problem))
    except MatrixError as error:
        raise Unsupported(str(error)) from error
    yield from plans(matrix, x, arch)


def plans(matrix: BalancedMatrix, x: Array, arch: str) -> Iterator[Plan]:
    """Every plan for a matrix at hand; `x` is (k, n), of the type of the matrix values."""
    if x.shape[1] > balanced_rows.MOST_COLUMNS:
        yield from _paper_plans(matrix, x, arch)
        yield from balanced_wide.plans(matrix, x, arch)
        return
    yield from balanced_rows.plans(matrix, x, arch)
    yield from _paper_plans(matrix, x, arch)


def _paper_plans(matrix: BalancedMatrix, x: Array, arch: str) -> Iterator[Plan]:
    shared = SharedWork()
    for warps in (32, 16):
        try:
            yield paper_plan(matrix, x, arch, warps, shared)
        except Unsupported:
            return  # the paper has nothing for an X so long
