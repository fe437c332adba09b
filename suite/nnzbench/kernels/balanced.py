"""Kernel `balanced`: products with a matrix whose rows keep the same number of nonzeros in every column range.

Yao, Cao, Xiao, Zhang, Nie: "Balanced Sparsity for Efficient DNN Inference on GPU", AAAI 2019, section 4. Up to 16
columns, the time is that of reading W at the speed it streams from memory (`balanced_rows.cu`); with many, as in a
convolution's product, that of reading X in shared memory, panel by panel (`balanced_wide.cu`). Both are this project's
own; variants `paper_...` are the paper's mapping.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.architectures import architecture, block_shared_bytes, sm_count
from nnzbench.core.plan import Array, Plan, SharedWork, Unsupported, plans_that_fit
from nnzbench.core.tiles import MOST_GRID_Y, TileConfiguration
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.matrices.prune import BalancedMatrix
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.sources import range_count
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.rows import power_of_two_at_least, vector_width

Staging = Literal["registers", "async", "bulk"]
_STAGINGS: tuple[Staging, ...] = ("registers", "async", "bulk")
MOST_COLUMNS = 16
_RESERVED_BYTES = 3 * 1024
"""Of a block's shared memory: the driver's own share and the barriers of the queues."""
_BLOCK = 1 << 19
"""Entries that are packed at a time, so that temporaries stay in the processor's cache."""
_WORDS = {4: np.uint32, 8: np.uint64, 16: np.complex128}


