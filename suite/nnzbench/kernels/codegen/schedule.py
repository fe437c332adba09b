"""The schedule both emitters walk: per warp, which columns it loads and which accumulators they feed, in order."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.kernels.codegen.tiling import Ints, Tiling, assign_rows, share_columns
from nnzbench.matrices.formats import CSR


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
