"""Kernels `eie` and `eie_columns`: products with a matrix in EIE's format, a codebook index of 4 bits for a nonzero.

Han, Liu, Mao, Pu, Pedram, Horowitz, Dally: "EIE: Efficient Inference Engine on Compressed Deep Neural Network", ISCA
2016. `eie` has the paper's entries of one byte, index and run of zeros, padding zeros included; how a GPU decodes them
is this project's own, and differs from the chip in that slices are of rows and zeros among the inputs are not skipped.
`eie_columns` skips them: it has columns of W, and a queue of nonzero inputs (sections III and IV). The headers of
`eie.cu` and `eie_columns.cu` explain the mappings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.architectures import architecture, block_shared_bytes, sm_count
from nnzbench.core.plan import Array, Int32s, Plan, SharedWork, Unsupported, plans_that_fit
from nnzbench.core.tiles import TileConfiguration
from nnzbench.data.matrices.encodings import Coded, Slices, slices
from nnzbench.data.matrices.formats import MatrixError, counting_sort, prefix_sums, ranks
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.rows import first_of_each, power_of_two_at_least

MOST_COLUMNS = 16
"""Beyond them a product is one of many columns, and the bytes of W are not what it costs."""
MOST_COMMON = 10
"""Packs of an item whose requests need no address from memory."""
_LEAST_STAGED, _MOST_STAGED = 3, 12
"""Units of X that a thread has on their way at once, where a part has so many."""
_BOOK_BYTES = 16 * 32 * 4
_RESERVED_BYTES = 2 * 1024
_PACK = 8


@dataclass(frozen=True)
class EieTiling(TileConfiguration):
    """Lanes of a row, warps of a block, and blocks that share a multiprocessor."""

    lanes: int
    warps: int
    blocks: int = 1
    shifts: bool = False
    """Whether indices become addresses by shifts and masks: which units then work depends on the architecture."""
    bulk: bool = False
    """Whether Hopper's copy engine brings X, which must lie in memory as its slots do."""

    @property
    def name(self) -> str:
        return f"l{self.lanes}_w{self.warps}x{self.blocks}" + "_shift" * self.shifts + "_bulk" * self.bulk

    @property
    def registers(self) -> int:
        """Of a thread, for requests on their way: the rest of what its share of a multiprocessor's leaves."""
        return 36 if self.warps * self.blocks > 16 else 72


@dataclass(frozen=True)
class EiePacked:
    """Entries in the order that warps read them; the header of `eie.cu` explains the arrays."""

    common: NDArray[np.uint8]
    """(parts of the columns, groups of rows that share a warp, packs, 32, 8)."""
    rest: NDArray[np.uint8]
    """(packs, 32, 8), at least one."""
    offsets: Int32s
    places: int
    """Slots of X that a lane may read in a part, those behind the last column included."""


