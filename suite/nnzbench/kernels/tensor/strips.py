"""A matrix as `tensor_spmm.cu` reads it: strips of 32 rows in 2:4 form, and gathered what is left; or as dense tiles.

Lanes' queues start in a chunk of packed words so that lanes seldom meet in a bank of shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.plan import Array, Int32s, Int64s, Uint32s, Unsupported, bf16_bits
from nnzbench.data.matrices.formats import CSR, prefix_sums, ranks
from nnzbench.data.problems.operands import to_e4m3
from nnzbench.data.problems.parts import Part, over_parts

_BANKS = 32
COUNT = np.array([byte.bit_count() for byte in range(256)], dtype=np.uint8)
"""Set bits by byte."""
_NEVER = 1 << 30


def _ones(words: NDArray[Any]) -> Int32s:
    """Set bits of each."""
    if hasattr(np, "bitwise_count"):
        return np.asarray(np.bitwise_count(words), dtype=np.int32)
    return np.asarray(COUNT[np.ascontiguousarray(words)[..., None].view(np.uint8)].sum(axis=-1, dtype=np.int32))


def dealt_starts(turns: NDArray[np.unsignedinteger[Any]]) -> Int64s:
    """How many 32-bit entries of a chunk come before each lane's first, (chunks, 32).

    `turns` is (chunks, 32), of 32 or 64 bits: bit t tells whether a lane takes an entry in turn t, in which every lane
    takes its next one or none. Queues follow each other without a gap, but in another order than their lanes': each
    time the one comes next, of those left, whose entries lie in the fewest turns in the bank of a queue before it; of
    several the longest.
    """
    chunks, lanes = turns.shape
    every, left = np.arange(chunks), turns.T.copy()
    length = _ones(left)
    longest = int(length.max(initial=0))
    of_bank = np.zeros((min(longest, _BANKS), lanes, chunks), dtype=turns.dtype)  # turns in which a lane reads it
    for rank in range(longest):
        first = left & -left
        of_bank[rank % _BANKS] |= first
        left ^= first

    taken = np.zeros(_BANKS * chunks, dtype=turns.dtype)
    starts, at = np.zeros((chunks, lanes), dtype=np.int64), np.zeros(chunks, dtype=np.int64)
    rank_of = np.arange(lanes, dtype=np.int32)[:, None] - lanes * length  # the longest first, of equals the first
    banks = np.arange(len(of_bank))[:, None]
    met, both = np.empty((2, lanes, chunks), dtype=turns.dtype)
    for _ in range(lanes):
        places = (at + banks & _BANKS - 1) * chunks + every
        there = taken[places]
        met[:] = 0
        for of_lane, held in zip(of_bank, there, strict=True):  # a turn is in one bank of a lane
            met |= np.bitwise_and(of_lane, held, out=both)
        lane = (_ones(met) * (lanes * (longest + 1)) + rank_of).min(axis=0) % lanes
        taken[places] = there | of_bank[:, lane, every]
        starts[every, lane] = at
        at += length[lane, every]
        rank_of[lane, every] = _NEVER
    return starts


def stored_weights(values: Array, dtype: str) -> Array:
    """Values as 16-bit numbers: as `stored`, those of FP8 as the bits of e4m3 numbers, `F8_SCALE` times as large.

    Of `tf32` as 32-bit ones.
    """
    if dtype == "tf32":
        return rounded(values)
    if dtype != "f8":
        return stored(values)
    bits = to_e4m3(values).view(np.uint8)
    return np.where(bits == 0x80, 0, bits).astype(np.uint16)


_TF32_LACKS = 13
"""Bits of fp32 that TF32 does not have."""


def rounded(values: Array) -> Uint32s:
    """fp32 numbers rounded to TF32, ties away from zero; those that would become infinite are cut off instead."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    exponent = np.uint32(0x7F800000)
    up = bits + np.uint32(1 << (_TF32_LACKS - 1))
    return np.where((up & exponent) == exponent, bits, up) & np.uint32(0x100000000 - (1 << _TF32_LACKS))


def stored_dense(array: Array, dtype: str) -> Array:
    """As `stored`, of FP8 as the fp16 numbers that its values are."""
    return array.astype(np.float16) if dtype == "f8" else stored(array)


