"""Which tilings are worth trying for a matrix: a cost model of code fetch, B traffic and issue, and the viability rule.

The model ranks candidates; measuring decides. Its constants were fitted to the best designs of prototype runs on one
H200 (132 SMs): straight-line code arrives at about 9 bytes per clock and SM where loads of B stall it, about 16 where
B lies in shared memory, and less the larger the kernel's whole code is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from nnzbench.codegen.addressing import Addressing
from nnzbench.codegen.program import SHARED_LIMIT
from nnzbench.codegen.tiling import Ints, Tiling, assign_rows, share_columns, tile_costs
from nnzbench.kernel import Unsupported
from nnzbench.matrices.formats import CSR

INSTRUCTION_BYTES = 16
MAX_CODE_BYTES = 5 << 19
"""2.5 MB: beyond, instruction fetch from L2 alone takes longer than streaming the matrix as data."""
MAX_NONZEROS = 98_304
"""Beyond, the assembler takes a minute or more per candidate."""
_SMS = {70: 80, 72: 8, 75: 40, 80: 108, 86: 84, 87: 16, 89: 128, 90: 132, 100: 148, 120: 170}


@dataclass
class RowTiles:
    """Tiles of one row count, made once and shared by all tilings that use them."""

    tiles: list[Ints]
    nonzeros: int
    """Of the busiest tile."""
    loads: int
    """Distinct columns of the busiest tile."""


class Planner:
    """Ranks the tilings of one matrix on one architecture."""

    def __init__(self, matrix: CSR, addressing: Addressing, capability: int, element: int = 4) -> None:
        self.matrix = matrix
        self.addressing = addressing
        self.capability = capability
        self.element = element
        self.sms = _SMS.get(capability, 80)
        self._tiles: dict[tuple[int, int], RowTiles] = {}

    def check(self) -> None:
        """The viability rule: raises `Unsupported` where instruction fetch or the assembler would dominate."""
        nnz = self.matrix.nnz
        if nnz > MAX_NONZEROS or nnz * INSTRUCTION_BYTES > MAX_CODE_BYTES:
            raise Unsupported(
                f"{nnz} nonzeros would make at least {nnz * INSTRUCTION_BYTES / 2**20:.1f} MB of straight-line code, "
                f"which a GPU fetches more slowly than the matrix itself (limit: {MAX_NONZEROS} nonzeros); "
                "the kernel 'streaming' reads such a matrix as data"
            )

    def rows(self, tiling: Tiling) -> RowTiles:
        """Row tiles of a tiling."""
        key = (tiling.rows, tiling.row_tiles)
        if key not in self._tiles:
            tiles = share_columns(self.matrix, assign_rows(self.matrix, *key))
            costs = tile_costs(self.matrix, tiles)
            worst = int(costs.sum(axis=1).argmax())
            self._tiles[key] = RowTiles(tiles, int(costs[worst, 0]), int(costs[worst, 1]))
        return self._tiles[key]

    def cycles(self, tiling: Tiling) -> float:
        """Estimated clocks of one launch, without what every tiling pays alike."""
        t, rows = tiling, self.rows(tiling)
        image = self.addressing.pointers > 1
        v, wide = t.columns_per_thread, t.tile_columns * t.column_tiles
        across = -(-self.addressing.columns // (wide * t.loop))
        down = len(rows.tiles) // t.row_tiles
        blocks = down * across
        per_sm = -(-blocks // self.sms)
        busy = min(blocks, self.sms)
        code = INSTRUCTION_BYTES * t.row_tiles * (rows.nonzeros * v + rows.loads)
        whole = code * down
        segments = min(t.row_tiles * t.parts * min(per_sm, down), 16)
        rate = (16.0 if t.staged else 9.0 * (segments / 8) ** 0.3) * min(1.0, (262144 / max(whole, 1)) ** 0.3)
        fetch = code * min(per_sm, down) / rate
        adding = 2 * t.rows * v / 4 * t.parts if t.parts > 1 else t.rows * v
        issue = per_sm * t.loop * t.column_tiles * t.row_tiles * (rows.nonzeros * v + rows.loads + adding) / 4 / 0.6
        reached = float(self.matrix.k if t.staged else min(self.matrix.k, rows.loads * t.row_tiles))
        if image:  # the taps of a channel re-read nearly the same lines
            reached = min(reached, 3.5 * self.matrix.k / self.addressing.pointers)
        traffic = per_sm * t.loop * reached * wide * self.element / min(60.0, 3100.0 / busy)
        idle = 500.0 if t.warps * per_sm < 8 else 0.0
        fixed = (
            (250.0 if t.staged else 0.0)
            + (150.0 if t.parts > 1 else 0.0)
            + idle
            + 200.0 * (per_sm - 1)
            + 400.0 * (t.loop - 1)
        )
        return fixed + float(np.linalg.norm([fetch, issue, traffic]))

    def grid(self) -> list[Tiling]:
        """Every tiling of the search space that this matrix and architecture have room for."""
        m, k, n = self.matrix.m, self.matrix.k, self.addressing.columns
        image = self.addressing.pointers > 1
        found = []
        shapes = product((8, 16, 32, 64), (1, 2, 4, 8, 16), (1, 2, 4), (1, 2, 4, 8), (1, 2), (1, 2, 4), (False, True))
        for rows, parts, across, down, v, loop, staged in shapes:
            depth = 32 if rows <= 32 and v == 1 else 16
            t = Tiling(rows, parts, v, down, across, loop, staged, depth)
            if loop > 1 and (across > 1 or staged or n <= t.tile_columns * (loop - 1)):
                continue
            if t.warps < 2 or t.threads > 1024 or (rows * v + depth * v + 24) * t.threads > 65536:
                continue
            if rows > 8 and rows * down >= 2 * m:
                continue
            if (across > 1 and n <= t.tile_columns * (across - 1)) or (v == 2 and (n % 2 or n <= 32 or image)):
                continue
            if staged and (image or (down == 1 and parts < 4)):
                continue
            sums = t.warps * rows * t.tile_columns * 4 if parts > 1 else 0
            stage = k * t.tile_columns * across * self.element if staged else 0
            if sums + stage > min(SHARED_LIMIT.get(self.capability, 48), 128) * 1024:
                continue
            if parts > 1 and k < 4 * parts:
                continue
            found.append(t)
        return found

    def candidates(self, count: int = 9) -> list[Tiling]:
        """The most promising tilings, best first, then those that have won on like matrices and are not far behind.

        Raises `Unsupported` where the matrix is not viable.
        """
        self.check()
        feasible = set(self.grid())
        ranked = sorted(feasible, key=lambda t: (self.cycles(t), t.name))
        chosen = _varied(ranked, count)
        limit = 1.6 * self.cycles(ranked[0]) if ranked else 0.0
        chosen += [t for t in _PROVEN if t in feasible and t not in chosen and self.cycles(t) < limit]
        return chosen


_PROVEN = (
    Tiling(32, parts=8, depth=32),
    Tiling(64, parts=8),
    Tiling(64, parts=4, row_tiles=2),
    Tiling(16, parts=16, depth=32),
    Tiling(64, row_tiles=4, staged=True),
    Tiling(32, row_tiles=4, depth=32, staged=True),
    Tiling(16, row_tiles=4, depth=32, staged=True),
    Tiling(8, row_tiles=8, depth=32, staged=True),
    Tiling(64, column_tiles=4),
)
"""Best designs of the prototype runs on an H200."""


def _varied(ranked: Sequence[Tiling], count: int) -> list[Tiling]:
    """The first `count` of a ranked list, with no more than two of a family."""
    chosen: list[Tiling] = []
    families: dict[tuple[int, bool, bool, bool], int] = {}
    for t in ranked:
        family = (t.rows, t.staged, t.column_tiles > 1, t.loop > 1)
        if families.get(family, 0) < 2 and len(chosen) < count:
            families[family] = families.get(family, 0) + 1
            chosen.append(t)
    return chosen
