"""Kernel `ring`: SpMM that streams B through a ring of chunks in shared memory past rows of C kept in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnzbench.core.architectures import block_shared_bytes, sm_count
from nnzbench.core.plan import Array, Int64s, Plan, SharedWork, Unsupported, plans_that_fit
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.ring.order import RingTiling, Strands, deal_bundles, even_progress
from nnzbench.kernels.rows import vector_width

_UNIT = 2
"""Nonzeros of a row that travel together, 16 bytes of them."""
_MOST_READ_AHEAD = 4
"""So many units behind the last one are read, not used."""


@dataclass(frozen=True)
class RingSpmmTiling(RingTiling):
    """Compile-time shape of `ring_spmm.cu`."""

    CHUNKS: ClassVar = (256, 128, 64, 32)
    LEAST_CHUNKS: ClassVar = 2
    MOST_AHEAD: ClassVar = 3

    ksplit: int = 1
    """Warps that share a row."""

    @property
    def block_m(self) -> int:
        return self.warps // self.ksplit * self.row_steps * self.sub

    @property
    def read_ahead(self) -> int:
        """Units that a warp reads before their use.

        More in tilings for uneven rows, whose warps are at times alone in a step with nothing to hide their latency.
        In others it costs 1 to 4 %.
        """
        return _MOST_READ_AHEAD if self.ksplit == 4 and self.row_steps == 4 else 2

    @property
    def first(self) -> int:
        """Rows of B that the first step waits for."""
        return min(64, self.block_k // 2)

    def steps(self, k: int) -> Int64s:
        """Rows of B that have landed in each step."""
        return np.append(self.first, np.minimum(np.arange(1, -(-k // self.block_k) + 1) * self.block_k, k))

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory per block: the ring and the row of zeros behind it, or later the sums to be joined."""
        ring = self.row_bytes * (self.stages * self.block_k + 1)
        return max(ring, (self.ksplit - 1) * self.block_m * self.block_n * 4)

    @property
    def defines(self) -> dict[str, int | str]:
        return {**super().defines, "FIRST": self.first, "READ_AHEAD": self.read_ahead}

    @property
    def name(self) -> str:
        text = f"m{self.block_m}_n{self.block_n}_k{self.block_k}_w{self.warps}_l{self.lanes}"
        text += f"_r{self.window}.{self.ahead}.{self.stages}"
        return text + f"_s{self.ksplit}" * (self.ksplit > 1)


