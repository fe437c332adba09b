"""A sparse matrix as `tensor_spmm.cu` reads it: strips of 32 rows, in chunks, each lane's pairs in a queue of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import CSR

STRIP_ROWS = 32
STEP_COLUMNS = 16
_LANES = 32
_MAP_BITS = 32
_BLOCK_PAIRS = 1 << 24
"""Pairs that are packed at a time: 64 MB of them, empty ones included."""


@dataclass(frozen=True)
class Strips:
    """A matrix packed for one chunk size; see the header of `tensor_spmm.cu`."""

    offsets: NDArray[np.int32]
    """(strips * chunks + 1,) where each chunk starts in `stream`, and where the last one ends."""
    stream: NDArray[np.uint32]
    """(units, 4): each chunk's bits of the pairs that are not empty, where each lane's pairs start, the pairs."""
    strips: int
    chunks: int
    """Per strip."""
    slot_bytes: int
    """Of the largest chunk."""


def chunk_columns(map_words: int) -> int:
    """Columns of a chunk in which each lane has `map_words` words of bits."""
    return 4 * STEP_COLUMNS * map_words


def pack(matrix: CSR, map_words: int) -> Strips:
    """Packs a matrix of 16-bit values, whatever they mean; entries of 0.0 and -0.0 count as absent.

    Raises `ValueError` where the packed matrix has 2^31 or more units of 16 bytes.
    """
    values = matrix.values.view(np.uint16)
    columns_per_chunk = chunk_columns(map_words)
    strips, chunks = -(-matrix.m // STRIP_ROWS), max(1, -(-matrix.k // columns_per_chunk))
    pairs_per_chunk = _LANES * _MAP_BITS * map_words
    per_block = max(1, _BLOCK_PAIRS // (chunks * pairs_per_chunk))
    parts, sizes = [], []
    for first in range(0, strips, per_block):
        count = min(per_block, strips - first)
        rows = slice(first * STRIP_ROWS, min((first + count) * STRIP_ROWS, matrix.m))
        held = slice(matrix.offsets[rows.start], matrix.offsets[rows.stop])
        row = np.repeat(np.arange(rows.stop - rows.start), matrix.row_lengths[rows])
        halves = np.zeros(count * chunks * pairs_per_chunk * 2, dtype=np.uint16)
        halves[_places(row, matrix.indices[held], chunks, map_words)] = values[held]
        halves[halves == 0x8000] = 0
        part, size = _pack_chunks(halves.view(np.uint32).reshape(count * chunks, _LANES, -1))
        parts.append(part)
        sizes.append(size)
    size = np.concatenate([np.zeros(0, dtype=np.int64), *sizes])
    offsets = np.concatenate([[0], np.cumsum(size)])
    if offsets[-1] >= 1 << 31:
        raise ValueError(f"a packed matrix of {offsets[-1]} units of 16 bytes is too large for 32-bit offsets")
    stream = np.concatenate([np.zeros((0, 4), dtype=np.uint32), *parts])
    return Strips(offsets.astype(np.int32), stream, strips, chunks, 16 * int(size.max(initial=1)))


def _places(row: NDArray[np.int64], column: NDArray[np.int32], chunks: int, map_words: int) -> NDArray[np.int64]:
    """Which half of all lanes' registers, chunk by chunk, holds the element at (`row`, `column`)."""
    strip, row_in_strip = row // STRIP_ROWS, row % STRIP_ROWS
    chunk, rest = np.divmod(column.astype(np.int64), chunk_columns(map_words))
    step, in_step = rest // STEP_COLUMNS, rest % STEP_COLUMNS
    lane = row_in_strip % 8 * 4 + in_step % 8 // 2
    register = step * 8 + row_in_strip // 16 * 4 + in_step // 8 * 2 + row_in_strip // 8 % 2
    place = ((strip * chunks + chunk) * _LANES + lane) * (_MAP_BITS * map_words) + register
    return place * 2 + in_step % 2


def _pack_chunks(pairs: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Packs the (chunks, lanes, registers) `pairs`: the units of all chunks, (units, 4), and how many each has."""
    chunks, lanes, registers = pairs.shape
    there = pairs != 0
    held = there.sum(axis=2)  # by each lane
    maps = np.packbits(there, axis=2, bitorder="little").view("<u4").reshape(chunks, -1)
    head = maps.shape[1] + lanes // 2  # words
    before = np.cumsum(held, axis=1) - held
    of_chunk = held.sum(axis=1)
    size = -(-(head + of_chunk) // 4)
    first = 4 * (np.cumsum(size) - size)  # word of each chunk
    words = np.zeros(4 * int(size.sum()), dtype="<u4")
    words[first[:, None] + np.arange(maps.shape[1])] = maps
    starts = (4 * (head + before)).astype("<u2").view("<u4")
    words[first[:, None] + maps.shape[1] + np.arange(lanes // 2)] = starts
    skipped = first + head - (np.cumsum(of_chunk) - of_chunk)
    words[np.repeat(skipped, of_chunk) + np.arange(int(of_chunk.sum()))] = pairs[there]
    return words.reshape(-1, 4), size
