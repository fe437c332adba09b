"""A sparse matrix of fp32 values as `tensor_spmm.cu` reads it under TF32: strips of 32 rows, an element a register."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.plan import Int64s, Uint32s
from nnzbench.data.matrices.formats import CSR
from nnzbench.kernels.tensor.strips import STRIP_ROWS, Strips, assembled

STEP_COLUMNS = 8
_LANES = 32
_WORD_STEPS = 4
"""Steps whose registers have their bits in one word of a lane."""
_LOWER = 13
"""Bits of fp32 that TF32 does not have."""
_BLOCK_ELEMENTS = 1 << 24
"""Elements, zeros included, that are packed at a time."""


def chunk_columns(map_words: int) -> int:
    """Columns of a chunk in which each lane has `map_words` words of bits."""
    return _WORD_STEPS * STEP_COLUMNS * map_words


def rounded(values: NDArray[Any]) -> Uint32s:
    """fp32 numbers rounded to TF32, ties away from zero; those that would become infinite are cut off instead."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    exponent = np.uint32(0x7F800000)
    up = bits + np.uint32(1 << (_LOWER - 1))
    return np.where((up & exponent) == exponent, bits, up) & np.uint32(0x100000000 - (1 << _LOWER))


def pack(matrix: CSR, map_words: int, panel_columns: int) -> Strips:
    """Packs a matrix of fp32 values; what is 0 in TF32 counts as absent. A panel is a whole number of chunks.

    Raises `ValueError` where the packed matrix has 2^31 or more units of 16 bytes.
    """
    strips, panels = -(-matrix.m // STRIP_ROWS), max(1, -(-matrix.k // panel_columns))
    columns = chunk_columns(map_words)
    chunks = -(-matrix.k // columns)  # of a strip
    at_once = max(1, _BLOCK_ELEMENTS // max(1, STRIP_ROWS * chunks * columns))
    parts = [
        _chunks(_registers(matrix, first, min(at_once, strips - first), chunks, columns), map_words)
        for first in range(0, strips, at_once)
    ]
    before = np.minimum(np.arange(panels) * (panel_columns // columns), chunks)
    panel_chunks = (np.arange(strips)[:, None] * chunks + before).ravel()
    return assembled(parts, np.append(panel_chunks, strips * chunks), strips, panels)


def _registers(matrix: CSR, first: int, count: int, chunks: int, columns: int) -> Uint32s:
    """Strips `first` to `first + count - 1`: (chunks, lanes, registers in the order of their bits)."""
    begin, end = min(first * STRIP_ROWS, matrix.m), min((first + count) * STRIP_ROWS, matrix.m)
    held = slice(matrix.offsets[begin], matrix.offsets[end])
    row = np.repeat(np.arange(end - begin), matrix.row_lengths[begin:end])
    dense = np.zeros((count * STRIP_ROWS, chunks * columns), dtype=np.uint32)
    dense[row, matrix.indices[held]] = rounded(matrix.values[held])
    dense[dense == 1 << 31] = 0
    # strip, tile i, half h, row g; chunk, step, t, q: register 4 i + 2 q + h of lane 4 g + t
    split = dense.reshape(count, 2, 2, 8, chunks, columns // STEP_COLUMNS, 4, 2)
    return split.transpose(0, 4, 3, 6, 5, 1, 7, 2).reshape(count * chunks, _LANES, -1)


def _chunks(registers: Uint32s, map_words: int) -> tuple[Uint32s, Int64s]:
    """The units of all chunks, (units, 4), and how many each has."""
    there = registers != 0
    words = np.packbits(there, axis=2, bitorder="little").view("<u4").reshape(-1, _LANES, map_words)
    bits = words.swapaxes(1, 2).reshape(-1, _LANES * map_words)
    of_lane = there.sum(axis=2)
    count = of_lane.sum(axis=1)
    head = _LANES * map_words + _LANES // 2
    size = -(-(head + count) // 4)
    at = 4 * (np.cumsum(size) - size)
    out = np.zeros(4 * int(size.sum()), dtype=np.uint32)
    starts = 4 * (head + np.cumsum(of_lane, axis=1) - of_lane)
    heads = np.concatenate([bits, starts.astype("<u2").view("<u4")], axis=1)
    out[at[:, None] + np.arange(head)] = heads
    shift = at + head - (np.cumsum(count) - count)
    out[np.arange(count.sum()) + np.repeat(shift, count)] = registers[there]
    return out.reshape(-1, 4), size
