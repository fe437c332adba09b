"""TCA-BME, SpInfer's format: a bit per element in the order in which tensor cores use them, and all nonzeros."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Unsupported

TILE = 64
"""Rows and columns of a tile."""
_STRIPS = 4
_TOGETHER = 8
"""Values that one asynchronous copy brings."""


@dataclass(frozen=True)
class Bitmaps:
    """A matrix as `spinfer.cu` reads it; see its header."""

    offsets: NDArray[np.int32]
    """(tiles + 1,) where each tile's values start, in eights."""
    strips: NDArray[np.int32]
    """(tiles, 4) values of the tile before each of its strips of 16 rows."""
    maps: NDArray[np.uint64]
    """(tiles, 64)"""
    values: NDArray[np.uint16]
    """(eights, 8)"""

    @property
    def most_values(self) -> int:
        """Of a tile, in whole eights."""
        return _TOGETHER * int(np.diff(self.offsets).max(initial=0))


def pack(matrix: CSR) -> Bitmaps:
    """Packs a matrix of fp16 values whose sizes are multiples of 64; entries of 0.0 and -0.0 count as absent.

    Raises `Unsupported` where there are too many values for 32-bit offsets.
    """
    tiles = matrix.k // TILE
    maps = np.empty((matrix.m // TILE, tiles, TILE), dtype=np.uint64)
    strips = np.empty((matrix.m // TILE, tiles, _STRIPS), dtype=np.int32)
    values, eights = [np.zeros(0, dtype=np.uint16)], [np.zeros(1, dtype=np.int64)]
    for at in range(matrix.m // TILE):
        ordered = _in_order(matrix, at * TILE)
        there = ordered != 0
        maps[at] = np.packbits(there, axis=-1, bitorder="little").view("<u8")[..., 0]
        of_strip = there.reshape(tiles, _STRIPS, -1).sum(axis=2, dtype=np.int32)
        strips[at] = np.cumsum(of_strip, axis=1) - of_strip
        count = of_strip.sum(axis=1)
        needed = -(-count // _TOGETHER)
        filled = np.zeros(_TOGETHER * int(needed.sum()), dtype=np.uint16)
        shift = _TOGETHER * (np.cumsum(needed) - needed) - (np.cumsum(count) - count)
        filled[np.arange(count.sum()) + np.repeat(shift, count)] = ordered[there]
        values.append(filled)
        eights.append(needed)
    offsets = np.cumsum(np.concatenate(eights))
    if _TOGETHER * offsets[-1] >= 1 << 31:
        raise Unsupported(f"{_TOGETHER * offsets[-1]} values are too many for 32-bit offsets")
    return Bitmaps(
        offsets.astype(np.int32),
        strips.reshape(-1, _STRIPS),
        maps.reshape(-1, TILE),
        np.concatenate(values).reshape(-1, _TOGETHER),
    )


def _in_order(matrix: CSR, first: int) -> NDArray[np.uint16]:
    """Rows `first` to `first + 63` with all their zeros, (tiles, maps, bits)."""
    held = slice(matrix.offsets[first], matrix.offsets[first + TILE])
    dense = np.zeros((TILE, matrix.k), dtype=np.uint16)
    row = np.repeat(np.arange(TILE), matrix.row_lengths[first : first + TILE])
    dense[row, matrix.indices[held]] = np.ascontiguousarray(matrix.values[held]).view(np.uint16)
    dense[dense == 0x8000] = 0
    # strip, bottom, row of 8; tile, group of 16, right, column of 8
    parts = dense.reshape(_STRIPS, 2, 8, -1, 4, 2, 8).transpose(3, 0, 4, 5, 1, 2, 6)
    return parts.reshape(-1, TILE, 64)
