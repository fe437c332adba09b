"""Kernel `flash_llm`: Flash-LLM's SpMM (VLDB 2024), which loads A sparse and computes as with a dense tile.

Its format, Tiled-CSL: tiles of 128x64, each nonzero a 32-bit word of its value and its place in the tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.tensor.split_k import TILE_K, block_columns, plans, samples
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Array, Int32s, Int64s, Plan, Uint32s, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

TILE_ROWS = 128
TILE_COLUMNS = 64
MOST_WORDS = 4096
"""Of a tile: what 128 threads hold in 32 registers each."""
_BANKS = 32
_SLOTS = TILE_ROWS * TILE_COLUMNS // _BANKS
"""Elements of a tile in each bank of shared memory."""
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
    parts, counts = [np.zeros(0, dtype=np.uint32)], [np.zeros(1, dtype=np.int64)]
    for first in range(0, matrix.m, TILE_ROWS):
        words, units = _row_of_tiles(matrix, first)
        parts.append(words)
        counts.append(units)
    offsets = np.cumsum(np.concatenate([*counts, [0]]))
    if offsets[-1] >= 1 << 31:
        raise Unsupported(f"{offsets[-1]} groups of four words are too many for 32-bit offsets")
    return {"offsets": offsets.astype(np.int32), "words": np.concatenate(parts).reshape(-1, _GROUP)}


def _row_of_tiles(matrix: CSR, first: int) -> tuple[_WORDS, Int64s]:
    """The words of the tiles of rows `first` to `first + 127`, and how many groups of four each tile has."""
    tiles = matrix.k // TILE_COLUMNS
    held = slice(matrix.offsets[first], matrix.offsets[first + TILE_ROWS])
    values = np.ascontiguousarray(matrix.values[held]).view(np.uint16)
    there = (values & 0x7FFF) != 0
    row = np.repeat(np.arange(TILE_ROWS, dtype=np.int32), matrix.row_lengths[first : first + TILE_ROWS])[there]
    column, values = matrix.indices[held][there], values[there]
    place = row * TILE_COLUMNS + (column % TILE_COLUMNS ^ 8 * (row % 8))
    # of each nonzero the bank that holds its place, counted over all tiles; rows and then columns ascend in each
    bank = (column // TILE_COLUMNS * _BANKS + place % TILE_COLUMNS // 2).astype(_smallest(tiles * _BANKS))
    count = np.bincount(bank, minlength=tiles * _BANKS)
    used = count.reshape(tiles, _BANKS).sum(axis=1)
    if used.max(initial=0) > MOST_WORDS:
        raise Unsupported(
            f"a tile of {TILE_ROWS}x{TILE_COLUMNS} has {used.max()} nonzeros, and the registers of a block hold "
            f"{MOST_WORDS}: at least half of each tile must be zeros"
        )
    order = np.argsort(bank, kind="stable")
    rank = np.empty(bank.size, dtype=np.int32)
    rank[order] = np.arange(bank.size, dtype=np.int32) - np.repeat((np.cumsum(count) - count).astype(np.int32), count)

    words = values | place.astype(np.uint32) << 16
    full = np.zeros((tiles * _BANKS, _SLOTS), dtype=bool)
    full[bank, row * 2 + place % 2] = True
    for nth in range(_GROUP - 1):
        short = np.flatnonzero(-used % _GROUP > nth)
        of_tile = short * _BANKS + count.reshape(tiles, _BANKS)[short].argmin(axis=1)
        slot = full[of_tile].argmin(axis=1)
        words = np.append(words, (slot // 2 * TILE_COLUMNS + of_tile % _BANKS * 2 + slot % 2).astype(np.uint32) << 16)
        bank, rank = np.append(bank, of_tile.astype(bank.dtype)), np.append(rank, count[of_tile].astype(np.int32))
        full[of_tile, slot] = True
        count[of_tile] += 1

    units = -(-used // _GROUP)
    tile = bank // _BANKS
    dealt = _dealt(count.reshape(tiles, _BANKS))
    when = dealt.ravel()[(tile * np.int32(dealt.shape[1]) + rank) * _BANKS + bank % _BANKS]
    out = np.empty(_GROUP * int(units.sum()), dtype=np.uint32)
    begin = (_GROUP * (np.cumsum(units) - units)).astype(np.int32)
    out[begin[tile] + _stored(when, units.astype(np.int32)[tile])] = words
    return out, units


def _smallest(count: int) -> type[np.unsignedinteger[Any]]:
    """A type for numbers below `count`; NumPy sorts those of 16 bits by their digits."""
    return np.uint16 if count <= 1 << 16 else np.uint32


def _dealt(count: Int64s) -> Int32s:
    """When each bank's words are dealt: (tiles, ranks, banks), of each tile's counts per bank.

    Words come from the end of a bank's list, always from the longest list, of several from the lowest bank: so all
    words of one rank come one after another, the highest rank first.
    """
    highest = int(count.max(initial=0))
    left = count[:, None, :] > np.arange(highest - 1, -1, -1)[None, :, None]
    before = np.cumsum(left.reshape(len(count), -1), axis=1, dtype=np.int32).reshape(left.shape) - left
    return np.ascontiguousarray(before[:, ::-1])


def _stored(dealt: Int32s, units: Int32s) -> Int32s:
    """Where in its tile the word lies that is dealt at that time, of tiles of so many groups of four.

    The lanes of the last load, of fewer than 32, are dealt to first, then all 32; a lane stores what came last first.
    """
    loads, rest = units // _BANKS, units % _BANKS
    later = dealt - _GROUP * rest
    nth = _GROUP * loads - 1 - later // _BANKS
    place: Int32s = nth // _GROUP * (_BANKS * _GROUP) + later % _BANKS * _GROUP + nth % _GROUP
    early = np.flatnonzero(later < 0)
    turn, lane = np.divmod(dealt[early], rest[early])
    place[early] = loads[early] * (_BANKS * _GROUP) + lane * _GROUP + _GROUP - 1 - turn
    return place


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