def stored(array: Array) -> Array:
    """fp16 as it is, fp32 that is rounded to bf16 as its upper half."""
    return array if array.dtype == np.float16 else bf16_bits(array)


STRIP_ROWS = 32
STEP_COLUMNS = 32
NARROW_COLUMNS = 16
"""Of a gathered step that has no more: half a step's work."""
MOST_BYTES = 1 << 31
"""Of a chunk, where rings have room for any."""
_LANES = 32
_BLOCK_ELEMENTS = 1 << 21
"""Elements, zeros included, that one core packs at a time: what is made of them stays near it."""
_Bits = NDArray[np.unsignedinteger[Any]]
"""Values of 16 bits or, of TF32, of 32."""
Form = Literal["words", "halves", "bitmap", "pairs", "tf32"]
"""What lanes' queues hold and how bits tell of it: whole registers, two elements of which one may be 0, and a bit for
each; elements one by one, and a bit for each place in a register; the same with a bitmap of each group of four columns,
from which lanes work out both those bits and what to select; registers of two neighbours for a dense product, so that
nothing is selected or left over; the same of single elements of 32 bits."""
_DENSE_FORMS: tuple[Form, ...] = ("pairs", "tf32")
FORMS: tuple[Form, ...] = ("words", "halves", "bitmap")
"""Of a product of 2:4 tiles."""
DEALT_FORMS: tuple[Form, ...] = ("words", "pairs")
"""Of which queues of 16-bit types hold words."""
FP8_FORMS: tuple[Form, ...] = ("words",)


@dataclass(frozen=True)
class Strips:
    """A matrix packed for one size of chunks and panels; see the header of `tensor_spmm.cu`."""

    panel_chunks: Int32s
    """(strips * panels + 1,) the first chunk of each panel of each strip, and how many chunks there are."""
    offsets: Int32s
    """(chunks + 1,) where each chunk starts in `stream`, and where the last one ends."""
    stream: Uint32s
    """(units, 4) the chunks, one after another."""
    strips: int
    panels: int
    slot_bytes: int
    """Of the largest chunk."""

    def slice_starts(self, slices: int) -> Int32s:
        """What a warp looks up first, (strips, slices, 12): see `SliceStart` in `tensor_spmm_copies.cuh`."""
        panels = self.panels
        first = panels * np.arange(slices, dtype=np.int64) // slices
        behind = panels * np.arange(1, slices + 1, dtype=np.int64) // slices
        strip = panels * np.arange(self.strips, dtype=np.int64)[:, None]
        chunk, last = self.panel_chunks[strip + first], self.panel_chunks[strip + behind]
        following = self.panel_chunks[strip + np.minimum(first + 1, behind)]
        places = self.offsets[np.minimum(chunk[..., None] + np.arange(8), last[..., None])]
        return np.concatenate([np.stack([chunk, last, following, last], axis=-1), places], axis=-1)

    def first_chunks(self, slices: int) -> Uint32s:
        """The first chunk of each strip's slices once more, (strips, slices, slot_bytes / 16, 4).

        So a warp knows where it is without looking it up. As long as the largest chunk: behind a shorter one comes what
        follows it in the stream.
        """
        units = self.slot_bytes // 16
        if not self.stream.size:
            return np.zeros((self.strips, slices, units, 4), dtype=np.uint32)
        starts = self.slice_starts(slices)[..., 4]
        units_of_each = np.minimum(starts[..., None] + np.arange(units), len(self.stream) - 1)
        heads: Uint32s = self.stream[units_of_each]
        return heads


class _Steps(NamedTuple):
    """Steps of 32 columns of a strip, expanded to the registers of a warp's lanes."""

    words: Uint32s
    """(steps, lanes, 8)"""
    selected: Uint32s
    """(steps, lanes); of form "bitmap" eight groups of four columns: 4 q + t of row 16 i + 8 h + g in bits
    16 h + 8 i + 4 q."""
    columns: _Bits
    """(steps, 32) of the panel, only of gathered steps."""
    panel: Int64s
    """(steps,) counted over all strips."""
    narrow: NDArray[np.bool_]
    """(steps,) whether only the first `NARROW_COLUMNS` columns have entries, only of gathered steps."""


