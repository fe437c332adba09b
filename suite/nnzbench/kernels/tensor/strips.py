"""A sparse matrix as `tensor_spmm.cu` reads it: strips of 32 rows in 2:4 form, and gathered what that leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import CSR

STRIP_ROWS = 32
STEP_COLUMNS = 32
_LANES = 32
_BLOCK_ELEMENTS = 1 << 25
"""Elements, zeros included, that are packed at a time."""
_HALVES = NDArray[np.uint16]


@dataclass(frozen=True)
class Strips:
    """A matrix packed for one size of chunks and panels; see the header of `tensor_spmm.cu`."""

    panel_chunks: NDArray[np.int32]
    """(strips * panels + 1,) the first chunk of each panel of each strip, and how many chunks there are."""
    offsets: NDArray[np.int32]
    """(chunks + 1,) where each chunk starts in `stream`, and where the last one ends."""
    stream: NDArray[np.uint32]
    """(units, 4) the chunks, one after another."""
    strips: int
    panels: int
    slot_bytes: int
    """Of the largest chunk."""
    steps: int
    """16x32 tiles of A that are multiplied, in pairs."""


@dataclass(frozen=True)
class _Steps:
    """Steps of 32 columns of a strip, expanded to the registers of a warp's lanes."""

    words: NDArray[np.uint32]
    """(steps, lanes, 8)"""
    selected: NDArray[np.uint32]
    """(steps, lanes)"""
    columns: _HALVES
    """(steps, 32) of the panel, only of gathered steps."""
    panel: NDArray[np.int64]
    """(steps,) counted over all strips."""


def _two_of_four() -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    """By the pattern of a group of four: the places of the two that are multiplied, ascending, and what is left."""
    first, second, left = np.zeros((3, 16), dtype=np.uint8)
    for pattern in range(16):
        places = [place for place in range(4) if pattern >> place & 1]
        kept = places[:2] if len(places) >= 2 else sorted({*places, 0 if places == [3] else 3})
        first[pattern], second[pattern] = kept if len(kept) == 2 else (0, 3)
        left[pattern] = sum(1 << place for place in places[2:])
    return first, second, left


_FIRST, _SECOND, _LEFT = _two_of_four()


def chunk_columns(map_words: int) -> int:
    """Columns of a chunk in which each lane has `map_words` words of bits."""
    return 4 * STEP_COLUMNS * map_words


