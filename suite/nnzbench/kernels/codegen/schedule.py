"""The schedule both emitters walk: per warp, which columns it loads and which accumulators they feed, in order.

A tiling says which rows, columns and part of K each warp computes; rows are balanced. The fastest tiling found for a
pattern on an architecture is kept on disk between runs.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench import paths
from nnzbench.matrices.formats import CSR
from nnzbench.problems.problem import Problem

Ints = NDArray[np.int32]


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
        """Warps per block."""
        return self.row_tiles * self.column_tiles * self.parts

    @property
    def threads(self) -> int:
        """Threads per block."""
        return 32 * self.warps

    @property
    def tile_columns(self) -> int:
        """Columns of one column tile."""
        return 32 * self.columns_per_thread

    @property
    def name(self) -> str:
        """Short variant name, such as `r32_g8_w2`; parameters at their defaults are left out."""
        parts = [f"r{self.rows}"]
        for letter, value in (
            ("v", self.columns_per_thread),
            ("g", self.parts),
            ("s", self.row_tiles),
            ("w", self.column_tiles),
            ("l", self.loop),
        ):
            if value != 1:
                parts.append(f"{letter}{value}")
        if self.depth != 16:
            parts.append(f"d{self.depth}")
        if self.staged:
            parts.append("staged")
        return "_".join(parts)


def tile_count(matrix: CSR, rows: int, multiple: int = 1) -> int:
    """Tiles of at most `rows` that the nonempty rows make, a multiple of `multiple`."""
    tiles = max(1, math.ceil(np.count_nonzero(matrix.row_lengths) / rows))
    return -(-tiles // multiple) * multiple


def assign_rows(matrix: CSR, rows: int, multiple: int = 1) -> list[Ints]:
    """Deals the nonempty rows into tiles of at most `rows`, with near-equal nonzeros; tiles a multiple of `multiple`.

    Longest rows first, each to the lightest tile that has room. Any set of rows may form a tile, because the code
    of a tile names its rows.
    """
    lengths = matrix.row_lengths
    filled = np.flatnonzero(lengths)
    tiles = tile_count(matrix, rows, multiple)
    members: list[list[int]] = [[] for _ in range(tiles)]
    heap = [(0, i) for i in range(tiles)]
    for row in filled[np.argsort(-lengths[filled], kind="stable")].tolist():
        load, tile = heapq.heappop(heap)
        members[tile].append(row)
        if len(members[tile]) < rows:
            heapq.heappush(heap, (load + int(lengths[row]), tile))
    return [np.array(sorted(rows_of), dtype=np.int32) for rows_of in members]


def share_columns(matrix: CSR, tiles: list[Ints], tries: int = 12000) -> list[Ints]:
    """Swaps rows of like length between tiles where that saves distinct columns, so that a load of B serves more rows.

    Hill climbing over seeded random pairs; lengths stay balanced because only near neighbours by length are swapped.
    """
    lengths = matrix.row_lengths
    order = [row for row in np.argsort(lengths, kind="stable").tolist() if lengths[row]]
    if len(tiles) < 2 or len(order) < 2:
        return tiles
    pattern = np.zeros((matrix.m, matrix.k), dtype=np.int16)
    pattern[np.repeat(np.arange(matrix.m), lengths), matrix.indices] = 1
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


def tile_costs(matrix: CSR, tiles: list[Ints]) -> NDArray[np.int64]:
    """(tiles, 2): nonzeros and distinct columns (loads of B) of each tile."""
    costs = np.zeros((len(tiles), 2), dtype=np.int64)
    for i, rows in enumerate(tiles):
        columns = [matrix.indices[matrix.offsets[r] : matrix.offsets[r + 1]] for r in rows.tolist()]
        joined = np.concatenate(columns) if columns else np.zeros(0, np.int32)
        costs[i] = joined.size, np.unique(joined).size
    return costs


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

    columns: Ints
    first: Ints
    rows: Ints
    values: NDArray[np.float32]
    position: int = 0
    """Index of the first value in the schedule's value stream."""

    @property
    def instructions(self) -> int:
        """Loads and multiply-adds, for one column per thread."""
        return self.columns.size + self.rows.size


