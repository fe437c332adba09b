"""Kernel `balanced`: products with a matrix whose rows keep the same number of nonzeros in every column range.

Yao, Cao, Xiao, Zhang, Nie: "Balanced Sparsity for Efficient DNN Inference on GPU", AAAI 2019, section 4. Up to 16
columns, the time is that of reading W (`balanced_rows`); with many, as in a convolution's product, that of reading X in
shared memory, panel by panel (`balanced_wide.cu`). Both are this project's own; variants `paper_...` are the paper's
mapping.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nnzbench.kernels import balanced_rows
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.rows import vector_width
from nnzbench.matrices.formats import MatrixError
from nnzbench.matrices.prune import BalancedMatrix
from nnzbench.plans.architectures import block_shared_bytes, sm_count
from nnzbench.plans.chain import SharedWork
from nnzbench.plans.plan import Array, Plan, Unsupported, plans_that_fit
from nnzbench.plans.tiles import MOST_GRID_Y, TileConfiguration
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem
from nnzbench.problems.sources import range_count

_PAIR = np.dtype([("offset", "<u4"), ("value", "<f4")])
_PANEL_ROWS = 64


@dataclass(frozen=True)
class WideTiling(TileConfiguration):
    """Compile-time shape of `balanced_wide.cu`; what depends on the problem is 0 until it is fitted to one."""

    NAME: ClassVar = "wide_m{0.block_m}_n{0.block_n}_w{0.warps}"
    lanes: int
    vec: int
    warps: int
    row_steps: int
    block_k: int = 0
    """Columns of W in a panel."""
    units: int = 0
    """Pairs of entries that a row has in a panel."""
    stages: int = 0
    fill: int = 0
    """Elements of X that one copy brings."""
    f16: bool = False

    @property
    def block_m(self) -> int:
        return self.warps * self.row_steps * (32 // self.lanes)

    @property
    def block_n(self) -> int:
        return self.lanes * self.vec

    @property
    def stage_bytes(self) -> int:
        """Of a panel of X, the row of zeros behind it included, and of its entries of W."""
        return (self.block_k + 1) * self.block_n * (2 if self.f16 else 4) + self.block_m * self.units * 16

    @property
    def shared_bytes(self) -> int:
        return self.stages * self.stage_bytes


_TILINGS = (
    (32, 4, 8, 8), (32, 4, 8, 4), (16, 4, 8, 4), (16, 4, 8, 2), (32, 4, 8, 2),
    (8, 4, 8, 2), (16, 4, 4, 2), (8, 4, 4, 2), (8, 4, 4, 1), (8, 2, 4, 1),
)  # fmt: skip
_MOST_PLANS = 6


def wide_tilings(m: int, n: int, arch: str) -> list[WideTiling]:
    """Up to six tilings: those that keep every SM busy, the largest first; else the ones with the most blocks."""

    def blocks(tiling: WideTiling) -> int:
        return -(-m // tiling.block_m) * -(-n // tiling.block_n)

    known = [WideTiling(*shape) for shape in _TILINGS]
    fitting = [t for t in known if t.block_n < 2 * n and t.block_m < 2 * m] or known[-1:]
    busy = [tiling for tiling in fitting if blocks(tiling) >= 0.75 * sm_count(arch)]
    return (busy or sorted(fitting, key=blocks, reverse=True))[:_MOST_PLANS]


def panel_ranges(matrix: BalancedMatrix) -> int:
    """Balance ranges that make up a panel of about 64 columns of W, at least one."""
    return max(1, min(matrix.ranges, _PANEL_ROWS // matrix.width))


def pack_panels(matrix: BalancedMatrix, block_m: int, block_n: int) -> NDArray[Any]:
    """Units (groups, panels, block_m, units, 2) of {byte offset in the panel, value} pairs."""
    merged = panel_ranges(matrix)
    panels = -(-matrix.ranges // merged)
    groups = -(-matrix.m // block_m)
    per_panel = merged * matrix.keep
    entries = -(-per_panel // 2) * 2
    row_bytes = block_n * matrix.values.itemsize
    pairs = np.zeros((groups * block_m, panels, entries), dtype=_PAIR)
    pairs["offset"] = merged * matrix.width * row_bytes  # the row of zeros
    shape = (matrix.m, panels * merged, matrix.keep)
    offsets = np.full(shape, merged * matrix.width, dtype=np.uint32)
    values = np.zeros(shape, dtype=np.float32)
    starts = np.arange(matrix.ranges, dtype=np.uint32)[:, None] % merged * matrix.width
    offsets[:, : matrix.ranges] = matrix.positions + starts
    offsets[:, matrix.ranges - 1, matrix.last_keep :] = merged * matrix.width
    values[:, : matrix.ranges] = matrix.values
    pairs["offset"][: matrix.m, :, :per_panel] = offsets.reshape(matrix.m, panels, per_panel) * row_bytes
    pairs["value"][: matrix.m, :, :per_panel] = values.reshape(matrix.m, panels, per_panel)
    grouped = pairs.reshape(groups, block_m, panels, entries // 2, 2).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(grouped)


def wide_plan(matrix: BalancedMatrix, x: Array, tiling: WideTiling, arch: str) -> Plan:
    """The plan of one tiling. Raises `Unsupported` where it does not fit in shared memory or a grid."""
    n, merged = x.shape[1], panel_ranges(matrix)
    units, fill = -(-merged * matrix.keep // 2), vector_width(n, x.itemsize)
    tiling = replace(tiling, block_k=merged * matrix.width, units=units, fill=fill, f16=x.dtype == np.float16)
    stages = min(3, (block_shared_bytes(arch) - 1024) // tiling.stage_bytes)
    groups = -(-matrix.m // tiling.block_m)
    if stages < 2 or groups > MOST_GRID_Y:
        raise Unsupported(f"panels of {matrix.width} rows of X do not fit in shared memory")
    if stages == 3 and 3 * tiling.stage_bytes > block_shared_bytes(arch) // 2:
        stages = 2  # rather another block
    packed = pack_panels(matrix, tiling.block_m, tiling.block_n)
    buffers = {"units": packed.view(np.float32), "x": np.ascontiguousarray(x), "y": np.zeros((matrix.m, n), x.dtype)}
    grid, sizes = (-(-n // tiling.block_n), groups, 1), (matrix.m, matrix.k, n, packed.shape[1])
    return replace(tiling, stages=stages).plan("balanced_wide", grid, sizes, buffers)


@dataclass(frozen=True)
class PaperTiling(TileConfiguration):
    """The paper's mapping of a matrix, `columns` of X at a time and `blocks` resident on a multiprocessor."""

    NAME: ClassVar = "paper_w{0.warps}"
    keep: int
    width: int
    ranges: int
    columns: int
    warps: int
    blocks: int

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
    if groups > MOST_GRID_Y:
        raise Unsupported(f"{groups} groups of {columns} columns are more than a grid holds")
    resident = max(1, min(32 // warps, limit // (column_bytes * columns)))
    blocks = min(-(-matrix.m // warps), max(1, sm_count(arch) * resident // groups))  # X is staged once in each
    tile = PaperTiling(matrix.keep, matrix.width, matrix.ranges, columns, warps, resident)
    flags = {"EXACT": n % columns == 0, "POSITION16": matrix.positions.itemsize == 2, "F16": x.dtype == np.float16}
    defines = {name: int(flag) for name, flag in flags.items()}
    buffers = {
        "values": shared.once("values", lambda: np.ascontiguousarray(matrix.values.transpose(0, 2, 1))),
        "positions": shared.once("positions", lambda: np.ascontiguousarray(matrix.positions.transpose(0, 2, 1))),
        "x": np.ascontiguousarray(x),
        "y": np.zeros((matrix.m, n), dtype=x.dtype),
    }
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
    wide, shared = x.shape[1] > balanced_rows.MOST_COLUMNS, SharedWork()
    if not wide:
        yield from balanced_rows.plans(matrix, x, arch)
    with suppress(Unsupported):  # the paper has nothing for an X so long
        for warps in (32, 16):
            yield paper_plan(matrix, x, arch, warps, shared)
    if wide:
        choices = wide_tilings(matrix.m, x.shape[1], arch)
        yield from plans_that_fit(choices, lambda tiling: wide_plan(matrix, x, tiling, arch), "no tiling")
