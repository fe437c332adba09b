"""Kernel `flash_llm`: Flash-LLM's SpMM (VLDB 2024), which loads A sparse and computes as with a dense tile.

Its format, Tiled-CSL: tiles of 128x64, each nonzero a 32-bit word of its value and its place in the tile.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from nnzbench.core.plan import Array, Int64s, Plan, Uint32s, Unsupported
from nnzbench.data.matrices.formats import CSR, prefix_sums, ranks
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.tensor.split_k import TILE_K, block_columns, plans, samples

TILE_ROWS = 128
TILE_COLUMNS = 64
MOST_WORDS = 4096
"""Of a tile: what 128 threads hold in 32 registers each."""
_BANKS = 32
_TILE = TILE_ROWS * TILE_COLUMNS
_SLOTS = _TILE // _BANKS
"""Elements of a tile in each bank of shared memory."""
_PLACES = np.arange(_TILE, dtype=np.uint32).reshape(TILE_ROWS, _BANKS, 2).swapaxes(0, 1).ravel() << np.uint32(16)
"""Of a tile's elements by bank, the upper halves of their words."""
_GROUP = 4
"""Words that one load brings to a lane."""
_WORDS = Uint32s


def pack(matrix: CSR) -> dict[str, Array]:
    """Packs a matrix of fp16 values whose sizes are multiples of a tile's; entries of 0.0 and -0.0 count as absent.

    `offsets` (tiles + 2,) tell where each tile's `words` (units, 4) start; the last tile is an empty one.

    The words of a tile are dealt to lanes as the paper's code does it: each of a bank's words in turn to the next lane,
    from the bank with the most words left. Tiles are filled up to whole groups of four with zeros at empty places.
    Raises `Unsupported` where a tile has more than `MOST_WORDS` nonzeros.
    """
    made = [_row_of_tiles(matrix, first) for first in range(0, matrix.m, TILE_ROWS)]
    words, units = (np.concatenate(of_rows) for of_rows in zip(*made, strict=True))
    offsets = prefix_sums(np.append(units, 0))
    if offsets[-1] >= 1 << 31:
        raise Unsupported(f"{offsets[-1]} groups of four words are too many for 32-bit offsets")
    return {"offsets": offsets.astype(np.int32), "words": words.reshape(-1, _GROUP)}