@dataclass(frozen=True)
class Schedule:
    """All bodies of a matrix. `bodies[tile * parts + part]`; `slots[tile, i]` is the row in accumulator i, or -1."""

    tiling: Tiling
    m: int
    k: int
    nnz: int
    slots: Ints
    empty: tuple[Ints, ...]
    """Rows without nonzeros that a tile writes as zeros without an accumulator (only where `parts` is 1)."""
    bodies: tuple[Body, ...]
    stream: NDArray[np.float32]
    """Values in the order of execution, each body's padded to a multiple of 4."""

    @property
    def tiles(self) -> int:
        """Row tiles, a multiple of the tiling's `row_tiles`."""
        return int(self.slots.shape[0])


def _split(weights: NDArray[np.int64], parts: int) -> list[int]:
    """Cut points that divide consecutive `weights` into `parts` runs of near-equal sum."""
    total = np.concatenate([[0], np.cumsum(weights)])
    wanted = total[-1] * np.arange(1, parts) / parts
    cuts = [0]
    for at in wanted:
        i = int(np.searchsorted(total, at))
        if i > 0 and at - total[i - 1] < total[i] - at:
            i -= 1
        cuts.append(max(cuts[-1], i))
    return [*cuts, weights.size]


def _tile_bodies(matrix: CSR, rows: Ints, parts: int) -> list[Body]:
    spans = [(int(matrix.offsets[r]), int(matrix.offsets[r + 1])) for r in rows.tolist()]
    pick = np.concatenate([np.arange(a, b) for a, b in spans] or [np.zeros(0, np.int64)]).astype(np.int64)
    slot = np.repeat(np.arange(len(spans)), [b - a for a, b in spans])
    order = np.lexsort((slot, matrix.indices[pick]))
    k, slot, values = matrix.indices[pick][order], slot[order], matrix.values[pick][order].astype(np.float32)
    columns, start = np.unique(k, return_index=True)
    first = np.append(start, k.size)
    counts = np.diff(first)
    cuts = _split(counts + 1, parts)
    bodies = []
    for a, b in itertools.pairwise(cuts):
        lo, hi = int(first[a]), int(first[b])
        bodies.append(
            Body(
                columns[a:b].astype(np.int32),
                (first[a : b + 1] - lo).astype(np.int32),
                slot[lo:hi].astype(np.int32),
                values[lo:hi],
            )
        )
    return bodies


def make_schedule(matrix: CSR, tiling: Tiling, tiles: list[Ints] | None = None) -> Schedule:
    """Assigns rows to tiles (unless given), splits each tile's nonzeros over `tiling.parts` by equal instructions."""
    if tiles is None:
        tiles = share_columns(matrix, assign_rows(matrix, tiling.rows, tiling.row_tiles))
    empty_rows = np.flatnonzero(matrix.row_lengths == 0).astype(np.int32)
    empty: list[Ints] = [np.zeros(0, np.int32)] * len(tiles)
    if tiling.parts == 1:
        for i in range(len(tiles)):
            empty[i] = empty_rows[i :: len(tiles)]
    else:
        tiles = _place_empty(tiles, empty_rows, tiling)
        empty = [np.zeros(0, np.int32)] * len(tiles)
    slots = np.full((len(tiles), tiling.rows), -1, dtype=np.int32)
    bodies: list[Body] = []
    stream: list[NDArray[Any]] = []
    position = 0
    for i, rows in enumerate(tiles):
        slots[i, : rows.size] = rows
        for body in _tile_bodies(matrix, rows, tiling.parts):
            padded = -(-body.values.size // 4) * 4
            bodies.append(Body(body.columns, body.first, body.rows, body.values, position))
            stream.append(np.pad(body.values, (0, padded - body.values.size)))
            position += padded
    values = np.concatenate(stream) if position else np.zeros(4, np.float32)
    return Schedule(
        tiling, matrix.m, matrix.k, matrix.nnz, slots, tuple(empty), tuple(bodies), values.astype(np.float32)
    )


def _place_empty(tiles: list[Ints], empty_rows: Ints, tiling: Tiling) -> list[Ints]:
    """Puts rows without nonzeros into free slots, in new tiles where there are none."""
    left = empty_rows.tolist()
    result = []
    for rows in tiles:
        room = tiling.rows - rows.size
        result.append(np.array([*rows.tolist(), *left[:room]], dtype=np.int32))
        left = left[room:]
    while left or len(result) % tiling.row_tiles:
        result.append(np.array(left[: tiling.rows], dtype=np.int32))
        left = left[tiling.rows :]
    return result