def _two_of_four() -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
    """Of a group of four the places of the two that are multiplied, ascending, and what is left.

    By its pattern and, in the upper four bits, the columns that may be left over.
    """
    first, second, left = np.zeros((3, 256), dtype=np.uint8)
    for index in range(256):
        places = [place for place in range(4) if index >> place & 1]
        over = sorted(places, key=lambda place: (index >> 4 + place & 1, place))[2:]
        kept = [place for place in places if place not in over]
        if len(kept) < 2:
            kept = sorted({*kept, 0 if kept == [3] else 3})
        first[index], second[index] = kept if len(kept) == 2 else (0, 3)
        left[index] = sum(1 << place for place in over)
    return first, second, left


def _fewest_left() -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """How few columns of a group of four can have entries left over in all of a strip's rows.

    By a row's pattern the sets of columns, a bit each of sixteen, without which it has two entries at most; by the sets
    that all rows share the smallest one.
    """
    sets = np.arange(16)
    enough = (COUNT[np.arange(16)[:, None] & ~sets & 15] <= 2) @ (1 << sets)
    by_size = sorted(range(16), key=lambda one: (one.bit_count(), -one))
    smallest = np.zeros(1 << 16, dtype=np.uint8)
    for one in reversed(by_size):
        smallest[np.arange(1 << 16) >> one & 1 == 1] = one
    return enough.astype(np.uint16), smallest


_FIRST, _SECOND, _LEFT = _two_of_four()
_ENOUGH, _SMALLEST = _fewest_left()
_CHOICES = _FIRST | _SECOND << 2 | _LEFT << 4


def chunk_columns(map_words: int, form: Form = "words") -> int:
    """Columns of a chunk in which each lane has `map_words` words of bits, or four times as many bitmaps."""
    return {"halves": 2, "pairs": 2, "tf32": 1}.get(form, 4) * STEP_COLUMNS * map_words


def step_columns(form: Form) -> int:
    """Columns of a step, of which each lane has eight registers."""
    return {"pairs": 16, "tf32": 8}.get(form, STEP_COLUMNS)


