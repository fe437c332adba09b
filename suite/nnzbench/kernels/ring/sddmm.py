"""Kernel `ring_sddmm`: SDDMM that streams B through a ring of chunks in shared memory past rows of A in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from nnzbench.core.architectures import architecture, sm_count
from nnzbench.core.plan import Array, Int64s, Launch, Plan, SharedWork, Unsupported, plans_that_fit
from nnzbench.core.tiles import MOST_GRID_Y
from nnzbench.data.matrices.formats import CSR, ranks
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.ring.order import MOST_UNITS, RingTiling, Strands, deal_bundles, even_progress
from nnzbench.kernels.rows import power_of_two_at_least, vector_width

_UNIT = 4
"""Nonzeros of a row in a unit, the least that a row takes in a step."""
_READ_AHEAD = 2
"""Units behind the last one that are read, not used."""
_LONG_ROW = 1.5, 6.0
"""Times the mean, and times its root above the mean (unlikely in uniform patterns): a row beyond both is split, so that
none outlasts the rest."""
_SUM_THREADS = 256
_STRAND_SLICES = 16
"""Slices that one thread adds up before others share the sum."""
_MOST_SUM_BYTES = 1 << 30


@dataclass(frozen=True)
class RingSddmmTiling(RingTiling):
    """Compile-time shape of `ring_sddmm.cu`, and how often columns are parted."""

    DEFINES: ClassVar = {"parts": ""}
    CHUNKS: ClassVar = (128, 64, 32)
    LEAST_CHUNKS: ClassVar = 4
    MOST_AHEAD: ClassVar = 6

    drift: bool = False
    """Whether warps wait for chunks only, not for each other."""
    parts: int = 1
    """Parts of the pattern's columns, each with blocks of its own."""

    @property
    def block_m(self) -> int:
        return self.warps * self.row_steps * self.sub

    def chunks(self, columns: int) -> int:
        """Chunks per part of so many columns."""
        return -(-columns // (self.parts * self.block_k))

    def resident(self, n: int) -> bool:
        """Whether all of B's rows for a part of `n` columns stay in shared memory."""
        return self.stages == self.chunks(n)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory per block: the ring, and the row behind it that idle rows read."""
        return self.row_bytes * (self.stages * self.block_k + 1)

    @property
    def name(self) -> str:
        text = f"m{self.block_m}_k{self.block_n}_p{self.parts}_c{self.block_k}_w{self.warps}_l{self.lanes}"
        return text + f"_r{self.window}.{self.ahead}.{self.stages}" + "_d" * self.drift


def _strands(pattern: CSR, starts: Int64s, strides: Int64s, lengths: Int64s) -> Strands:
    entries = np.arange(pattern.nnz, dtype=np.uint32)
    return Strands.of(starts, strides, lengths, pattern.indices, entries, (pattern.k, 0xFFFFFFFF))


def _rows(pattern: CSR) -> Strands:
    lengths = pattern.row_lengths
    return _strands(pattern, pattern.offsets[:-1].astype(np.int64), np.ones_like(lengths), lengths)


def _parted(pattern: CSR, rows: Strands, part: int, parts: int) -> tuple[Int64s, Int64s, Strands]:
    """Part and row of each strand, and the strands: the nonzeros of one row in one part, or an even share of them."""
    ends = rows.landed(np.arange(pattern.k) // part, parts)[:-1]
    lengths = np.diff(ends, prepend=0)
    starts = (pattern.offsets[:-1, None] + ends - lengths).T.ravel()
    lengths = lengths.T.ravel()
    mean = pattern.nnz / np.count_nonzero(lengths)
    limit = max(_LONG_ROW[0] * mean, mean + _LONG_ROW[1] * np.sqrt(mean))
    shares = np.ceil(lengths / limit).astype(np.int64)
    held = np.repeat(np.arange(lengths.size), shares)
    share, of = ranks(shares), shares[held]
    share_lengths = (lengths[held] - share + of - 1) // of
    return (*np.divmod(held, pattern.m), _strands(pattern, starts[held] + share, of, share_lengths))


def _deal(part_of: Int64s, lengths: Int64s, tiling: RingSddmmTiling) -> Int64s:
    """(parts, groups, warps, row_steps, sub) strands, -1 where there is none; each part is dealt on its own."""
    groups = max(1, -(-int(np.bincount(part_of).max()) // tiling.block_m))
    dealt = []
    for part in range(tiling.parts):
        own = np.flatnonzero(part_of == part)
        held = deal_bundles(lengths[own], groups, tiling.warps, tiling.row_steps, tiling.sub)
        dealt.append(np.append(own, -1)[held])
    return np.stack(dealt)


def pack(pattern: CSR, tiling: RingSddmmTiling, shared: SharedWork | None = None) -> dict[str, Array]:
    """The buffers of `pattern`, which has nonzeros, by name (see the header of `ring_sddmm.cu`).

    Byte `offsets` in the ring and `positions` among the pattern's entries, -1 where there is none, are (units, 4), as
    the warps of `tiling` meet them; `row_ids` are (parts, groups, warps, row_steps, sub), -1 where there is no row.
    `shared` is what packings share.
    """
    shared = shared or SharedWork()
    sub, chunks = tiling.sub, tiling.chunks(pattern.k)
    part = chunks * tiling.block_k
    rows = shared.once("rows", lambda: _rows(pattern))
    key = ("strands", part, tiling.parts)
    part_of, row_of, strands = shared.once(key, lambda: _parted(pattern, rows, part, tiling.parts))
    dealt = _deal(part_of, strands.lengths, tiling)
    bundles = dealt.reshape(-1, sub)
    columns = np.arange(pattern.k) % part
    landed = shared.once(
        ("landed", part, tiling.parts, tiling.block_k), lambda: strands.landed(columns // tiling.block_k, chunks)
    )
    progress = even_progress(np.arange(1, chunks + 1), (tiling.window - 1) / 2, chunks)
    layout = tiling.layout(strands, landed, bundles, tiling.window - 1, progress, _UNIT)
    ring_rows, row_bytes = tiling.stages * tiling.block_k, tiling.row_bytes
    stored = _UNIT * (layout.units + _READ_AHEAD * sub)
    offset_of = (np.append(columns % ring_rows, ring_rows) * row_bytes).astype(np.uint32)
    offsets, positions = np.empty(stored, dtype=np.uint32), np.empty(stored, dtype=np.uint32)
    offsets[_UNIT * layout.units :], positions[_UNIT * layout.units :] = offset_of[-1], 0xFFFFFFFF
    for span, words in layout.read(strands.words):
        offsets[span], positions[span] = offset_of[words[:, 0]], words[:, 1]
    return {
        "starts": layout.starts,
        "trips": layout.trips,
        "row_ids": np.where(dealt >= 0, row_of[dealt], -1).astype(np.int32),
        "offsets": offsets.reshape(-1, _UNIT),
        "positions": positions.view(np.int32).reshape(-1, _UNIT),
    }


# lanes and floats per lane; then warps and row sets
_LANES = ((8, 16), (8, 8), (4, 16), (8, 4), (4, 8))
_WARPS = ((16, 1), (16, 2), (8, 1), (8, 2))
_PARTS = (1, 2, 4, 8, 16)
_MOST_TILINGS = 8
_ENTRY_WAVEFRONTS = 0.8
"""Of a nonzero's place, sum and store, beside those of its row of B."""
_ENTRY_ISSUE = 0.55
"""Cycles of a scheduler for the same."""
_FILL_BYTES = 40
"""That reach a multiprocessor per cycle from L2."""
_START_CYCLES = 2500
"""Until a block's first chunk and rows of A have landed, and after its last."""
_SUM_CYCLES = 3500
"""Of a second launch."""
_SUM_BYTES = 2000
"""Parts of sums written and read per cycle."""


def _cycles(tiling: RingSddmmTiling, problem: Problem, nnz: int, sms: int) -> float:
    """A rough model: the wavefronts of a multiprocessor's shared memory, and what does not overlap with them."""
    groups, slices = -(-problem.m // tiling.block_m), -(-problem.k // tiling.block_n)
    blocks = groups * tiling.parts * slices
    held = max(1.0, nnz / (problem.m * tiling.parts))
    entries = nnz / (groups * tiling.parts) * (1 + _UNIT / 2.5 / held)
    fill = problem.n / tiling.parts * tiling.block_n * 4
    wavefronts = entries * (tiling.block_n / 32 + _ENTRY_WAVEFRONTS) + fill / 128
    issue = entries * (tiling.block_n * 5 / 4 / 128 + _ENTRY_ISSUE)
    alone = 1.0 if tiling.warps >= 16 or blocks >= 2 * sms else 1.2  # too few warps to hide latency
    work = max(wavefronts * alone, issue, fill / _FILL_BYTES)
    added = _SUM_CYCLES + 8 * slices * nnz / _SUM_BYTES if slices > 1 else 0
    return -(-blocks // sms) * (work + _START_CYCLES) + added


def tilings(problem: Problem, nnz: int, arch: str) -> list[RingSddmmTiling]:
    """Tilings worth trying, the likeliest first."""
    target = architecture(arch)
    sms, limit = sm_count(arch), target.block_shared_bytes
    drifts = (False, True) if target.has("mbarrier") else (False,)
    found: list[RingSddmmTiling] = []
    for lanes, vec in _LANES:
        for warps, row_steps in _WARPS:
            for parts in _PARTS:
                shape = RingSddmmTiling(lanes, vec, warps, row_steps, parts=parts)
                if (parts > 1 and parts * 64 > problem.n) or vec * row_steps * (8 // lanes) > 32:
                    continue
                if shape.block_n >= 2 * max(problem.k, 32) or shape.block_m >= 2 * max(problem.m, 32):
                    continue
                for drift in drifts:
                    budget = (limit // 2 if warps == 8 else limit) - 1280
                    # with a longer window a row could have more units in a step than a byte counts
                    tiling = replace(shape, drift=drift).with_ring(problem.n, budget, drift, MOST_UNITS * _UNIT)
                    if tiling is None or (tiling.resident(problem.n) and not drift and len(drifts) > 1):
                        continue  # where all of B stays, drifting takes no room from the window
                    found.append(tiling)
    return sorted(found, key=lambda tiling: _cycles(tiling, problem, nnz, sms))[:_MOST_TILINGS]


def make_plan(problem: Problem, operands: Operands, tiling: RingSddmmTiling, shared: SharedWork | None = None) -> Plan:
    """The plan of one tiling for `problem`; `operands.dense` holds `a` (m, k) and `b` (n, k).

    Raises `Unsupported` where the parts of the sums, one for each slice of k, take too much memory.
    """
    shared = shared or SharedWork()
    elapsed = shared.timer()
    pattern, k = operands.sparse, problem.k
    slices = -(-k // tiling.block_n)
    if slices > 1 and (4 * slices * pattern.nnz > _MOST_SUM_BYTES or slices > MOST_GRID_Y):
        raise Unsupported(f"{slices} slices of k for {pattern.nnz} nonzeros are too many sums to keep")
    packed = pack(pattern, tiling, shared)
    groups = packed["row_ids"].shape[1]
    dense = {name: operands.dense[name] for name in "ab"}
    buffers: dict[str, Array] = {**packed, **dense, "d": np.empty(pattern.nnz, dtype=np.float32)}
    chunks, count, args = tiling.chunks(pattern.k), pattern.nnz, [*buffers]
    strands = min(32, power_of_two_at_least(-(-slices // _STRAND_SLICES)))
    then: tuple[Launch, ...] = ()
    if slices > 1:
        args[-1] = "sums"
        buffers["sums"] = np.zeros((slices, count), dtype=np.float32)
        blocks = (-(-count * strands // _SUM_THREADS), 1, 1)
        then = (Launch("ring_sddmm_sum", blocks, (_SUM_THREADS, 1, 1), (count, slices, "sums", "d")),)
    return tiling.plan(
        "ring_sddmm",
        (groups, tiling.parts, slices),
        (pattern.k, k, chunks * tiling.block_k, chunks, count, *args),
        buffers,
        "d",
        defines={"FILL": vector_width(k, 4), "SUM_STRANDS": strands},
        then=then,
        generate_ms=elapsed(),
    )


@kernel("nnzbench", "sddmm", "f32", About("own", rank=140))
def ring_sddmm(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Own SDDMM that reads B once per block and multiplies out of shared memory.

    One plan per tiling; raises `Unsupported` where there is nothing to compute.
    """
    if operands.sparse.nnz == 0:
        raise Unsupported("the pattern has no nonzeros")
    shared = SharedWork()
    yield from plans_that_fit(
        tilings(problem, operands.sparse.nnz, arch),
        lambda tiling: make_plan(problem, operands, tiling, shared),
        "no tiling fits in shared memory",
    )