@dataclass(frozen=True)
class RowsTiling(TileConfiguration):
    """How blocks and warps share the work; `balanced_rows.cu` explains the terms.

    What depends on the problem is 0 until `fitted`, which also lessens what is more than fits.
    """

    DEFINES: ClassVar = {"staging": "", "narrow": "", "x_bytes": "", "entry_bytes": ""}
    staging: Staging
    warps: int
    blocks: int
    """Blocks per SM."""
    chunk: int
    """Packs per copy, at most."""
    runs: int = 1
    """Strands per item, at most."""
    narrow: int = 1
    """Divides the ranges of a pass: more passes over X, more shared memory for the queues."""
    split: bool = False
    """Whether the passes of a row are done by different blocks, each of which stages its part of X once."""
    rows: int = 0
    """Rows that share a strand."""
    group: int = 0
    """Ranges of a pass."""
    stages: int = 1
    x_bytes: int = 0
    """Of a pass's part of X."""
    entry_bytes: int = 0
    """Of a value and its position."""

    @property
    def queued(self) -> bool:
        """Whether packs pass through a queue in shared memory."""
        return self.staging != "registers"

    @property
    def stage_bytes(self) -> int:
        """Of a stage of the queues of all warps."""
        return self.warps * self.chunk * 128 * self.entry_bytes if self.queued else 0

    @property
    def shared_bytes(self) -> int:
        return self.x_bytes + self.stages * self.stage_bytes

    @property
    def name(self) -> str:
        queue = f"{self.staging}{self.stages}" if self.stages > 1 else self.staging
        shape = f"w{self.warps}x{self.blocks}_c{self.chunk}_r{self.rows * self.runs}_g{self.group}"
        return f"{queue}_{shape}" + "_split" * self.split

    @property
    def defines(self) -> dict[str, int | str]:
        return {**super().defines, "STAGING": _STAGINGS.index(self.staging)}

    def fitted(self, matrix: BalancedMatrix, strands: BalancedStrands, n: int, arch: str) -> RowsTiling | None:
        """The configuration for `n` columns of X; None where it does not fit the matrix or the architecture."""
        columns, tiling = power_of_two_at_least(n), self  # columns as the kernel holds them
        parts = strands.passes if self.split else 1
        if self.split and parts == 1:
            return None
        blocks = max(1, sm_count(arch) * self.blocks // parts)  # of a part
        runs = _runs(strands, self, columns, blocks)
        if self.warps * self.blocks > 16 and columns * strands.rows * runs >= 8:
            return None  # too few registers for the sums
        if not self.queued and matrix.positions.itemsize == 2:
            tiling = replace(tiling, chunk=tiling.chunk // 2)
        if not self.queued and columns > 4:
            tiling = replace(tiling, chunk=min(tiling.chunk, 4), blocks=self.blocks if self.warps < 16 else 1)
        tiling = replace(
            tiling,
            runs=runs,
            chunk=_chunk(strands.packs * runs, tiling.chunk),
            rows=strands.rows,
            group=strands.group,
            x_bytes=_x_bytes(matrix, n, strands.group),
            entry_bytes=matrix.values.itemsize + matrix.positions.itemsize,
        )
        free = block_shared_bytes(arch) // tiling.blocks - _RESERVED_BYTES - tiling.x_bytes
        if self.queued:
            tiling = replace(tiling, stages=min(8, free // tiling.stage_bytes))
        return None if free < 0 or (self.queued and tiling.stages < 2) else tiling


@dataclass
class BalancedStrands:
    """A balanced matrix in the order that warps read it: (passes, strands, packs, 32 lanes, 4) entries."""

    values: Array
    positions: Array
    group: int
    rows: int
    keep: int
    """Entries per range and row; those that fill it up to a whole pack have value 0 and a position already used."""

    def __post_init__(self) -> None:
        self.passes, self.stored, self.packs = (int(size) for size in self.values.shape[:3])
        """Groups of ranges; strands of a pass, empty ones that fill up the last item included; packs of a strand."""


def strand_rows(keep: int) -> tuple[int, int]:
    """(rows that share a strand, entries kept per row): a pack of four may span rows, or else a row is filled up.

    Filling up is chosen where it adds little, or where a strand of several rows would be long.
    """
    filled = -(-keep // 4) * 4
    rows = 4 // math.gcd(4, keep)
    if filled - keep <= 0.07 * keep or rows * keep > 96:
        return 1, filled
    return rows, keep


def pack_rows(matrix: BalancedMatrix, group: int) -> BalancedStrands:
    """Orders entries for passes of `group` ranges, a power of two up to 32."""
    rows, keep = strand_rows(matrix.keep)
    sub = 32 // group
    passes = -(-matrix.ranges // group)
    strands = -(-matrix.m // (sub * rows))
    stored = -(-strands // 4) * 4  # an item has 1, 2 or 4
    height, packs = sub * rows, rows * keep // 4
    missing = [(0, passes * group - matrix.ranges), (0, keep - matrix.keep)]
    step = max(1, _BLOCK // (height * matrix.ranges * matrix.keep))

    def ordered(entries: NDArray[Any], fill: Literal["constant", "edge"]) -> NDArray[Any]:
        words: NDArray[Any] = np.empty((passes, stored, packs, 32), _WORDS[4 * entries.itemsize])
        for low in range(0, stored, step):
            count = min(step, stored - low)
            block = entries[low * height : (low + count) * height]
            short = (0, count * height - len(block))
            if short[1] or any(after for _, after in missing):
                block = np.pad(block, [(0, 0), (0, 0), missing[1]], fill)
                block = np.pad(block, [short, missing[0], (0, 0)])
            lanes = block.reshape(count, sub, rows, passes, group, keep).transpose(3, 0, 1, 4, 2, 5)
            flat: NDArray[Any] = np.ascontiguousarray(lanes).reshape(-1).view(words.dtype)
            words[:, low : low + count] = flat.reshape(passes, count, 32, packs).transpose(0, 1, 3, 2)
        return words.view(entries.dtype).reshape(passes, stored, packs, 32, 4)

    return BalancedStrands(ordered(matrix.values, "constant"), ordered(matrix.positions, "edge"), group, rows, keep)


def group_of(matrix: BalancedMatrix, n: int, arch: str) -> int:
    """The most ranges of a pass whose part of X leaves a quarter of a block's shared memory to the queues.

    Raises `Unsupported` where not even one range fits.
    """
    limit, most = block_shared_bytes(arch) * 3 // 4, power_of_two_at_least(matrix.ranges)
    for group in (32, 16, 8, 4, 2, 1):
        if group <= most and _x_bytes(matrix, n, group) <= limit:
            return group
    raise Unsupported(f"a range of {matrix.width} columns of X does not fit in shared memory")


def _x_bytes(matrix: BalancedMatrix, n: int, group: int) -> int:
    columns = power_of_two_at_least(n)
    element = matrix.values.itemsize if columns > 1 else 4
    return -(-matrix.width * group * columns * element // 128) * 128


def _chunk(packs: int, most: int) -> int:
    """Packs per copy: an item's copies are as few as `most` allows, and as equal as can be."""
    return -(-packs // -(-packs // most))


_SM90 = (
    RowsTiling("bulk", 16, 1, 8), RowsTiling("bulk", 16, 1, 8, runs=4), RowsTiling("bulk", 16, 1, 4),
    RowsTiling("bulk", 32, 1, 4), RowsTiling("bulk", 8, 2, 8), RowsTiling("bulk", 16, 1, 4, runs=4, split=True),
    RowsTiling("bulk", 16, 1, 4, runs=4, narrow=2, split=True),
)  # fmt: skip
_SM80 = (RowsTiling("async", 16, 1, 4), RowsTiling("async", 16, 1, 4, runs=4, split=True))
_PORTABLE = (
    RowsTiling("registers", 16, 1, 8), RowsTiling("registers", 16, 1, 8, runs=4), RowsTiling("registers", 16, 2, 4),
    RowsTiling("registers", 32, 1, 4, runs=4), RowsTiling("registers", 8, 3, 4),
    RowsTiling("registers", 16, 1, 4, narrow=2), RowsTiling("registers", 16, 1, 4, runs=4, split=True),
    RowsTiling("registers", 16, 1, 4, runs=4, narrow=2, split=True),
    RowsTiling("registers", 8, 2, 4, runs=4, narrow=4, split=True),
)  # fmt: skip


def rows_tilings(arch: str) -> tuple[RowsTiling, ...]:
    """Tilings worth trying, the likeliest first: queues filled by what the architecture has, then plain loads."""
    target = architecture(arch)
    return (_SM90 if target.has("bulk_copy") else ()) + (_SM80 if target.has("cp_async") else ()) + _PORTABLE


def rows_plans(matrix: BalancedMatrix, x: Array, arch: str) -> Iterator[Plan]:
    """One plan per tiling that fits; `x` is (k, n) with n up to 16, of the type of the matrix values."""
    group = group_of(matrix, x.shape[1], arch)
    packed: dict[int, BalancedStrands] = {}
    seen: set[str] = set()  # what fits a matrix may make two tilings the same
    for tiling in sorted(rows_tilings(arch), key=lambda tiling: tiling.narrow):
        if (tiling.narrow > 1 or tiling.split) and (matrix.ranges <= group or x.shape[1] == 1):
            continue  # X is small, and lanes that share a bank would meet
        wanted = max(1, group // tiling.narrow)
        if wanted not in packed:
            packed = {wanted: pack_rows(matrix, wanted)}  # one order of a large matrix at a time
        plan = rows_plan(matrix, packed[wanted], x, tiling, arch)
        if plan is not None and plan.variant not in seen:
            seen.add(plan.variant)
            yield plan


def _runs(strands: BalancedStrands, tiling: RowsTiling, columns: int, blocks: int) -> int:
    """Strands per item, up to those asked for: short ones are merged where the warps then still have two items each."""
    runs = tiling.runs
    while runs > 1 and (
        strands.packs * runs > 2 * tiling.chunk
        or columns * strands.rows * runs > 32
        or strands.stored < 2 * runs * blocks
    ):
        runs //= 2
    return runs


def rows_plan(matrix: BalancedMatrix, strands: BalancedStrands, x: Array, tiling: RowsTiling, arch: str) -> Plan | None:
    """The plan of one tiling, or None where it does not fit the matrix or the architecture."""
    n, columns = x.shape[1], power_of_two_at_least(x.shape[1])
    fitted = tiling.fitted(matrix, strands, n, arch)
    if fitted is None:
        return None
    parts = strands.passes if tiling.split else 1
    items = -(-matrix.m // (32 // strands.group * strands.rows * fitted.runs))
    blocks = min(items, max(1, sm_count(arch) * tiling.blocks // parts))
    wide = matrix.k % 4 == 0 and matrix.width % 4 == 0 if columns == 1 else n == columns
    along = 4 if columns == 1 and wide else 1
    held = -(-matrix.width * strands.group // along // (32 * tiling.warps)) <= 8  # words of X that a thread can hold
    buffers = {
        "values": strands.values,
        "positions": strands.positions,
        "x": np.ascontiguousarray(x),
        "partial": np.zeros((parts, matrix.m, columns) if strands.passes > 1 else (1, 1, 1), dtype=np.float32),
        "arrived": np.zeros(blocks * tiling.warps if tiling.split else 1, dtype=np.int32),
        "y": np.zeros((matrix.m, n), dtype=x.dtype),
    }
    return fitted.plan(
        "balanced_rows",
        (blocks * parts, 1, 1),
        (matrix.m, matrix.k, n, matrix.ranges, *divmod(items, blocks), strands.stored),
        buffers,
        defines={
            "KEEP": strands.keep,
            "PASSES": strands.passes,
            "WIDTH": matrix.width,
            "X_FIRST": int(tiling.staging != "bulk" and (held or along == 1)),
            "COLUMNS": columns,
            "EXACT": int(wide),
            "F16": int(matrix.values.dtype == np.float16),
            "POSITION16": int(matrix.positions.itemsize == 2),
        },
    )


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
class BalancedPaperTiling(TileConfiguration):
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
    tile = BalancedPaperTiling(matrix.keep, matrix.width, matrix.ranges, columns, warps, resident)
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
    wide, shared = x.shape[1] > MOST_COLUMNS, SharedWork()
    if not wide:
        yield from rows_plans(matrix, x, arch)
    with suppress(Unsupported):  # the paper has nothing for an X so long
        for warps in (32, 16):
            yield paper_plan(matrix, x, arch, warps, shared)
    if wide:
        choices = wide_tilings(matrix.m, x.shape[1], arch)
        yield from plans_that_fit(choices, lambda tiling: wide_plan(matrix, x, tiling, arch), "no tiling")