def pack(
    matrix: CSR,
    map_words: int,
    panel_columns: int,
    multiple: int = 1,
    form: Form = "words",
    dealt: bool = False,
    fp8: bool = False,
    most_bytes: int = MOST_BYTES,
) -> Strips:
    """Packs a matrix of values of 16 bits, of 32 for "tf32", whatever they mean; 0.0 and -0.0 count as absent.

    `fp8`: their lower bytes alone count and are kept.

    A panel is a whole number of chunks; there will be a multiple of `multiple` strips, the last ones empty. `dealt`:
    lanes' words lie so that lanes seldom meet in a bank; of `DEALT_FORMS` with two words of bits at most. Some strips
    at a time, on all cores. Raises `Unsupported` as soon as a chunk has more than `most_bytes`, and `ValueError` where
    the packed matrix has 2^31 or more units of 16 bytes.
    """
    strips, panels = strip_count(matrix.m, multiple), max(1, -(-matrix.k // panel_columns))
    columns = chunk_columns(map_words, form)
    chunk_steps = columns // step_columns(form)
    columns *= max(1, -(-matrix.k // columns))  # of a strip, before gathered ones

    def some(part: Part) -> tuple[Uint32s, Int64s, Int64s]:
        first, last, _ = part[0].indices(strips)
        made = [_plain_steps(_dense(matrix, first, last - first, columns), panels, panel_columns, form)]
        made += _gathered_steps(*made[0][1], (last - first) * panels, panel_columns, form)
        held = made[0][0]
        if len(made) > 1:
            held = _Steps(*map(np.concatenate, zip(*(steps for steps, _ in made), strict=True)))
        plain = made[0][0].panel.size
        chunks, size, of_panel = _chunks(held, plain, chunk_steps, (last - first) * panels, form, dealt, fp8)
        require_room(16 * int(size.max(initial=0)), most_bytes)
        return chunks, size, of_panel

    packed = over_parts(some, (strips,), max(1, _BLOCK_ELEMENTS // (STRIP_ROWS * columns)))
    nothing = np.zeros((0, 4), np.uint32), np.zeros(0, np.int64), np.zeros(0, np.int64)
    stream, size, of_panel = map(np.concatenate, zip(nothing, *packed, strict=True))
    offsets, panel_chunks = prefix_sums(size), prefix_sums(of_panel)
    if offsets[-1] >= 1 << 31:
        raise ValueError(f"a packed matrix of {offsets[-1]} units of 16 bytes is too large for 32-bit offsets")
    slot_bytes = 16 * int(size.max(initial=1))
    return Strips(panel_chunks.astype(np.int32), offsets.astype(np.int32), stream, strips, panels, slot_bytes)


def require_room(chunk_bytes: int, most_bytes: int) -> None:
    """Raises `Unsupported` where a chunk is larger than the rings of a tiling have room for."""
    if chunk_bytes > most_bytes:
        raise Unsupported(f"a chunk of this matrix needs more than {most_bytes} bytes of shared memory")


def strip_count(m: int, multiple: int) -> int:
    """Strips of a matrix of `m` rows, empty ones at the end included."""
    return -(-m // (STRIP_ROWS * multiple)) * multiple


def _dense(matrix: CSR, first: int, count: int, columns: int) -> _Bits:
    """Strips `first` to `first + count` with all their zeros: (count, 32, columns)."""
    begin, end = min(first * STRIP_ROWS, matrix.m), min((first + count) * STRIP_ROWS, matrix.m)
    held = slice(matrix.offsets[begin], matrix.offsets[end])
    places = np.repeat(np.arange(end - begin) * columns, matrix.row_lengths[begin:end])
    places += matrix.indices[held]
    values = matrix.values[held].view(f"u{matrix.values.itemsize}")
    dense = np.zeros(count * STRIP_ROWS * columns, dtype=values.dtype)
    dense[places] = np.where(values == 1 << 8 * values.itemsize - 1, 0, values)
    return dense.reshape(count, STRIP_ROWS, columns)


_Left = tuple[Int64s, Int64s, Int64s, _Bits]
"""Entries left over: panel (of all strips), row of the strip, column of the panel, value."""


def _plain_steps(dense: _Bits, panels: int, panel_columns: int, form: Form) -> tuple[_Steps, _Left]:
    """All columns as they come."""
    panel_of_step = np.arange(0, dense.shape[2], step_columns(form)) // panel_columns
    panel = (np.arange(len(dense))[:, None] * panels + panel_of_step).ravel()
    words, selected, (strip, row, column) = _expand(dense, form)
    none = np.zeros((panel.size, STEP_COLUMNS), dtype=np.uint16)
    made = _Steps(words, selected, none, panel, np.zeros(panel.size, dtype=bool))
    of_strip = strip * panels + column // panel_columns
    return made, (of_strip, row, column % panel_columns, dense[strip, row, column])


def _gathered_steps(
    panel: Int64s, row: Int64s, column: Int64s, value: _Bits, panels: int, panel_columns: int, form: Form
) -> Iterator[tuple[_Steps, _Left]]:
    """Rounds of steps that hold any 32 columns of a panel, until nothing is left over."""
    while panel.size:
        key = panel * panel_columns + column
        used = np.zeros(panels * panel_columns, dtype=bool)
        used[key] = True
        keys = np.flatnonzero(used)
        of_key = keys // panel_columns  # the panel
        begin = np.flatnonzero(np.diff(of_key, prepend=-1))
        held = np.diff(begin, append=keys.size)
        needed = -(-held // STEP_COLUMNS)
        start = STEP_COLUMNS * (np.cumsum(needed) - needed)
        # Columns whose rows of B lie in the same banks go to different eights of slots, which are loaded one by one.
        narrow = np.zeros(int(needed.sum()), dtype=bool)
        last_narrow = (held - 1) % STEP_COLUMNS < NARROW_COLUMNS
        narrow[np.cumsum(needed) - 1] = last_narrow
        eights = np.repeat(STEP_COLUMNS // 8 * needed - (STEP_COLUMNS - NARROW_COLUMNS) // 8 * last_narrow, held)
        order = np.argsort(of_key * 8 + keys % 8, kind="stable")
        turn = ranks(held)
        place = np.empty(keys.size, dtype=np.int64)  # of each key among the slots of all steps
        place[order] = np.repeat(start, held) + turn % eights * 8 + turn // eights
        at = place[(np.cumsum(used) - 1)[key]]
        tiles = np.zeros((int(needed.sum()), STRIP_ROWS, STEP_COLUMNS), dtype=np.uint16)
        tiles[at // STEP_COLUMNS, row, at % STEP_COLUMNS] = value
        columns = np.zeros((len(tiles), STEP_COLUMNS), dtype=np.uint16)
        columns += np.repeat(keys[order[begin]] % panel_columns, needed)[:, None].astype(np.uint16)  # of unused slots
        columns.ravel()[place] = keys % panel_columns
        words, selected, (step, row, slot) = _expand(tiles, form)
        of_step = np.repeat(of_key[begin], needed)
        panel, column, value = of_step[step], columns[step, slot].astype(np.int64), tiles[step, row, slot]
        yield _Steps(words, selected, columns, of_step, narrow), (panel, row, column, value)


_Places = tuple[Int64s, Int64s, Int64s]


def _expand(dense: _Bits, form: Form) -> tuple[Uint32s, Uint32s, _Places]:
    """The registers of (strips, 32, columns) by steps, what selects them, and where entries are not held.

    A group of four is one 64-bit word, from which the two elements of a register are shifted. Which two are held is
    chosen for as few columns of a strip with entries left over as there can be.
    """
    strips, steps = len(dense), dense.shape[2] // step_columns(form)
    # rows 16 i + 8 h + g, groups or pairs 4 q + t
    shape = (strips, 2, 2, 8, steps, 2, 4)

    def of_lanes(words: Uint32s) -> Uint32s:  # register 4 i + 2 q + h of lane 4 g + t
        return words.reshape(shape).transpose(0, 4, 3, 6, 1, 5, 2).reshape(strips * steps, _LANES, 8)

    if form in _DENSE_FORMS:
        none = np.zeros(0, dtype=np.int64)
        registers = dense.view("<u4")
        if form == "tf32":  # columns 2 t + q
            registers = registers.reshape(*shape[:5], 4, 2).swapaxes(5, 6)
        return of_lanes(registers), np.zeros((strips * steps, _LANES), dtype=np.uint32), (none, none, none)
    group = dense.view("<u8")
    there = np.packbits((dense != 0).ravel(), bitorder="little")
    pattern = np.stack([there & 15, there >> 4], axis=-1).reshape(group.shape).astype(np.intp)  # looked up by
    enough = np.bitwise_and.reduce(_ENOUGH[pattern], axis=1)
    choice = _CHOICES[pattern | _SMALLEST[enough][:, None].astype(np.intp) << 4]
    low = group >> ((choice & 3) << 4)
    low &= np.uint64(0xFFFF)
    high = group >> ((choice & 12) << 2)
    high <<= np.uint64(16)
    low |= high & np.uint64(0xFFFF0000)
    words = of_lanes(low.astype(np.uint32))
    left = choice >> 4
    if form == "bitmap":  # lane 4 g + t has its bits in the order of h, i and q
        kept = (pattern.astype(np.uint8) & ~left).reshape(shape).transpose(0, 4, 3, 6, 2, 1, 5)
        told = (kept[..., 0] | kept[..., 1] << 4).reshape(strips * steps, _LANES, 4)
    else:  # lane 4 g + 2 i + q has groups 4 q + t of rows g and g + 8 of tile i, in bits 16 h + 4 t
        places = (choice & 15).reshape(shape).transpose(0, 4, 3, 1, 5, 2, 6).reshape(strips * steps, _LANES, 8)
        told = places[..., 0::2] | places[..., 1::2] << 4
    some = np.flatnonzero(left)
    entry, place = np.nonzero(left.ravel()[some, None] >> np.arange(4, dtype=np.uint8) & 1)
    strip, row, column = np.unravel_index(some[entry], left.shape)
    return words, told.view("<u4")[..., 0], (strip, row, 4 * column + place)


def _chunks(
    held: _Steps, plain: int, chunk_steps: int, panels: int, form: Form, dealt: bool, fp8: bool
) -> tuple[Uint32s, Int64s, Int64s]:
    """The chunks of all panels: their units, (units, 4), how many each has, and how many chunks each panel has.

    The first `plain` steps hold columns as they come, the others gathered ones.
    """
    gathered = np.arange(held.panel.size) >= plain
    order = np.argsort(held.panel * 2 + gathered, kind="stable") if gathered.any() else slice(None)
    words, selected, gathered = held.words[order], held.selected[order], gathered[order]
    panel, columns = held.panel[order], held.columns[order]
    # Steps of one panel and kind fill chunks.
    kind = panel * 2 + gathered
    begin = np.flatnonzero(np.diff(kind, prepend=-1))
    index = ranks(np.diff(begin, append=kind.size))
    first = np.flatnonzero(index % chunk_steps == 0)  # step of each chunk
    count = np.diff(first, append=kind.size)
    chunk = np.repeat(np.arange(first.size), count)  # of each step
    in_chunk = index % chunk_steps

    if form == "bitmap":  # registers in the order of h, i and q
        words = np.ascontiguousarray(words.reshape(-1, _LANES, 2, 2, 2).transpose(0, 1, 4, 2, 3)).reshape(words.shape)
    if fp8:
        words = (words | words >> 8).astype("<u2")  # two bytes from two halves
    entries = words.view("<u2") if form in ("halves", "bitmap") else words  # (steps, lanes, 8 or 16)
    slots = entries.shape[2]
    there = (entries != 0).ravel()
    step_bits = np.packbits(there, bitorder="little").reshape(-1, _LANES, slots // 8)
    bits = np.zeros((first.size, _LANES, chunk_steps, slots // 8), dtype=np.uint8)
    bits[chunk, :, in_chunk] = step_bits
    taken = COUNT[step_bits].sum(axis=2, dtype=np.int64)  # (steps, lanes)
    before = np.cumsum(taken, axis=0) - taken
    before -= before[first][chunk]  # entries of the lane in the chunk before the step
    of_lane = np.add.reduceat(taken, first, axis=0) if first.size else taken
    lane_start = np.cumsum(of_lane, axis=1) - of_lane
    if dealt:
        lane_start = dealt_starts(bits.reshape(first.size, _LANES, chunk_steps).view(f"<u{chunk_steps}")[..., 0])

    # words: bits unless bitmaps tell, starts, for gathered steps their count and columns, selections; then the entries
    map_words = 0 if form == "bitmap" else _LANES * chunk_steps * slots // 32
    head = map_words + _LANES // 2
    extra = gathered[first] * (4 + count * (STEP_COLUMNS // 2))
    per_word = 4 // entries.itemsize
    selections = 0 if form in _DENSE_FORMS else count * _LANES
    values_at = per_word * (head + extra + selections)  # from here on all is counted in entries
    size = -(-(values_at + of_lane.sum(axis=1)) // (4 * per_word))
    at = 4 * (np.cumsum(size) - size)
    out = np.zeros(4 * int(size.sum()), dtype="<u4")
    if map_words:
        of_lanes = bits.reshape(first.size, -1).view("<u4").reshape(first.size, _LANES, -1)
        in_order = of_lanes.swapaxes(1, 2) if form == "tf32" else of_lanes  # a lane's words lie apart
        out[at[:, None] + np.arange(map_words)] = in_order.reshape(first.size, -1)
    starts = (4 // per_word * (values_at[:, None] + lane_start)).astype("<u2")
    out[at[:, None] + map_words + np.arange(_LANES // 2)] = starts.view("<u4")
    some = gathered[first]
    out[at[some] + head] = count[some]
    out[at[some] + head + 1] = np.bitwise_or.reduceat(held.narrow[order] << in_chunk, first)[some] if first.size else 0
    column_words = columns[gathered].view("<u4")
    column_at = (at[chunk] + head + 4 + in_chunk * (STEP_COLUMNS // 2))[gathered]
    out[column_at[:, None] + np.arange(STEP_COLUMNS // 2)] = column_words
    if form not in _DENSE_FORMS:
        selected_at = at[chunk] + (head + extra)[chunk] + in_chunk * _LANES
        out[selected_at[:, None] + np.arange(_LANES)] = selected
    place = (per_word * at + values_at)[chunk][:, None] + lane_start[chunk] + before
    place -= (np.cumsum(taken) - taken.ravel()).reshape(place.shape)
    held_at = np.flatnonzero(there)
    out.view(entries.dtype)[np.repeat(place, taken.ravel()) + np.arange(held_at.size)] = entries.ravel()[held_at]
    of_panel = np.bincount(panel[first], minlength=panels)
    return out.reshape(-1, 4), size, of_panel
