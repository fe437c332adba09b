"""Kernel `spinfer`: SpInfer's SpMM (EuroSys 2025), whose lanes expand bitmaps straight into tensor cores' fragments.

Its format, TCA-BME: a bit per element in the order in which tensor cores use them, and all nonzeros.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.architectures import block_shared_bytes
from nnzbench.core.plan import Array, Plan, Unsupported
from nnzbench.data.matrices.formats import CSR, prefix_sums
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.tensor.split_k import TILE_K, block_columns, plans, samples

TILE = 64
"""Rows and columns of a tile."""
_STRIPS = 4
_TOGETHER = 8
"""Values that one asynchronous copy brings."""


def pack(matrix: CSR) -> dict[str, Array]:
    """Packs a matrix of fp16 values whose sizes are multiples of 64; entries of 0.0 and -0.0 count as absent.

    Of the `values` (eights, 8), `offsets` (tiles + 1,) tell where each tile's start, in eights, and `strips` (tiles, 4)
    how many stand before each of its strips of 16 rows; `maps` are (tiles, 64).

    Raises `Unsupported` where there are too many values for 32-bit offsets.
    """
    tiles = matrix.k // TILE
    maps = np.empty((matrix.m // TILE, tiles, TILE), dtype=np.uint64)
    strips = np.empty((matrix.m // TILE, tiles, _STRIPS), dtype=np.int32)
    values, eights = [], []
    for at in range(matrix.m // TILE):
        ordered = _in_order(matrix, at * TILE)
        there = ordered != 0
        maps[at] = np.packbits(there, axis=-1, bitorder="little").view("<u8")[..., 0]
        of_strip = np.count_nonzero(there.reshape(tiles, _STRIPS, -1), axis=2)
        strips[at] = np.cumsum(of_strip, axis=1) - of_strip
        count = of_strip.sum(axis=1)
        needed = -(-count // _TOGETHER)
        filled = np.zeros(_TOGETHER * int(needed.sum()), dtype=np.uint16)
        shift = _TOGETHER * (np.cumsum(needed) - needed) - (np.cumsum(count) - count)
        filled[np.arange(count.sum()) + np.repeat(shift, count)] = ordered.ravel()[np.flatnonzero(there)]
        values.append(filled)
        eights.append(needed)
    offsets = prefix_sums(np.concatenate(eights))
    if _TOGETHER * offsets[-1] >= 1 << 31:
        raise Unsupported(f"{_TOGETHER * offsets[-1]} values are too many for 32-bit offsets")
    held = np.concatenate(values).reshape(-1, _TOGETHER)
    by_tile: dict[str, Array] = {"strips": strips.reshape(-1, _STRIPS), "maps": maps.reshape(-1, TILE)}
    return {"offsets": offsets.astype(np.int32), **by_tile, "values": held}


def most_values(offsets: Array) -> int:
    """Values of the fullest tile, in whole eights."""
    return _TOGETHER * int(np.diff(offsets).max(initial=0))


def _in_order(matrix: CSR, first: int) -> NDArray[np.uint16]:
    """Rows `first` to `first + 63` with all their zeros, (tiles, maps, bits)."""
    dense = matrix.band(first, first + TILE).to_dense().view(np.uint16)
    dense[dense == 0x8000] = 0
    # strip, bottom, row of 8; tile, group of 16, right, column of 8
    parts = dense.reshape(_STRIPS, 2, 8, -1, 4, 2, 8).transpose(3, 0, 4, 5, 1, 2, 6)
    return parts.reshape(-1, TILE, 64)


_MOST_COLUMNS = 64
_VALUES_TOGETHER = 64
"""Room for a tile's values comes in whole rows of B's tile."""


def value_bytes(most: int) -> int:
    """Room for the values of the fullest tile."""
    return -(-most // _VALUES_TOGETHER) * _VALUES_TOGETHER * 2


def shared_bytes(columns: int, most: int) -> int:
    """Bitmaps and values of a tile of A, two stages of B, and later the block's sums in fp32."""
    return max(8 * TILE + value_bytes(most) + 2 * max(columns, 16) * TILE_K * 2, columns * (TILE + 4) * 4)


def structure_bytes(problem: Problem, nnz: int) -> int:
    """A bit an element, and 20 bytes a tile for where it and its strips start."""
    return problem.m * problem.k // 8 + 20 * (problem.m // TILE) * (problem.k // TILE)


def _resident(columns: int, arch: str) -> int:
    """Blocks that a multiprocessor holds at half zeros, by their shared memory, and at most 4 by their registers."""
    return max(1, min(4, block_shared_bytes(arch) // shared_bytes(columns, TILE * TILE // 2)))


@kernel(
    "Fan et al.: SpInfer, EuroSys 2025",
    "spmm",
    "f16",
    About(
        "paper",
        label="SpInfer",
        rank=132,
        structure_bytes=structure_bytes,
        samples=samples((64, 128, 8), (64, 128, 16), (64, 128, 32), (64, 128, 64)),
    ),
)
def spinfer(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """SpInfer's kernel for 8, 16, 32, 64 and multiples of 128 columns, K in 1 to 9 parts.

    Raises `Unsupported` for sizes that are no multiples of its tiles.
    """
    columns = min(block_columns(problem, arch), _MOST_COLUMNS)
    if problem.m % TILE:
        raise Unsupported(f"{problem.m} rows of A are no multiple of {TILE}")
    yield from plans(
        "spinfer",
        problem,
        operands,
        arch,
        (TILE, columns, _resident(columns, arch)),
        pack,
        lambda packed: shared_bytes(columns, most_values(packed["offsets"])),
        lambda packed: (value_bytes(most_values(packed["offsets"])),),
    )
