"""ASpT's SpMM and SDDMM, and their tiling: columns with many nonzeros in a panel of rows become dense tiles.

Hong et al.: "Adaptive Sparse Tiling for Sparse Matrix Multiplication", PPoPP 2019; constants as in the authors'
artifact. `kernels_cu/aspt_spmm.cu` and `kernels_cu/aspt_sddmm.cu` say who computes what. The original inspects on the
GPU, once per matrix and operation; here the host does, and its time is recorded as the plan's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nnzbench.core.plan import Array, Int32s, Int64s, Launch, Plan, SharedWork, Unsupported
from nnzbench.data.matrices.formats import CSR, ranks
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import About, kernel

PANEL = 128
"""Rows of a panel."""
HEAVY = 16
"""Nonzeros in a panel from which a column may be in a tile."""
CHUNK = 512
"""Nonzeros of a run that a block of the kernel for long rows takes."""
_MOST_TILES = 1023
_PLAIN_PER_COLUMN = 6
_PLAIN_VARIANCE = 40.0
_LONG_VARIANCE = 200.0


@dataclass(frozen=True)
class AsptTiles:
    """One matrix cut into tiles and remainder; the arrays are the kernels' buffers."""

    matrix: CSR
    order: Int64s
    """Which nonzero of the matrix each stored one is, shape (nnz,): by row, then by part."""
    begins: Int32s
    """Where each row's parts begin, its tiles in order and then the remainder; `nnz` at the end."""
    panels: Int32s
    """Parts per row of all panels before each, shape (panels + 1,)."""
    tiles: Int32s
    """Panel of each tile and its number there, shape (tiles, 2)."""
    slots: Int32s
    """Columns of each tile, -1 where a slot is empty, shape (tiles, columns)."""

    @cached_property
    def remainder(self) -> Int64s:
        """Begin and length of each row's remainder, shape (rows, 2)."""
        count = np.repeat(np.diff(self.panels), PANEL)[: self.matrix.m]
        rows = np.arange(self.matrix.m)
        last = np.repeat(self.panels[:-1], PANEL)[: self.matrix.m] * PANEL + rows % PANEL * count + count - 1
        begin = self.begins[last].astype(np.int64)
        return np.stack((begin, self.begins[last + 1] - begin), axis=1)

    @property
    def variance(self) -> float:
        return float(self.remainder[:, 1].var())

    @property
    def plain(self) -> bool:
        """Whether the artifact would not tile this matrix: few nonzeros per column, rows of even length."""
        return self.matrix.nnz // self.matrix.k < _PLAIN_PER_COLUMN and self.variance < _PLAIN_VARIANCE

    @property
    def long_rows(self) -> bool:
        """Whether the remainder's rows are so uneven that the artifact splits long ones."""
        return self.variance >= _LONG_VARIANCE

    @property
    def chunks(self) -> Int32s:
        """Row and first nonzero of each whole run of `CHUNK` in a remainder, shape (runs, 2)."""
        runs = self.remainder[:, 1] // CHUNK
        rows = np.repeat(np.arange(self.matrix.m), runs)
        number = ranks(runs)
        return np.stack((rows, self.remainder[rows, 0] + CHUNK * number), axis=1).astype(np.int32)

    @property
    def buffers(self) -> dict[str, Array]:
        """What every kernel over the tiling takes beside values and dense operands."""
        return {
            "begins": self.begins,
            "panels": self.panels,
            "indices": self.matrix.indices[self.order].astype(np.int32),
        }


