"""The schedule both emitters walk: per warp, which columns it loads and which accumulators they feed, in order.

A tiling says which rows, columns and part of K each warp computes; rows are balanced. The fastest tiling found for a
pattern on an architecture is kept on disk between runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnzbench.core import paths
from nnzbench.core.plan import Array, Int32s, Int64s, Unsupported
from nnzbench.data.matrices.formats import CSR, prefix_sums
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.rows import deal_rows, entries_of, padded


@dataclass(frozen=True)
class Tiling:
    """Shape of the work of a block of the unrolled kernel.

    A block has `row_tiles * column_tiles * parts` warps. A warp keeps `rows` rows of one row tile for 32 columns
    times `columns_per_thread` in registers and walks one of `parts` parts of K; the parts' sums meet in shared memory.
    Warps of one row tile and part run the same instructions.
    """

    rows: int
    parts: int = 1
    columns_per_thread: int = 1
    row_tiles: int = 1
    """Row tiles per block; they read the same columns of B."""
    column_tiles: int = 1
    """Column tiles per block; they share instructions."""
    loop: int = 1
    """Column groups one block computes in turn, running its instructions again."""
    staged: bool = False
    """B is first copied into shared memory by the whole block (it holds all of K)."""
    depth: int = 16
    """Loads of B issued ahead of their use."""

    @property
    def warps(self) -> int:
        return self.row_tiles * self.column_tiles * self.parts

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def tile_columns(self) -> int:
        return 32 * self.columns_per_thread

    @property
    def name(self) -> str:
        """Short variant name, such as `r32_g8_w2`; parameters at their defaults are left out."""
        sizes = {"v": self.columns_per_thread, "g": self.parts, "s": self.row_tiles, "w": self.column_tiles}
        told = [f"{letter}{value}" for letter, value in {**sizes, "l": self.loop}.items() if value != 1]
        return "_".join([f"r{self.rows}", *told, *[f"d{self.depth}"] * (self.depth != 16), *["staged"] * self.staged])


def refuse(name: str, wrong: Mapping[str, bool]) -> None:
    """Raises `Unsupported` with the first reason that holds of the tiling of that name."""
    for reason, holds in wrong.items():
        if holds:
            raise Unsupported(f"{name}: {reason}")


def tile_count(matrix: CSR, rows: int, multiple: int = 1) -> int:
    """Tiles of at most `rows` that the nonempty rows make, a multiple of `multiple`."""
    tiles = max(1, math.ceil(np.count_nonzero(matrix.row_lengths) / rows))
    return -(-tiles // multiple) * multiple


def assign_rows(matrix: CSR, rows: int, multiple: int = 1) -> list[Int32s]:
    """Deals the nonempty rows into tiles of at most `rows`, with near-equal nonzeros; tiles a multiple of `multiple`.

    Any set of rows may form a tile, because the code of a tile names its rows.
    """
    filled = np.flatnonzero(matrix.row_lengths)
    dealt = deal_rows(matrix.row_lengths[filled], tile_count(matrix, rows, multiple), rows)
    return [np.sort(filled[own[own >= 0]]).astype(np.int32) for own in dealt]


def share_columns(matrix: CSR, tiles: list[Int32s], tries: int = 12000) -> list[Int32s]:
    """Swaps rows of like length between tiles where that saves distinct columns, so that a load of B serves more rows.

    Hill climbing over seeded random pairs; lengths stay balanced because only near neighbours by length are swapped.
    """
    lengths = matrix.row_lengths
    order = [row for row in np.argsort(lengths, kind="stable").tolist() if lengths[row]]
    if len(tiles) < 2 or len(order) < 2:
        return tiles
    pattern = np.zeros((matrix.m, matrix.k), dtype=np.int16)
    pattern[matrix.rows, matrix.indices] = 1
    used = np.stack([pattern[rows].sum(axis=0, dtype=np.int16) for rows in tiles])
    counts = np.count_nonzero(used, axis=1).tolist()
    tile_of = {row: i for i, rows in enumerate(tiles) for row in rows.tolist()}
    rng = np.random.default_rng(0)
    tries = min(tries, 16 * len(order))
    picks = rng.integers(len(order), size=tries)
    others = np.clip(picks + rng.integers(-8, 9, size=tries), 0, len(order) - 1)
    for i, j in zip(picks.tolist(), others.tolist(), strict=True):
        row, other = order[i], order[j]
        a, b = tile_of[row], tile_of[other]
        if a == b:
            continue
        change = pattern[other] - pattern[row]
        new_a, new_b = used[a] + change, used[b] - change
        count_a, count_b = np.count_nonzero(new_a), np.count_nonzero(new_b)
        if count_a + count_b < counts[a] + counts[b]:
            used[a], used[b] = new_a, new_b
            counts[a], counts[b] = count_a, count_b
            tile_of[row], tile_of[other] = b, a
    members: list[list[int]] = [[] for _ in tiles]
    for row in sorted(tile_of):
        members[tile_of[row]].append(row)
    return [np.array(rows, dtype=np.int32) for rows in members]


def tile_costs(matrix: CSR, tiles: list[Int32s]) -> Int64s:
    """(tiles, 2): nonzeros and distinct columns (loads of B) of each tile."""
    columns = [matrix.indices[entries_of(matrix, rows)] for rows in tiles]
    return np.array([(own.size, np.unique(own).size) for own in columns], np.int64)


@dataclass(frozen=True)
class Tuned:
    """A finished search and its price."""

    tiling: Tiling
    median_us: float
    candidates: int
    correct: int
    generate_s: float
    """Inspection and code generation of all candidates."""
    assemble_s: float
    """Wall time of the parallel assembly."""
    measure_s: float


def search_name(pattern: str, problem: Problem, arch: str) -> str:
    """File name of a search: what the best tiling depends on."""
    return f"{arch}-{pattern}-{problem.shape or problem.n}-{problem.dtype}"


def recall(name: str) -> Tuned | None:
    """The stored result, None where there is none or it can't be read."""
    try:
        entry = json.loads(_file(name).read_bytes())
        return Tuned(**{**entry, "tiling": Tiling(**entry["tiling"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def remember(name: str, tuned: Tuned) -> Path:
    """Stores a result by one rename, so that a reader sees all of it or none."""
    path = _file(name)
    with paths.replacing(path) as partial:
        partial.write_text(json.dumps(asdict(tuned)), encoding="utf-8")
    return path


def _file(name: str) -> Path:
    return paths.cache() / "tuning" / f"{name}.json"


@dataclass(frozen=True)
class Body:
    """Straight-line work of one row tile and part of K.

    Column `columns[i]` of A is multiplied by row `columns[i]` of B into accumulators `rows[first[i]:first[i + 1]]`.
    """

    columns: Int32s
    first: Int32s
    rows: Int32s
    values: NDArray[np.float32]
    position: int = 0
    """Index of the first value in the schedule's value stream."""

    @staticmethod
    def of(columns: Int32s, rows: Int32s, values: NDArray[np.float32], position: int = 0) -> Body:
        """Of nonzeros by column; `rows` are their accumulators."""
        distinct, start = np.unique(columns, return_index=True)
        first = np.append(start, columns.size)
        return Body(distinct.astype(np.int32), first.astype(np.int32), rows.astype(np.int32), values, position)

    @property
    def instructions(self) -> int:
        """Loads and multiply-adds, for one column per thread."""
        return self.columns.size + self.rows.size


def by_column(matrix: CSR, rows: Int32s | Int64s) -> tuple[Int32s, Int32s, NDArray[np.float32]]:
    """Columns, places in `rows` and values of the nonzeros of those rows, by column and then by row."""
    pick = entries_of(matrix, rows)
    place = np.repeat(np.arange(rows.size), matrix.row_lengths[rows])
    order = np.argsort(matrix.indices[pick], kind="stable")
    pick = pick[order]
    return matrix.indices[pick], place[order].astype(np.int32), matrix.values[pick].astype(np.float32)


def tables(bodies: Sequence[Body]) -> dict[str, Array]:
    """The schedule as arrays, for kernels that read it.

    Body i loads columns `body_start[i]` to `body_start[i + 1] - 1`, column j is multiplied by nonzeros from `first[j]`
    on; a zero stands at the end of columns, rows and values, so that no array is empty.
    """
    loads = np.cumsum([0, *(body.columns.size for body in bodies)])
    nonzeros = np.cumsum([0, *(body.rows.size for body in bodies)])
    first = [body.first[:-1] + start for body, start in zip(bodies, nonzeros[:-1], strict=True)]
    zero = np.zeros(1, np.int32)
    return {
        "body_start": loads.astype(np.int32),
        "columns": np.concatenate([*(body.columns for body in bodies), zero]),
        "first": np.concatenate([*first, nonzeros[-1:]]).astype(np.int32),
        "rows": np.concatenate([*(body.rows for body in bodies), zero]),
        "values": np.concatenate([*(body.values for body in bodies), zero.astype(np.float32)]),
    }


@dataclass(frozen=True)
class Schedule:
    """All bodies of a matrix. `bodies[tile * parts + part]`; `slots[tile, i]` is the row in accumulator i, or -1."""

    tiling: Tiling
    m: int
    k: int
    nnz: int
    slots: Int32s
    empty: tuple[Int32s, ...]
    """Rows without nonzeros that a tile writes as zeros without an accumulator (only where `parts` is 1)."""
    bodies: tuple[Body, ...]

    @property
    def stream(self) -> Array:
        """Values in the order of execution, each body's padded to a multiple of 4."""
        values = [np.pad(body.values, (0, -body.values.size % 4)) for body in self.bodies]
        return padded(np.concatenate([np.zeros(0, np.float32), *values]), 4)

    @property
    def tiles(self) -> int:
        """Row tiles, a multiple of the tiling's `row_tiles`."""
        return int(self.slots.shape[0])


def _split(weights: Int64s, parts: int) -> list[int]:
    """Cut points that divide consecutive `weights` into `parts` runs of near-equal sum."""
    total = prefix_sums(weights)
    wanted = total[-1] * np.arange(1, parts) / parts
    cuts = np.searchsorted(total, wanted)
    cuts -= (cuts > 0) & (wanted - total[cuts - 1] < total[cuts] - wanted)
    return [0, *np.maximum.accumulate(cuts).tolist(), weights.size]


def make_schedule(matrix: CSR, tiling: Tiling, tiles: list[Int32s] | None = None) -> Schedule:
    """Assigns rows to tiles (unless given), splits each tile's nonzeros over `tiling.parts` by equal instructions."""
    if tiles is None:
        tiles = share_columns(matrix, assign_rows(matrix, tiling.rows, tiling.row_tiles))
    empty_rows = np.flatnonzero(matrix.row_lengths == 0).astype(np.int32)
    slots = np.full((len(tiles), tiling.rows), -1, dtype=np.int32)
    for own, rows in zip(slots, tiles, strict=True):
        own[: rows.size] = rows
    if tiling.parts > 1:
        slots, empty_rows = _with_empty(slots, empty_rows, tiling.row_tiles), empty_rows[:0]
    bodies: list[Body] = []
    position = 0
    for own in slots:
        columns, place, values = by_column(matrix, own[own >= 0])
        first = np.append(np.unique(columns, return_index=True)[1], columns.size)
        cuts = first[_split(np.diff(first) + 1, tiling.parts)]
        for held in map(slice, cuts[:-1], cuts[1:]):
            bodies.append(Body.of(columns[held], place[held], values[held], position))
            position += -(-bodies[-1].values.size // 4) * 4
    empty = tuple(empty_rows[i :: len(slots)] for i in range(len(slots)))
    return Schedule(tiling, matrix.m, matrix.k, matrix.nnz, slots, empty, tuple(bodies))


def _with_empty(slots: Int32s, empty_rows: Int32s, multiple: int) -> Int32s:
    """Rows without nonzeros in free slots, of new tiles where there are too few; tiles are a multiple of `multiple`."""
    short = max(0, empty_rows.size - int(np.count_nonzero(slots < 0)))
    tiles = len(slots) + -(-short // slots.shape[1])
    slots = np.pad(slots, ((0, -(-tiles // multiple) * multiple - len(slots)), (0, 0)), constant_values=-1)
    slots.ravel()[np.flatnonzero(slots < 0)[: empty_rows.size]] = empty_rows
    return slots
