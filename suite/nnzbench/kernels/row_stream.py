"""Kernel `row_stream`: SpMM over pieces of rows packed as {index, value} words, for products whose cost is latency."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.architectures import sm_count
from nnzbench.core.plan import Int32s, Int64s, Plan, SharedWork, Uint32s, Unsupported
from nnzbench.core.tiles import MOST_GRID_Y, TileConfiguration
from nnzbench.data.matrices.formats import CSR, ranks
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.rows import Storage

_MOST_THREADS = 512
_BATCH_CYCLES = 400
"""Clocks from a batch's first load to its last product, beside its instructions."""
_JOIN_CYCLES = 300
"""Clocks to add up the pieces of a row through shared memory."""
_WARP_CYCLES = 100
"""Issue slots of a multiprocessor that a warp takes besides its batches."""
_SPARE_BYTES = 1 << 24
"""Packed bytes that any matrix may take; beyond them, at most `_SPARE_FACTOR` times its own nonzeros."""
_SPARE_FACTOR = 6
_BLOCK = 1 << 15
"""Pairs that are packed at a time, so that temporaries stay in the processor's cache."""


@dataclass(frozen=True)
class PieceTiling(TileConfiguration):
    """Compile-time shape of `row_spmm.cu`."""

    NAME: ClassVar = "n{0.block_n}_v{0.vec}_s{0.slots}_p{0.piece}_u{0.unroll}"
    lanes: int
    vec: int
    slots: int
    piece: int
    unroll: int

    @property
    def threads(self) -> int:
        return self.lanes * self.slots

    @property
    def block_n(self) -> int:
        return self.lanes * self.vec

    @property
    def cut(self) -> tuple[int, int, int]:
        """What the packed matrix follows from."""
        return self.slots, self.piece, self.unroll


@dataclass(frozen=True)
class PackedPieces:
    """A matrix cut into the pieces of one tiling; see the header of `row_spmm.cu`."""

    headers: Int32s
    """(slots, 2): the row, or -1; nonzeros of the piece + 65536 * pieces of the row."""
    words: Uint32s
    """(slots * piece * bytes of a pair / 16, 4): two or four {index, value} pairs each."""
    joined_blocks: int
    """Leading blocks that hold rows of more than one piece."""