def untiled(matrix: CSR) -> AsptTiles:
    """The matrix as it is, all of it the remainder: what the plain kernel takes."""
    return _assemble(matrix, [np.zeros(0, np.int32)] * -(-matrix.m // PANEL), 1)


def tile(matrix: CSR, columns: int) -> AsptTiles:
    """Tiles of `columns` columns; one exists where three quarters of its slots are taken.

    A column takes the slot of its number modulo `columns` in the first tile where that is free, lower columns first
    (the original: in the order that threads arrive). Raises `Unsupported` where a panel gets more tiles than the
    artifact can number.
    """
    least = columns * 3 // 4
    return _assemble(matrix, [_tiles_of(held, matrix.k, columns, least) for held in _panels(matrix)], columns)


def _panels(matrix: CSR) -> list[Int32s]:
    ends = matrix.offsets[np.minimum(np.arange(0, matrix.m + PANEL, PANEL), matrix.m)]
    return [matrix.indices[begin:end] for begin, end in itertools.pairwise(ends)]


def _tiles_of(held: Int32s, k: int, columns: int, least: int) -> Int32s:
    """The slots of a panel's tiles, shape (tiles, columns)."""
    heavy = np.flatnonzero(np.bincount(held, minlength=k) >= HEAVY)
    heavy = heavy[np.argsort(heavy % columns, kind="stable")]
    _, counts = np.unique(heavy % columns, return_counts=True)
    number = ranks(counts)
    taken = np.bincount(number, minlength=1)  # slots of each tile, which falls with its number
    tiles = int((taken >= least).sum())
    if tiles > _MOST_TILES:
        raise Unsupported(f"{tiles} tiles in a panel are more than ASpT's {_MOST_TILES}")
    slots = np.full((tiles, columns), -1, dtype=np.int32)
    kept = number < tiles
    slots[number[kept], heavy[kept] % columns] = heavy[kept]
    return slots


def _assemble(matrix: CSR, panels: list[Int32s], columns: int) -> AsptTiles:
    order = np.empty(matrix.nnz, dtype=np.int64)
    begins = []
    for panel, slots in enumerate(panels):
        first, last = panel * PANEL, min(panel * PANEL + PANEL, matrix.m)
        begin, end = int(matrix.offsets[first]), int(matrix.offsets[last])
        parts = len(slots) + 1
        part_of = np.full(matrix.k, parts - 1, dtype=np.int32)
        for number, one in enumerate(slots):
            part_of[one[one >= 0]] = number
        rows = np.repeat(np.arange(last - first, dtype=np.int32), matrix.row_lengths[first:last])
        keys = rows * parts + part_of[matrix.indices[begin:end]]
        # small keys are sorted by radix
        order[begin:end] = begin + np.argsort(keys.astype(np.min_scalar_type(PANEL * parts)), kind="stable")
        lengths = np.bincount(keys, minlength=PANEL * parts)
        begins.append(begin + np.cumsum(lengths) - lengths)
    counts = [len(slots) for slots in panels]
    numbers = [(panel, number) for panel, count in enumerate(counts) for number in range(count)]
    return AsptTiles(
        matrix,
        order,
        np.concatenate([*begins, [matrix.nnz]]).astype(np.int32),
        np.cumsum([0, *(count + 1 for count in counts)]).astype(np.int32),
        np.array(numbers, dtype=np.int32).reshape(-1, 2),
        np.concatenate([slots.reshape(-1, columns) for slots in panels]),
    )


PAPER = "Hong et al.: Adaptive Sparse Tiling for Sparse Matrix Multiplication, PPoPP 2019"
SPMM_TILES = {32: 256, 128: 128}
"""Columns of a tile by n: its part of B is 32 KB of shared memory, at 32 and at 64 columns of C a block."""
SDDMM_TILES = {32: 256, 128: 64}
"""Columns of a tile by the length of the dot products."""


def spmm_plan(matrix: CSR, b: Array) -> Plan:
    """The plan of C = A B, `b` (k, n) float32; its variant says which kernels the artifact's rules choose.

    Raises `Unsupported` for n other than 32 and 128, for no nonzeros and for offsets that do not fit.
    """
    n = b.shape[1]
    lanes = 1 if n == 32 else 2
    dense = {"b": np.ascontiguousarray(b), "c": np.zeros((matrix.m, n), np.float32)}
    return _plan("aspt", matrix, n, dense, {"LANE_COLUMNS": lanes}, n // (32 * lanes))


def sddmm_plan(pattern: CSR, x: Array, y: Array) -> Plan:
    """The plan of D = X Y^T at `pattern`'s nonzeros, `x` (m, n) and `y` (k, n) float32.

    Raises `Unsupported` for n other than 32 and 128, for no nonzeros and for offsets that do not fit.
    """
    n, ones = x.shape[1], np.ones(pattern.nnz, np.float32)
    dense = {"x": np.ascontiguousarray(x), "y": np.ascontiguousarray(y), "d": np.zeros_like(ones)}
    return _plan("aspt_sddmm", pattern.with_values(ones), n, dense, {"LANE_FEATURES": n // 32}, 1)


def _plan(entry: str, matrix: CSR, n: int, dense: dict[str, Array], lanes: dict[str, int], halves: int) -> Plan:
    """The plain kernel, or those over remainder, long rows (of a product, which is told its `n`) and tiles."""
    product = entry == "aspt"
    sizes, what = (SPMM_TILES, "columns") if product else (SDDMM_TILES, "features")
    if n not in sizes:
        raise Unsupported(f"ASpT's kernels are written for 32 or 128 {what}, not {n}")
    if matrix.nnz == 0:
        raise Unsupported("the matrix has no nonzeros")
    if matrix.k * n >= 2**31:
        raise Unsupported(f"offsets are of 32 bits: {matrix.k} rows of {n} have 2^31 numbers or more")
    elapsed = SharedWork().timer()
    tiling = tile(matrix, sizes[n])
    tiling = untiled(matrix) if tiling.plain else tiling
    order = tiling.order
    buffers = {**tiling.buffers, "values": matrix.values[order], **dense}

    def in_order(stored: Array) -> Array:
        result = np.empty_like(stored)
        result[order] = stored
        return result

    m, tail, told = matrix.m, tuple(buffers), (n,) if product else ()
    by_rows = ((-(-m // 4), 1, halves), (128, 1, 1))
    if tiling.plain:
        name, launches = "plain", [Launch(f"{entry}_plain", *by_rows, (m, *told, *tail))]
    else:
        long = product and tiling.long_rows
        name, split = f"tiles{len(tiling.tiles)}" + "_long" * long, (int(long),) if product else ()
        launches = [Launch(f"{entry}_remainder", *by_rows, (m, *told, *split, *tail))]
        if long and len(tiling.chunks):
            buffers["chunks"] = chunks = tiling.chunks
            launches.append(Launch(f"{entry}_long", (len(chunks), 1, halves), (256, 1, 1), (*told, "chunks", *tail)))
        if len(tiling.tiles):
            buffers |= {"tiles": tiling.tiles, "slots": tiling.slots}
            grid = (len(tiling.tiles), 1, halves)
            launches.append(Launch(f"{entry}_tiles", grid, (1024, 1, 1), (m, *told, "tiles", "slots", *tail)))
    source, defines = "aspt_spmm.cu" if product else "aspt_sddmm.cu", {"TILE": sizes[n], **lanes}
    plan = Plan(name, "cuda", source, defines, buffers, tail[-1], tuple(launches), generate_ms=elapsed())
    return plan if product else replace(plan, unpermute=in_order)


@kernel(PAPER, "spmm", "f32", About("paper", "ASpT", nothing_to_tune=True, rank=42))
def aspt(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """C = A B over dense tiles and a remainder in CSR: the one plan that the artifact's rules give."""
    yield spmm_plan(operands.sparse, operands.dense["b"])


@kernel(PAPER, "sddmm", "f32", About("paper", "ASpT SDDMM", nothing_to_tune=True, rank=43))
def aspt_sddmm(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """D = X Y^T sampled by a pattern, over the same tiles."""
    yield sddmm_plan(operands.sparse, operands.dense["a"], operands.dense["b"])