def _strands(matrix: CSR, split: int) -> Strands:
    """Nonzero j of a row goes to its part j % split, so that all parts are as long and advance at the same rate."""
    part = np.arange(split)
    starts = (matrix.offsets[:-1, None] + part).ravel()
    lengths = ((matrix.row_lengths[:, None] + split - 1 - part) // split).ravel()
    values = matrix.values.astype("<f4", copy=False).view("<u4")
    return Strands.of(starts, np.full(starts.size, split), lengths, matrix.indices, values, (matrix.k, 0))


def _dealt(lengths: Int64s, tiling: RingSpmmTiling, shared: SharedWork) -> Int64s:
    """`deal_bundles` to the blocks of `tiling`, and of every other that has as many rows in as many places."""
    places = -(-lengths.size // tiling.block_m), tiling.warps // tiling.ksplit, tiling.row_steps, tiling.sub
    return shared.once(("dealt", *places), lambda: deal_bundles(lengths, *places))


def pack(matrix: CSR, tiling: RingSpmmTiling, shared: SharedWork | None = None) -> dict[str, Array]:
    """The buffers of `matrix` by name (see the header of `ring_spmm.cu`), as the warps of `tiling` meet its nonzeros.

    `stream` (units, 4) has words: two {offset in the ring, value} pairs each.
    `row_ids` are (groups, warps / ksplit, row_steps, sub), -1 where there is no row. `shared` is what packings share.

    Raises `Unsupported` where a row has more nonzeros in one step than a byte can count units.
    """
    shared = shared or SharedWork()
    split, sub, sets = tiling.ksplit, tiling.sub, tiling.row_steps
    row_ids = _dealt(matrix.row_lengths, tiling, shared)
    groups = len(row_ids)
    strands = shared.once(("strands", split), lambda: _strands(matrix, split))
    held = row_ids[:, None] >= 0
    parts = np.where(held, row_ids[:, None] * split + np.arange(split)[:, None, None, None], -1)
    parts = parts.reshape(groups * tiling.warps * sets, sub)

    arrival = tiling.steps(matrix.k)
    step_of = np.searchsorted(arrival, np.arange(matrix.k), side="right")
    landed = shared.once(("landed", split, tiling.block_k), lambda: strands.landed(step_of, arrival.size))
    progress = even_progress(arrival, (tiling.window - 1) / 2 * tiling.block_k, matrix.k)
    layout = tiling.layout(strands, landed, parts, tiling.window, progress, _UNIT)
    ring_rows = tiling.stages * tiling.block_k
    offsets = np.append(np.arange(matrix.k) % ring_rows, ring_rows) * tiling.row_bytes
    stream = np.empty((_UNIT * (layout.units + _MOST_READ_AHEAD * sub), 2), dtype="<u4")
    stream[_UNIT * layout.units :] = offsets[-1], 0
    for span, halves in layout.read(strands.words):
        stream[span, 0], stream[span, 1] = offsets[halves[:, 0]], halves[:, 1]
    return {
        "starts": layout.starts,
        "trips": layout.trips,
        "row_ids": row_ids.astype(np.int32),
        "stream": stream.reshape(-1, 4),
    }


# lanes and columns per lane; then warps, row sets and warps per row
_LANES = ((8, 16), (4, 16), (8, 8), (4, 8), (8, 4), (2, 16))
_WARPS = (
    (16, 1, 1), (16, 2, 1), (16, 4, 1), (8, 1, 1),
    (16, 1, 2), (16, 2, 2), (16, 1, 4), (16, 2, 4), (16, 4, 4), (16, 1, 8),
)  # fmt: skip
_UNIT_WAVEFRONTS = 3
"""Of reading a unit of A for all rows of a set."""
_NONZERO_INSTRUCTIONS = 8
"""Of a warp for a nonzero, beside products: half of those are the loads of B."""
_UNIT_CYCLES = 60
"""Latency of a unit for a warp that has the multiprocessor to itself, beside issuing its loads and products."""
_JOIN_CYCLES = 400
_EXCESS = 0.5
"""Share of a warp's work beyond the mean that adds to a block's time: alone, it has more of the port."""
_START_CYCLES = 2000
"""Until a block's first chunk has landed, and after its last."""
_MOST_TILINGS = 12


def _excess(tiling: RingSpmmTiling, lengths: Int64s, waves: int, shared: SharedWork) -> float:
    """Work of a block's heaviest warp over the mean of all warps, less 1; of several waves, in the average block."""
    loads = np.append(lengths, 0)[_dealt(lengths, tiling, shared)].max(axis=3).sum(axis=2)
    heaviest = loads.max(axis=1)
    return float(heaviest.max() if waves == 1 else heaviest.mean()) / float(loads.mean()) - 1


def _cycles(tiling: RingSpmmTiling, problem: Problem, lengths: Int64s, sms: int, excess: float) -> float:
    """A rough model: wavefronts or instructions of a multiprocessor, and what does not overlap with them.

    `excess` is the tiling's `_excess`.
    """
    blocks = -(-problem.m // tiling.block_m) * -(-problem.n // tiling.block_n)
    products = float(lengths.mean()) * tiling.block_m * tiling.block_n / 32
    conflicts = 1.5 if tiling.row_bytes < 128 else 1.0  # rows of a quarter warp share banks
    reads = conflicts + _UNIT_WAVEFRONTS / (_UNIT * tiling.vec)
    issues = (1 + _NONZERO_INSTRUCTIONS / tiling.vec) / 4  # four schedulers
    work = products * max(reads, issues) + problem.k * tiling.row_bytes / 128
    joins = _JOIN_CYCLES * (tiling.ksplit - 1)
    alone = 1.0 if tiling.warps >= 16 or blocks >= 2 * sms else 1.15  # too few warps to hide latency
    unit = _UNIT_CYCLES + 2 * _UNIT * tiling.vec
    longest = float(lengths.max()) / tiling.ksplit / _UNIT * unit  # one row may outlast the rest
    work *= alone * (1 + _EXCESS * excess)
    return max(-(-blocks // sms) * (work + _START_CYCLES + joins), longest)


def tilings(problem: Problem, lengths: Int64s, arch: str, shared: SharedWork | None = None) -> list[RingSpmmTiling]:
    """Tilings worth trying, the likeliest first. `lengths` (m,): nonzeros of each row; `shared` as for `pack`."""
    shared = shared or SharedWork()
    sms, limit = sm_count(arch), block_shared_bytes(arch)
    ranked: list[tuple[float, RingSpmmTiling]] = []
    for lanes, vec in _LANES:
        for warps, row_steps, ksplit in _WARPS:
            shape = RingSpmmTiling(lanes, vec, warps, row_steps, ksplit=ksplit)
            blocks = -(-problem.m // shape.block_m) * -(-problem.n // shape.block_n)
            if shape.block_n >= 2 * max(problem.n, 32) or shape.block_m >= 2 * problem.m or blocks < sms // 4:
                continue
            if row_steps * vec > 64 or (shape.block_n == 128 and vec * row_steps * ksplit > 64):
                continue
            budget = (limit // 2 if warps == 8 and blocks >= 2 * sms else limit) - 1024
            tiling = shape.with_ring(problem.k, budget)
            if tiling is not None and tiling.shared_bytes <= budget:
                excess = _excess(tiling, lengths, -(-blocks // sms), shared)
                ranked.append((_cycles(tiling, problem, lengths, sms, excess), tiling))
    return [tiling for _, tiling in sorted(ranked, key=lambda entry: entry[0])[:_MOST_TILINGS]]


def make_plan(problem: Problem, operands: Operands, tiling: RingSpmmTiling, shared: SharedWork | None = None) -> Plan:
    """The plan of one tiling for `problem`; `operands.dense["b"]` is (k, n)."""
    shared = shared or SharedWork()
    elapsed = shared.timer()
    packed = pack(operands.sparse, tiling, shared)
    b = operands.dense["b"]
    buffers = {**packed, "b": b, "c": np.empty((problem.m, problem.n), dtype=b.dtype)}
    grid = (len(packed["row_ids"]), -(-problem.n // tiling.block_n), 1)
    sizes = (problem.k, problem.n, tiling.steps(problem.k).size)
    fill = {"FILL": vector_width(problem.n, 4)}
    return tiling.plan("ring_spmm", grid, sizes, buffers, defines=fill, generate_ms=elapsed())


@kernel("nnzbench", "spmm", "f32", About("own", rank=130))
def ring(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Own streaming SpMM whose warps advance several rows side by side at an even pace.

    One plan per tiling; raises `Unsupported` where no tiling fills the GPU.
    """
    if operands.sparse.nnz == 0:
        raise Unsupported("the matrix has no nonzero")
    shared = SharedWork()
    yield from plans_that_fit(
        tilings(problem, operands.sparse.row_lengths, arch, shared),
        lambda tiling: make_plan(problem, operands, tiling, shared),
        f"{problem.m}x{problem.k}x{problem.n} has too few tiles to fill the GPU",
    )