def place_pieces(pieces: Int64s, slots: int) -> tuple[Int64s, int, int]:
    """First slot of each row when rows of `pieces` neighbouring slots, at most `slots`, fill blocks of `slots`.

    Rows come by falling count of pieces. Returns also the blocks used, and how many of them, the leading ones, hold a
    row of more than one piece.
    """
    first = np.empty(pieces.size, dtype=np.int64)
    free = np.zeros(0, dtype=np.int64)  # slots left in each block
    joined = 0
    for count in np.unique(pieces)[::-1]:
        rows = np.flatnonzero(pieces == count)
        if count == 1:
            joined = free.size
        room = int((free // count).sum())
        fresh = -(-max(0, rows.size - room) // (slots // count))
        free = np.concatenate([free, np.full(fresh, slots)])
        takes = free // count
        block = np.repeat(np.arange(free.size), takes)[: rows.size]
        nth = ranks(takes)[: rows.size]
        first[rows] = block * slots + slots - free[block] + nth * count
        free = free - np.bincount(block, minlength=free.size) * count
    return first, free.size, joined if (pieces == 1).any() else free.size


def pair_words(matrix: CSR, storage: Storage) -> NDArray[Any]:
    """(nnz + 1,) {index, value} words, the last one zero: an int and a float, or with short indices 16 bits of each."""
    index, value, word = ("<u2", "<f2", "<u4") if storage.short_index else ("<u4", "<f4", "<u8")
    words = np.zeros(matrix.nnz + 1, dtype=[("index", index), ("value", value)])
    words["index"][:-1] = matrix.indices
    words["value"][:-1] = matrix.values
    return words.view(word)


def pack(matrix: CSR, tiling: PieceTiling, pairs: NDArray[Any]) -> PackedPieces:
    """Cuts rows into pieces of near-equal whole batches and places those of a row side by side in one block.

    `pairs` are the `pair_words` of `matrix`. Raises `ValueError` where a row needs more pieces than a block has slots
    (`fit` makes tilings for which none does).
    """
    order = np.argsort(-matrix.row_lengths, kind="stable")
    lengths = matrix.row_lengths[order]
    batches = -(-lengths // tiling.unroll)
    pieces = np.maximum(1, -(-batches // (tiling.piece // tiling.unroll)))
    if pieces.max(initial=0) > tiling.slots:
        raise ValueError(f"a row of {lengths[0]} nonzeros needs more than {tiling.slots} pieces of {tiling.piece}")
    first, blocks, joined = place_pieces(pieces, tiling.slots)

    row = np.repeat(np.arange(matrix.m), pieces)  # of each piece, by place in `order`
    nth = ranks(pieces)
    begin = batches[row] * nth // pieces[row] * tiling.unroll
    end = np.minimum(batches[row] * (nth + 1) // pieces[row] * tiling.unroll, lengths[row])
    slot = first[row] + nth
    headers = np.zeros((blocks * tiling.slots, 2), dtype=np.int32)
    headers[:, 0] = -1
    headers[slot[nth == 0], 0] = order
    headers[slot, 1] = end - begin
    headers[slot[nth == 0], 1] += (pieces << 16).astype(np.int32)

    # A piece's pairs lie side by side; those behind its last one repeat its index, without a value.
    size = np.zeros(blocks * tiling.slots, dtype=np.int64)
    size[slot] = end - begin
    source = np.full(size.size, matrix.nnz)
    source[slot] = matrix.offsets[order][row] + begin
    source[size == 0] = matrix.nnz
    index_mask = pairs.dtype.type((1 << 4 * pairs.itemsize) - 1)
    behind = pairs[source + np.maximum(size - 1, 0)] & index_mask
    words = np.empty((size.size, tiling.piece), dtype=pairs.dtype)
    place = np.arange(tiling.piece)
    step = max(1, _BLOCK // tiling.piece)
    for low in range(0, size.size, step):
        few = slice(low, low + step)
        words[few] = pairs.take(source[few, None] + place, mode="clip")
        np.copyto(words[few], behind[few, None], where=place >= size[few, None])
    return PackedPieces(headers, words.view(np.uint32).reshape(-1, 4), joined)


def fit(lanes: int, vec: int, piece: int, unroll: int, longest: int) -> PieceTiling:
    """The smallest block of 128 threads or more in which the pieces of the longest row fit; a longer piece if none."""
    slots = 128 // lanes
    while slots * piece < longest and slots * lanes < _MOST_THREADS:
        slots *= 2
    needed = -(-longest // (slots * unroll)) * unroll
    return PieceTiling(lanes, vec, slots, max(piece, needed), unroll)


def shapes(n: int, storage: Storage) -> list[tuple[int, int]]:
    """(lanes, columns per lane) worth trying for n columns, the likeliest first."""
    if storage.half and n % 8 == 0:
        wide = [(16, 8), (32, 4), (8, 8), (32, 8)]
        if n <= 64:
            wide = [(8, 8), (16, 4), (4, 8), (32, 2), (8, 4), (4, 4), (4, 2)]
    elif n % 4 == 0:
        wide = [(32, 4), (32, 2), (16, 4), (8, 4)] if n > 64 else [(32, 2), (8, 4), (16, 2), (4, 4), (32, 1)]
    elif n % 2 == 0:
        wide = [(32, 2), (16, 2), (32, 1), (8, 2)]
    else:
        wide = [(32, 2), (32, 1), (16, 4), (16, 2), (16, 1), (8, 1), (4, 1)]
    fitting = [(lanes, vec) for lanes, vec in wide if lanes * vec < 2 * n or lanes * vec <= 4]
    return fitting[:4] or [(4, 1)]


def batch_sizes(vec: int, storage: Storage) -> tuple[int, ...]:
    """Pairs in flight worth trying for `vec` columns per lane: as many as registers hold, and half of them in fp16."""
    if storage.half:
        return (8, 16) if vec < 8 or storage.short_index else (8,)
    return (8,) if vec == 4 else (16,)


def _cycles(tiling: PieceTiling, lengths: Int64s, n: int, storage: Storage, sms: int) -> float:
    """A rough model: the batches that a thread group runs one after another, in as many waves as not all blocks can be
    resident, and the work of all groups, which is wavefronts of L1 or instructions.
    """
    pieces = np.maximum(1, -(-lengths // tiling.piece))
    batches = np.maximum(pieces, -(-lengths // tiling.unroll))
    tiles = tiling.lanes / 32 * -(-n // tiling.block_n)
    chain = int((-(-batches // pieces)).max())
    joins = _JOIN_CYCLES if (pieces > 1).any() else 0
    pairs, warps = int(batches.sum()) * tiling.unroll, int(pieces.sum())
    row_bytes = storage.value_bytes * tiling.vec
    wavefronts = row_bytes / 4 + storage.pair_bytes / 8
    # of a warp for a pair (counted in sm_90 code): a product per column, in fp16 with a conversion, and some more
    instructions = 2 * tiling.vec + 6 if storage.half else tiling.vec + 5
    # roughly, of a thread: pairs and their rows of B in flight, and 32 others
    registers = 32 + tiling.unroll * ((row_bytes + storage.pair_bytes) / 4 + 0.25)
    resident = max(1, int(2**16 / (registers * tiling.threads))) * tiling.threads / 32
    waves = math.ceil(warps * tiles / (sms * resident))
    work = pairs * max(wavefronts, instructions / 4) + warps * _WARP_CYCLES  # four schedulers
    return chain * waves * (_BATCH_CYCLES + tiling.unroll * instructions) + joins + work * tiles / sms


def tilings(matrix: CSR, n: int, arch: str, storage: Storage) -> Iterator[PieceTiling]:
    """Tilings worth trying, the likeliest first by a rough cost model: the four best piece lengths for each shape."""
    lengths = matrix.row_lengths
    longest = max(1, int(lengths.max(initial=0)))
    costs: dict[PieceTiling, float] = {}
    for lanes, vec in shapes(n, storage):
        if n > lanes * vec * MOST_GRID_Y:
            continue
        found: dict[PieceTiling, float] = {}
        for piece, unroll in product((1 << exponent for exponent in range(3, 10)), batch_sizes(vec, storage)):
            if piece > 8 and piece >= 2 * longest:
                break
            tiling = fit(lanes, vec, piece, min(piece, unroll), longest)
            slots = np.maximum(1, -(-lengths // tiling.piece)).sum()
            packed_bytes = storage.pair_bytes * int(slots) * tiling.piece
            spare = max(_SPARE_BYTES, _SPARE_FACTOR * storage.pair_bytes * matrix.nnz)
            if packed_bytes <= spare and tiling.piece < 1 << 16:
                found[tiling] = _cycles(tiling, lengths, n, storage, sm_count(arch))
        for tiling in sorted(found, key=found.__getitem__)[:4]:
            costs[tiling] = found[tiling]
    yield from sorted(costs, key=costs.__getitem__)


def make_plan(problem: Problem, operands: Operands, tiling: PieceTiling, shared: SharedWork | None = None) -> Plan:
    """The plan of one tiling for `problem`; `operands.dense["b"]` is (k, n), float32 or float16, of the type of the
    matrix values; `shared` is what the problem's plans share.
    """
    b = operands.dense["b"]
    storage = Storage.of(b.dtype, operands.sparse.k)
    shared = shared or SharedWork()
    elapsed = shared.timer()
    pairs = shared.once("pairs", lambda: pair_words(operands.sparse, storage))
    packed = shared.once(tiling.cut, lambda: pack(operands.sparse, tiling, pairs))
    n, m = problem.n, problem.m
    buffers = {"headers": packed.headers, "words": packed.words, "b": b, "c": np.empty((m, n), dtype=b.dtype)}
    return tiling.plan(
        "row_spmm",
        (len(packed.headers) // tiling.slots, -(-n // tiling.block_n), 1),
        (n, packed.joined_blocks),
        buffers,
        defines={"ADJACENT": int(n % tiling.vec == 0), **storage.defines},
        marks=(storage.name("k"),),
        generate_ms=elapsed(),
    )


@kernel("nnzbench", "spmm", "f32 f16", About("own", rank=110))
def row_stream(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Own row-split SpMM with packed words; rows are cut into pieces, so that long ones cost no more than others.

    One plan per tiling; raises `Unsupported` where equal slots waste memory: a few rows hold so much, or all so little.
    """
    storage = Storage.of(operands.dense["b"].dtype, operands.sparse.k)
    choices = list(tilings(operands.sparse, problem.n, arch, storage))
    if not choices:
        raise Unsupported("rows are too short or too uneven for slots of equal length")
    shared = SharedWork()
    for place, tiling in enumerate(choices, 1):
        yield make_plan(problem, operands, tiling, shared)
        if all(later.cut != tiling.cut for later in choices[place:]):
            shared.forget(tiling.cut)