def _row_of_tiles(matrix: CSR, first: int) -> tuple[_WORDS, Int64s]:
    """The words of the tiles of rows `first` to `first + 127`, and how many groups of four each tile has."""
    tiles = matrix.k // TILE_COLUMNS
    held = slice(matrix.offsets[first], matrix.offsets[first + TILE_ROWS])
    row = np.repeat(np.arange(TILE_ROWS), matrix.row_lengths[first : first + TILE_ROWS])
    column = matrix.indices[held] ^ (row & 7) << 3
    # by bank, counted over all tiles, and in each of them by row and then column
    elements = np.zeros(tiles * _TILE, dtype=np.uint16)
    odd = column & 1
    elements[(column - odd) * (_SLOTS // 2) + 2 * row + odd] = np.ascontiguousarray(matrix.values[held]).view(np.uint16)
    elements[elements == 0x8000] = 0
    full = (elements != 0).reshape(-1, _SLOTS)
    count = np.count_nonzero(full, axis=1)
    used = count.reshape(tiles, _BANKS).sum(axis=1)
    if used.max(initial=0) > MOST_WORDS:
        raise Unsupported(
            f"a tile of {TILE_ROWS}x{TILE_COLUMNS} has {used.max()} nonzeros, and the registers of a block hold "
            f"{MOST_WORDS}: at least half of each tile must be zeros"
        )
    places = [np.flatnonzero(full)]
    turns = [ranks(count)]
    for nth in range(_GROUP - 1):
        short = np.flatnonzero(-used % _GROUP > nth)
        bank = short * _BANKS + count.reshape(tiles, _BANKS)[short].argmin(axis=1)
        slot = full[bank].argmin(axis=1)
        places.append(bank * _SLOTS + slot)
        turns.append(count[bank])
        full[bank, slot] = True
        count[bank] += 1

    # Words come from the end of a bank's list, always from the longest list, of several from the lowest bank: so all
    # words of one rank come one after another, the highest rank first.
    place, highest = np.concatenate(places), int(count.max(initial=0))
    dealt = np.empty((tiles, highest, _BANKS), dtype=np.uint32)
    in_tile = place & _TILE - 1
    at = (place // _TILE + 1) * highest - 1 - np.concatenate(turns)
    dealt.ravel()[at * _BANKS + in_tile // _SLOTS] = elements[place] | _PLACES[in_tile]
    there = count.reshape(tiles, 1, _BANKS) > np.arange(highest)[::-1, None]
    units = -(-used // _GROUP)
    begin = np.repeat(_GROUP * (np.cumsum(units) - units), _GROUP * units)
    out = np.empty(begin.size, dtype=np.uint32)
    out[begin + np.concatenate([_stored(one) for one in units.tolist()])] = dealt.ravel()[np.flatnonzero(there)]
    return out, units


@functools.lru_cache(MOST_WORDS // _GROUP + 1)
def _stored(units: int) -> Int64s:
    """Where in a tile of so many groups of four each word lies, in the order in which they are dealt.

    The lanes of the last load, of fewer than 32, are dealt to first, then all 32; a lane stores what came last first.
    """
    loads, rest = divmod(units, _BANKS)
    early, later = np.arange(_GROUP * rest), np.arange(_GROUP * _BANKS * loads)
    turn, lane = np.divmod(early, max(1, rest))
    last = loads * (_BANKS * _GROUP) + lane * _GROUP + _GROUP - 1 - turn
    nth = _GROUP * loads - 1 - later // _BANKS
    return np.append(last, nth // _GROUP * (_BANKS * _GROUP) + later % _BANKS * _GROUP + nth % _GROUP)


_RESIDENT = 2
"""Blocks of a multiprocessor, by their registers and shared memory."""


def block_rows(columns: int) -> int:
    """Rows of a block of that many columns."""
    return 2 * TILE_ROWS if columns <= 32 else TILE_ROWS


def shared_bytes(columns: int) -> int:
    """Two stages of tiles of A and B, and later the block's sums in fp32."""
    rows = block_rows(columns)
    return max(2 * (rows + max(columns, 16)) * TILE_K * 2, columns * (rows + 4) * 4)


def structure_bytes(problem: Problem, nnz: int) -> int:
    """Two bytes a nonzero for its place, four a tile for where it starts."""
    return 2 * nnz + 4 * (problem.m // TILE_ROWS * (problem.k // TILE_COLUMNS) + 2)


@kernel(
    "Xia et al.: Flash-LLM, VLDB 2024",
    "spmm",
    "f16",
    About(
        "paper",
        label="Flash-LLM",
        rank=130,
        structure_bytes=structure_bytes,
        samples=samples((256, 128, 8), (256, 128, 16), (256, 128, 32), (128, 128, 64), (128, 128, 128)),
    ),
)
def flash_llm(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Flash-LLM's kernel for 8, 16, 32, 64 and multiples of 128 columns, K in 1 to 9 parts.

    Raises `Unsupported` for sizes that are no multiples of its tiles, and for tiles with more than half nonzeros, for
    which the published code returns wrong results.
    """
    columns = block_columns(problem, arch)
    rows = block_rows(columns)
    if problem.m % rows:
        raise Unsupported(f"{problem.m} rows of A are no multiple of {rows}, a block's with {columns} columns")
    block = rows, columns, _RESIDENT
    yield from plans("flash_llm", problem, operands, arch, block, pack, lambda packed: shared_bytes(columns))