def pack(matrix: CSR, map_words: int, panel_columns: int, multiple: int = 1) -> Strips:
    """Packs a matrix of 16-bit values, whatever they mean; entries of 0.0 and -0.0 count as absent.

    A panel is a whole number of chunks; there will be a multiple of `multiple` strips, the last ones empty. Raises
    `ValueError` where the packed matrix has 2^31 or more units of 16 bytes.
    """
    strips, panels = -(-matrix.m // (STRIP_ROWS * multiple)) * multiple, max(1, -(-matrix.k // panel_columns))
    chunk_steps = chunk_columns(map_words) // STEP_COLUMNS
    steps = max(1, -(-matrix.k // (STEP_COLUMNS * chunk_steps))) * chunk_steps  # of a strip, before gathered ones
    per_block = max(1, _BLOCK_ELEMENTS // (STRIP_ROWS * STEP_COLUMNS * steps))
    parts, sizes, counts, total = [], [], [], 0
    for first in range(0, strips, per_block):
        count = min(per_block, strips - first)
        dense = _dense(matrix, first, count, steps)
        made = [_plain_steps(dense, steps, panels, panel_columns)]
        made += _gathered_steps(*made[0][1], panel_columns)
        held = _joined([part for part, _ in made])
        total += held.panel.size
        part, size, of_panel = _chunks(held, made[0][0].panel.size, chunk_steps, count * panels)
        parts.append(part)
        sizes.append(size)
        counts.append(of_panel)
    size = np.concatenate([np.zeros(0, dtype=np.int64), *sizes])
    offsets = np.concatenate([[0], np.cumsum(size)])
    if offsets[-1] >= 1 << 31:
        raise ValueError(f"a packed matrix of {offsets[-1]} units of 16 bytes is too large for 32-bit offsets")
    return Strips(
        panel_chunks=np.concatenate([[0], np.cumsum(np.concatenate([np.zeros(0, np.int64), *counts]))]).astype(
            np.int32
        ),
        offsets=offsets.astype(np.int32),
        stream=np.concatenate([np.zeros((0, 4), dtype=np.uint32), *parts]),
        strips=strips,
        panels=panels,
        slot_bytes=16 * int(size.max(initial=1)),
        steps=total,
    )


def _dense(matrix: CSR, first: int, count: int, steps: int) -> _HALVES:
    """Strips `first` to `first + count` with all their zeros: (count, 32, columns)."""
    begin, end = min(first * STRIP_ROWS, matrix.m), min((first + count) * STRIP_ROWS, matrix.m)
    held = slice(matrix.offsets[begin], matrix.offsets[end])
    rows = np.repeat(np.arange(end - begin), matrix.row_lengths[begin:end])
    dense = np.zeros((count * STRIP_ROWS, steps * STEP_COLUMNS), dtype=np.uint16)
    dense[rows, matrix.indices[held]] = matrix.values[held].view(np.uint16)
    dense[dense == 0x8000] = 0
    return dense.reshape(count, STRIP_ROWS, -1)


_Left = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], _HALVES]
"""Entries left over: panel (of all strips), row of the strip, column of the panel, value."""


def _plain_steps(dense: _HALVES, steps: int, panels: int, panel_columns: int) -> tuple[_Steps, _Left]:
    """All columns as they come."""
    count = len(dense)
    tiles = dense.reshape(count, STRIP_ROWS, steps, STEP_COLUMNS).swapaxes(1, 2).reshape(-1, STRIP_ROWS, STEP_COLUMNS)
    panel_of_step = np.arange(steps) * STEP_COLUMNS // panel_columns
    panel = (np.arange(count)[:, None] * panels + panel_of_step).ravel()
    words, selected, left = _expand(tiles)
    step, row, column = np.nonzero(left)
    in_panel = step % steps * STEP_COLUMNS % panel_columns + column
    made = _Steps(words, selected, np.zeros((panel.size, STEP_COLUMNS), dtype=np.uint16), panel)
    return made, (panel[step], row, in_panel, tiles[step, row, column])


def _gathered_steps(
    panel: NDArray[np.int64],
    row: NDArray[np.int64],
    column: NDArray[np.int64],
    value: _HALVES,
    panel_columns: int,
) -> Iterator[tuple[_Steps, _Left]]:
    """Rounds of steps that hold any 32 columns of a panel, until nothing is left over."""
    while panel.size:
        keys, slot = np.unique(panel * panel_columns + column, return_inverse=True)
        of_key = keys // panel_columns  # the panel
        used, first, held = np.unique(of_key, return_index=True, return_counts=True)
        needed = -(-held // STEP_COLUMNS)
        start = STEP_COLUMNS * (np.cumsum(needed) - needed)
        place = np.arange(keys.size) + np.repeat(start - first, held)  # of each key among the slots of all steps
        tiles = np.zeros((int(needed.sum()), STRIP_ROWS, STEP_COLUMNS), dtype=np.uint16)
        tiles[place[slot] // STEP_COLUMNS, row, place[slot] % STEP_COLUMNS] = value
        columns = np.zeros((len(tiles), STEP_COLUMNS), dtype=np.uint16)
        columns.ravel()[place] = keys % panel_columns
        words, selected, left = _expand(tiles)
        of_step = np.repeat(used, needed)
        step, row, at = np.nonzero(left)
        panel, column, value = of_step[step], columns[step, at].astype(np.int64), tiles[step, row, at]
        yield _Steps(words, selected, columns, of_step), (panel, row, column, value)


def _expand(tiles: _HALVES) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.bool_]]:
    """The registers and selections of (steps, 32, 32) tiles, and which entries they do not hold."""
    steps = len(tiles)
    groups = tiles.reshape(steps, STRIP_ROWS, 8, 4)
    there = groups != 0
    pattern = np.packbits(there, axis=3, bitorder="little")[..., 0]
    first, second = _FIRST[pattern], _SECOND[pattern]
    low = np.take_along_axis(groups, first[..., None], axis=3)[..., 0].astype(np.uint32)
    high = np.take_along_axis(groups, second[..., None], axis=3)[..., 0].astype(np.uint32)
    # rows 16 i + 8 h + g, groups 4 q + t: register 4 i + 2 q + h of lane 4 g + t
    words = (low | high << 16).reshape(steps, 2, 2, 8, 2, 4).transpose(0, 3, 5, 1, 4, 2).reshape(steps, _LANES, 8)
    # lane 4 g + 2 i + q has groups 4 q + t of rows g and g + 8 of tile i, in bits 16 h + 4 t
    places = (first | second << 2).astype(np.uint32).reshape(steps, 2, 2, 8, 2, 4).transpose(0, 3, 1, 4, 2, 5)
    shifted = places << (16 * np.arange(2, dtype=np.uint32)[:, None] + 4 * np.arange(4, dtype=np.uint32))
    selected = np.bitwise_or.reduce(shifted.reshape(steps, _LANES, 8), axis=2)
    left = (_LEFT[pattern][..., None] >> np.arange(4, dtype=np.uint8) & 1).astype(bool)
    return np.ascontiguousarray(words), selected, left.reshape(steps, STRIP_ROWS, STEP_COLUMNS)


def _joined(parts: list[_Steps]) -> _Steps:
    names = ("words", "selected", "columns", "panel")
    return _Steps(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _chunks(
    held: _Steps, plain: int, chunk_steps: int, panels: int
) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]:
    """The chunks of all panels: their units, (units, 4), how many each has, and how many chunks each panel has.

    The first `plain` steps hold columns as they come, the others gathered ones.
    """
    gathered = np.arange(held.panel.size) >= plain
    order = np.argsort(held.panel * 2 + gathered, kind="stable")
    words, selected, gathered = held.words[order], held.selected[order], gathered[order]
    panel, columns = held.panel[order], held.columns[order]
    # Steps of one panel and kind fill chunks.
    kind = panel * 2 + gathered
    begin = np.flatnonzero(np.diff(kind, prepend=-1))
    index = np.arange(kind.size) - np.repeat(begin, np.diff(begin, append=kind.size))
    first = np.flatnonzero(index % chunk_steps == 0)  # step of each chunk
    count = np.diff(first, append=kind.size)
    chunk = np.repeat(np.arange(first.size), count)  # of each step
    in_chunk = index % chunk_steps

    there = words != 0
    step_bits = np.packbits(there, axis=2, bitorder="little")[..., 0]
    bits = np.zeros((first.size, _LANES, chunk_steps), dtype=np.uint8)
    bits[chunk, :, in_chunk] = step_bits
    taken = there.sum(axis=2)  # (steps, lanes)
    before = np.cumsum(taken, axis=0) - taken
    before -= before[first][chunk]  # words of the lane in the chunk before the step
    of_lane = np.add.reduceat(taken, first, axis=0) if first.size else taken
    lane_start = np.cumsum(of_lane, axis=1) - of_lane

    # words: bits, starts, for gathered steps their count and columns, selections, values
    map_words = _LANES * chunk_steps // 4
    head = map_words + _LANES // 2
    extra = gathered[first] * (4 + count * (STEP_COLUMNS // 2))
    values_at = head + extra + count * _LANES
    size = -(-(values_at + of_lane.sum(axis=1)) // 4)
    at = 4 * (np.cumsum(size) - size)
    out = np.zeros(4 * int(size.sum()), dtype="<u4")
    out[at[:, None] + np.arange(map_words)] = bits.reshape(first.size, -1).view("<u4")
    starts = (4 * (values_at[:, None] + lane_start)).astype("<u2")
    out[at[:, None] + map_words + np.arange(_LANES // 2)] = starts.view("<u4")
    some = gathered[first]
    out[at[some] + head] = count[some]
    column_words = columns[gathered].view("<u4")
    column_at = (at[chunk] + head + 4 + in_chunk * (STEP_COLUMNS // 2))[gathered]
    out[column_at[:, None] + np.arange(STEP_COLUMNS // 2)] = column_words
    selected_at = at[chunk] + (head + extra)[chunk] + in_chunk * _LANES
    out[selected_at[:, None] + np.arange(_LANES)] = selected
    step, lane, register = np.nonzero(there)
    rank = (np.cumsum(there, axis=2, dtype=np.uint8) - there)[step, lane, register]
    place = (at + values_at)[chunk][:, None] + lane_start[chunk] + before
    out[place[step, lane] + rank] = words[step, lane, register]
    of_panel = np.bincount(panel[first], minlength=panels)
    return out.reshape(-1, 4), size, of_panel