def pack(cut: Slices, part_columns: int, most: int = MOST_COMMON) -> EiePacked:
    """Deals slices to the lanes of warps, eight entries at a time; an item has the packs that its longest slice needs.

    Common are so many packs as four of five items have, at most `most`.
    """
    parts, m, lanes = cut.lengths.shape
    sub = 32 // lanes
    items = -(-m // sub)
    missing = [(0, 0), (0, items * sub - m), (0, 0)]
    lengths = np.pad(cut.lengths, missing).reshape(parts * items, 32)
    last = np.pad(cut.last, missing, constant_values=-1).reshape(parts * items, 32)
    packs = -(-lengths.max(axis=1) // _PACK)
    common = min(most, int(np.quantile(packs, 0.2, method="lower")))
    longer = np.maximum(packs - common, 0)
    offsets = prefix_sums(longer)
    held = np.maximum(packs, common)

    front = parts * items * common
    packed = np.zeros((front + max(1, int(offsets[-1])), 32, _PACK), np.uint8)
    lane_bytes = np.arange(32, dtype=np.int64) * _PACK
    flat, size = lengths.ravel(), 32 * _PACK
    within = ranks(flat)
    place, at = np.divmod(within, _PACK)
    early = np.arange(parts * items)[:, None] * (common * size) + lane_bytes
    late = (front + offsets[:-1] - common)[:, None] * size + lane_bytes
    to = np.where(place < common, np.repeat(early.ravel(), flat), np.repeat(late.ravel(), flat))
    packed.reshape(-1)[to + place * size + at] = cut.entries

    reach = last + 1 + held[:, None] * _PACK - lengths
    places = max(int(reach.max()), -(-part_columns // lanes))
    shape = (parts, items, common, 32, _PACK)
    return EiePacked(packed[:front].reshape(shape), packed[front:], offsets.astype(np.int32), places)


def slot_columns(n: int, dtype: np.dtype[Any]) -> int:
    """Columns of X that a block takes at once: as many as make a slot of at most 16 bytes."""
    most = 8 if dtype == np.float16 else 4
    return min(most, power_of_two_at_least(n))


def _slot_bytes(columns: int, dtype: np.dtype[Any]) -> int:
    return 4 if columns == 1 else columns * dtype.itemsize


def _part_columns(k: int, lanes: int, slot: int, room: int) -> int:
    """Columns of a part, a multiple of `lanes`: equal parts, as few as leave `room` bytes for X and its fillings."""
    most = max(lanes, room * 7 // 8 // (slot * 32) * lanes)
    parts = -(-k // most)
    return -(-k // (parts * lanes)) * lanes


def tilings(m: int, k: int, slot: int, arch: str) -> list[EieTiling]:
    """Worth trying: a row per warp, and two or four where X fits as often; about a block for each multiprocessor.

    Those come first whose blocks run at once, or in the fewest rounds, and of these two rows per warp.
    """
    limit = block_shared_bytes(arch) - _RESERVED_BYTES - _BOOK_BYTES
    found = []
    for lanes in (32, 16, 8):
        x_bytes = k * slot * (32 // lanes)
        if lanes < 32 and x_bytes > limit // 2:
            continue
        items = -(-m * lanes // 32)
        wanted = -(-items // sm_count(arch))
        warps = min(32, max(4, power_of_two_at_least(wanted)))
        twice = slot == 4 and 2 * x_bytes < limit
        found.append(EieTiling(lanes, warps, 2 if twice and warps <= 16 and warps < wanted else 1))
        if warps > 4 and twice:
            found.append(EieTiling(lanes, warps // 2, 2))
        elif warps == 32:
            found.append(EieTiling(lanes, 16))  # several columns take registers, which 16 warps have twice as many of

    def rounds(one: EieTiling) -> tuple[int, bool]:
        return -(-m * one.lanes // (32 * one.warps * one.blocks * sm_count(arch))), one.lanes != 16

    return [*sorted(found, key=rounds), replace(found[0], shifts=True)]


def lies_as_slots(x: Array) -> bool:
    """Whether X (k, n) can be copied as it is to a block's shared memory, in pieces that the copy engine takes."""
    k, n = x.shape
    slot = _slot_bytes(slot_columns(n, x.dtype), x.dtype)
    return bool(slot == n * x.dtype.itemsize and k * slot % 16 == 0)


def make_plan(coded: Coded, x: Array, tiling: EieTiling, arch: str, shared: SharedWork | None = None) -> Plan:
    """The plan of one tiling; `x` is (k, n), float32 or float16. Raises `Unsupported` where X does not fit."""
    matrix, n = coded.pattern, x.shape[1]
    shared = shared or SharedWork()
    elapsed = shared.timer()
    columns = slot_columns(n, x.dtype)
    slot = _slot_bytes(columns, x.dtype)
    limit = block_shared_bytes(arch) - _RESERVED_BYTES
    part_columns = _part_columns(matrix.k, tiling.lanes, slot, limit // tiling.blocks - _BOOK_BYTES)
    wide = 4 if columns == 1 and matrix.k % 4 == 0 else 1
    unit_registers = -(-wide * columns * x.dtype.itemsize // 4)
    room = tiling.registers - columns - columns // 4
    most = min(MOST_COMMON, (room - (0 if tiling.bulk else _LEAST_STAGED * unit_registers)) // 2)
    key = (tiling.lanes, part_columns, most)
    cut = shared.once(key[:2], lambda: slices(coded, tiling.lanes, part_columns))
    packed = shared.once(key, lambda: pack(cut, part_columns, most))
    parts, items, common_packs = packed.common.shape[:3]
    units = packed.places * tiling.lanes // wide
    staged = min(-(-units // (32 * tiling.warps)), _MOST_STAGED, (room - 2 * common_packs) // unit_registers)
    blocks = -(-items // tiling.warps)
    shared_bytes = _BOOK_BYTES + packed.places * 32 * slot
    if shared_bytes > limit:
        raise Unsupported(f"X and its fillings need {shared_bytes} bytes of shared memory, a block has {limit}")
    common = packed.common if packed.common.size else np.zeros((1, 32, _PACK), np.uint8)
    return tiling.plan(
        "eie",
        (blocks, -(-n // columns), 1),
        (matrix.m, matrix.k, n, parts, part_columns, items, packed.places, units // blocks),
        {
            "common": common.view(np.int32),
            "rest": packed.rest.view(np.int32),
            "offsets": packed.offsets,
            "codebook": coded.codebook,
            "x": np.ascontiguousarray(x),
            "y": np.zeros((matrix.m, n), x.dtype),
        },
        defines={
            "COMMON": common_packs,
            "STAGED": max(1, staged),
            "COLUMNS": columns,
            "EXACT": int(matrix.k % 4 == 0 if columns == 1 else n % columns == 0),
            "F16": int(x.dtype == np.float16),
        },
        shared_bytes=shared_bytes,
        generate_ms=elapsed(),
    )


def operand_bytes(problem: Problem, nnz: int) -> int:
    """One byte for a nonzero and the codebook; what breaks long runs depends on the pattern and is not counted."""
    return nnz + 16 * 2


PAPER = "Han et al.: EIE: Efficient Inference Engine on Compressed Deep Neural Network, ISCA 2016"


def _coded(problem: Problem, operands: Operands) -> Coded:
    """The matrix by its codebook. Raises `Unsupported` for an empty product and for too many values or columns."""
    n = operands.dense["b"].shape[1]
    if problem.m == 0 or problem.k == 0 or n == 0:
        raise Unsupported("the product is empty")
    if n > MOST_COLUMNS:
        raise Unsupported(f"decoding pays for few columns; it takes at most {MOST_COLUMNS}, not {n}")
    try:
        return Coded.of(operands.sparse)
    except MatrixError as error:
        raise Unsupported(str(error)) from error


@kernel(PAPER, "spmm spmv", "f32 f16", About("own", "EIE's format", operand_bytes=operand_bytes, rank=155))
def eie(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Y = W X for a W of at most 15 different values, at most 16 columns of X.

    Raises `Unsupported` for more values than a codebook holds, more columns than 16, or an empty product.
    """
    coded, x, shared = _coded(problem, operands), operands.dense["b"], SharedWork()
    slot = _slot_bytes(slot_columns(x.shape[1], x.dtype), x.dtype)
    choices = tilings(problem.m, problem.k, slot, arch)
    if architecture(arch).has("bulk_copy") and lies_as_slots(x):
        choices += [replace(one, bulk=True) for one in choices if one.lanes == 32 and not one.shifts]
    yield from plans_that_fit(choices, lambda one: make_plan(coded, x, one, arch, shared), "no tiling fits")


CANDIDATES = 8
_NONZERO = 1 / 3
"""Of the inputs, as after a ReLU: tilings are chosen before inputs are known."""


@dataclass(frozen=True)
class ColumnTiling(TileConfiguration):
    """Rows of a slice, warps that share it, and groups of 32 columns for each."""

    NAME: ClassVar = "s{0.slice}_w{0.warps}_g{0.groups}"
    slice: int
    warps: int
    groups: int

    @property
    def shared_bytes(self) -> int:
        return 4 * self.slice * self.warps

    @property
    def columns(self) -> int:
        return 32 * self.warps * self.groups


def columns_of(coded: Coded, rows: int) -> tuple[Array, Array]:
    """Two-byte entries by slice of `rows` rows and column, rows ascending, and `starts` (slices, k + 1)."""
    matrix = coded.pattern
    count = -(-matrix.m // rows)
    row = matrix.rows
    cell = row // rows * matrix.k + matrix.indices
    order, starts = counting_sort(cell, count * matrix.k)
    entries = (row % rows << 4 | coded.codes)[order].astype(np.uint16)
    ends = starts[1:].reshape(count, matrix.k)
    return (entries if entries.size else np.zeros(1, np.uint16)), np.hstack([starts[: -1 : matrix.k, None], ends])


def _cycles(m: int, k: int, nnz: int, tiling: ColumnTiling, arch: str) -> float:
    """Clocks of a launch by a rough count of what a warp does one after another."""
    entries = nnz / (m * k) * tiling.slice
    column = 25 + 40 * math.ceil(entries / 32)
    parts = -(-k // tiling.columns)
    blocks = -(-m // tiling.slice) * parts
    limits = architecture(arch)
    resident = min(limits.warps // tiling.warps, limits.shared_bytes // (tiling.shared_bytes + 1024))
    waves = -(-blocks // (sm_count(arch) * max(1, resident)))
    crowd = max(1.0, min(resident, blocks / sm_count(arch)) * tiling.warps / 16)
    walk = tiling.groups * (700 + 32 * _NONZERO * column * crowd)
    add = tiling.slice / (32 * tiling.warps) * (25 * tiling.warps + 40 * parts)
    return waves * (walk + add)


def column_tilings(m: int, k: int, nnz: int, arch: str) -> list[ColumnTiling]:
    """The `CANDIDATES` most promising, of which no two have the same slice and groups."""
    grid = [
        ColumnTiling(rows, warps, groups)
        for rows in (64, 128, 256, 512, 1024, 2048)
        for warps in (4, 8, 16)
        for groups in (1, 2, 4)
        if 4 * rows * warps <= block_shared_bytes(arch)
    ]
    ranked = sorted(grid, key=lambda one: (_cycles(m, k, nnz, one, arch), one.name))
    return first_of_each(ranked, lambda one: (one.slice, one.groups))[:CANDIDATES]


def columns_plan(coded: Coded, x: Array, tiling: ColumnTiling, shared: SharedWork | None = None) -> Plan:
    """The plan of one tiling; `x` is (k, 1), float32 or float16."""
    matrix, shared = coded.pattern, shared or SharedWork()
    elapsed = shared.timer()
    entries, starts = shared.once(tiling.slice, lambda: columns_of(coded, tiling.slice))
    parts = -(-matrix.k // tiling.columns)
    buffers = {
        "entries": entries,
        "starts": starts,
        "codebook": coded.codebook,
        "x": np.ascontiguousarray(x),
        "partial": np.zeros((parts, matrix.m), np.float32),
        "arrived": np.zeros(len(starts), np.int32),
        "y": np.zeros((matrix.m, 1), x.dtype),
    }
    grid, half = (len(starts), parts, 1), {"F16": int(x.dtype == np.float16)}
    return tiling.plan("eie_columns", grid, (matrix.m, matrix.k), buffers, defines=half, generate_ms=elapsed())


@kernel(PAPER, "spmv", "f32 f16", About("own", "EIE's columns", operand_bytes=operand_bytes, rank=156))
def eie_columns(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """y = W x for a W of at most 15 different values, reading the columns of nonzero inputs alone.

    Raises `Unsupported` for more values than a codebook holds, or an empty product.
    """
    coded, shared = _coded(problem, operands), SharedWork()
    for tiling in column_tilings(problem.m, problem.k, operands.sparse.nnz, arch):
        yield columns_plan(coded, operands.dense["b"], tiling, shared)
