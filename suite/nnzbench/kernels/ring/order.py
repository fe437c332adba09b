"""When the warps of a ring kernel take the nonzeros of their rows, and where these lie in the stream that they read.

Rows are first dealt to the warps of the grid so that all carry near-equal work.

Chunks of a dense matrix land in a ring one after another and leave it again. Rows advance in bundles, side by side in a
warp, and take whole units of a few nonzeros each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.plan import Int32s, Int64s, Uint32s, Unsupported
from nnzbench.core.tiles import TileConfiguration
from nnzbench.kernels.rows import deal_rows


def bundled(lengths: Int64s, bundles: int, sub: int) -> tuple[Int64s, Int64s]:
    """Rows in `bundles` of `sub` that advance side by side, neighbours in length: (bundles, sub), -1 empty.

    Also the length of each bundle's longest row, (bundles,).
    """
    padded = np.full(bundles * sub, -1, dtype=np.int64)
    padded[: lengths.size] = np.argsort(-lengths, kind="stable")
    rows = padded.reshape(-1, sub)
    return rows, np.append(lengths, 0)[rows].max(axis=1)  # -1 finds the 0, even where there are no rows


def deal_bundles(lengths: Int64s, groups: int, warps: int, row_sets: int, sub: int) -> Int64s:
    """Deals bundles of `sub` rows to blocks: (groups, warps, row_sets, sub), -1 empty.

    Blocks, and the warps of a block, carry near-equal work.
    """
    rows, longest = bundled(lengths, groups * warps * row_sets, sub)
    blocks = deal_rows(longest, groups, warps * row_sets)
    dealt: Int64s = np.stack([own[deal_rows(longest[own], warps, row_sets)] for own in blocks])
    return rows[dealt]


MOST_UNITS = 255
"""A byte counts the units of a bundle in a step."""
_MOST_SETS = 4
"""Bundles of a warp: their bytes of a step make up a word."""
_BLOCK = 1 << 15
"""Nonzeros that are packed at a time."""


@dataclass(frozen=True)
class Strands:
    """What lane groups work on: nonzeros of one row each, all or some of them."""

    lengths: Int64s
    """(strands,) nonzeros of each."""
    words: NDArray[np.uint64]
    """(nnz + 2,) strand by strand, a nonzero's column in the low half and what comes with it in the high; then two
    that stand for none."""

    @staticmethod
    def of(
        starts: Int64s, strides: Int64s, lengths: Int64s, columns: Int32s, payload: Uint32s, none: tuple[int, int]
    ) -> Strands:
        """Strand i takes `lengths[i]` of the nonzeros, from `starts[i]` on in steps of `strides[i]`.

        `columns` and `payload` (nnz,) are the halves of their words, `none` those of the words at the end.
        """
        words = np.empty((columns.size + 2, 2), dtype=np.uint32)
        words[columns.size :] = none
        begins = np.cumsum(lengths) - lengths
        if np.array_equal(starts[lengths > 0], begins[lengths > 0]) and (strides[lengths > 1] == 1).all():
            words[:-2, 0], words[:-2, 1] = columns, payload
            return Strands(lengths, words.reshape(-1).view(np.uint64))
        for low, high, begin, end in _blocks(np.cumsum(lengths), _BLOCK):
            run = slice(low, high)
            source = np.arange(begin, end) * np.repeat(strides[run], lengths[run])
            source += np.repeat(starts[run] - strides[run] * begins[run], lengths[run])
            words[begin:end, 0], words[begin:end, 1] = columns[source], payload[source]
        return Strands(lengths, words.reshape(-1).view(np.uint64))

    @property
    def columns(self) -> Uint32s:
        return self.words.view(np.uint32)[:-4:2]

    def landed(self, step_of: Int64s, steps: int) -> Int64s:
        """Nonzeros of each strand whose chunk is there by each step: (strands + 1, steps), the last row of zeros.

        `step_of` (k,) is the step in which a column's chunk lands.
        """
        counts = np.zeros((self.lengths.size + 1, steps), dtype=np.int64)
        for low, high, begin, end in _blocks(np.cumsum(self.lengths), _BLOCK):
            cell = np.repeat(np.arange(high - low) * steps, self.lengths[low:high])
            cell += step_of[self.columns[begin:end]]
            arrived = np.bincount(cell, minlength=(high - low) * steps).reshape(-1, steps)
            np.cumsum(arrived, axis=1, out=counts[low:high])
        return counts


def _blocks(ends: Int64s, size: int) -> Iterator[tuple[int, int, int, int]]:
    """Cuts a list of runs that end at `ends` into blocks of about `size` elements: (runs from, to, elements from, to).

    A block's temporaries then stay in the processor's cache, and need no fresh memory.
    """
    total = int(ends[-1]) if ends.size else 0
    cuts = np.searchsorted(ends, np.arange(size, total, size), side="right").tolist()
    low = begin = 0
    for high in [*cuts, ends.size]:
        if high > low:
            end = int(ends[high - 1])
            yield low, high, begin, end
            low, begin = high, end


def in_bundles(landed: Int64s, bundles: Int64s) -> Int64s:
    """`Strands.landed` of the strands that advance together: (bundles, sub, steps), with steps far apart in memory.

    `bundles` (bundles, sub) holds all strands from 0 on, each once, and -1 where there is none.
    """
    return np.moveaxis(np.ascontiguousarray(landed.T)[:, bundles], 0, 2)


def deadlines(steps: int, window: int, first: int) -> Int64s:
    """For each step (steps,): all that landed by which step must be taken by its end, -1 where nothing must.

    After step s the chunk that landed in step s - window + 1 leaves, from step `first` on; the last leaves nothing.
    """
    step = np.arange(steps)
    due = np.where(step >= first, step - window + 1, -1)
    due[-1] = steps - 1
    return due


def even_progress(landed: Int64s, lag: float, whole: int) -> NDArray[np.float64]:
    """Share of its work that a warp aims to have done by each step, where `landed` (steps,) of `whole` has landed.

    It runs `lag` behind what has landed: half a window, so that rows whose nonzeros come early or late both find room.
    """
    aim: NDArray[np.float64] = np.maximum(landed / 2, landed - lag) / whole
    return aim


def warp_phases(groups: int, warps: int, row_sets: int) -> NDArray[np.float64]:
    """(groups * warps * row_sets,) in (0, 1), another for each warp of a block."""
    return np.tile(np.repeat((np.arange(warps) + 0.5) / warps, row_sets), groups)


def schedule(
    landed: Int64s, due: Int64s, progress: NDArray[np.float64], phase: NDArray[np.float64], unit: int
) -> tuple[Int64s, Int64s]:
    """When each bundle takes its nonzeros, `unit` of each row at a time; `landed` is that of `in_bundles`.

    Apart from the deadlines `due` (steps,), a bundle takes whole units only, and keeps to a line of even `progress`
    (steps,), since then the warps of a block finish each step together, unless a row has nothing left to take: that
    would be padding. `phase` (bundles,) shifts the rounding of the line, so that not all warps round up in the same
    step.

    Returns the units (bundles, steps) that each row takes in each step, and the nonzeros in them (as `landed`).
    """
    bundles, _, steps = landed.shape
    units = np.zeros((steps, bundles), dtype=np.int64).T
    taken = np.zeros_like(landed)
    done = np.zeros_like(landed[:, :, 0])
    spent = np.zeros(bundles, dtype=np.int64)
    total = landed[:, :, -1]
    goal = -(-total.max(axis=1) // unit)
    for step in range(steps):
        there = landed[:, :, step] - done
        leaving = landed[:, :, due[step]] if due[step] >= 0 else done
        must = np.maximum(0, -(-(leaving - done).max(axis=1) // unit))
        # a row that is complete, or will be with these, waits for no other
        rest = np.where(done == total, goal[:, None], -(-there // unit))
        may = np.where(landed[:, :, step] == total, rest, there // unit)
        line = np.floor(goal * progress[step] + phase).astype(np.int64) - spent
        units[:, step] = np.maximum(must, np.minimum(line, may.min(axis=1)))
        taken[:, :, step] = np.minimum(there, unit * units[:, step, None])
        done += taken[:, :, step]
        spent += units[:, step]
    return units, taken


@dataclass(frozen=True)
class Layout:
    """Where things lie in the stream; a unit of one row is one element of it."""

    starts: Int32s
    """(warps,) each warp's first unit."""
    trips: NDArray[np.uint8]
    """(warps, steps + 1, 4): units of each row set in each step, none behind the last."""
    units: int
    """All units, padding included."""
    ends: Int64s
    """(runs,) where each bundle's units of a step end, counted per bundle, in the stream's order."""
    first: Int64s
    """(runs, sub) the strands' next nonzeros there, less those that as many units as lie before would hold."""
    last: Int64s
    """(runs, sub) and the ends of those that they take."""
    unit: int

    def read(self, words: NDArray[np.uint64]) -> Iterator[tuple[slice, Uint32s]]:
        """The stream block by block: a range of nonzeros, and the halves of their words, (nonzeros, 2).

        `words` are those of `Strands`; the last of them stands where a unit is not full.
        """
        pairs = np.ndarray(words.size - 1, np.complex128, words, strides=(8,))  # each word with the next one
        sub = self.first.shape[1]
        runs = np.diff(self.ends, prepend=0)
        within = np.arange(0, self.unit, 2)
        for low, high, begin, end in _blocks(self.ends, max(1, _BLOCK // (sub * self.unit))):
            run = np.repeat(np.arange(low, high), runs[low:high])
            at = self.first[run]
            at += np.arange(begin * self.unit, end * self.unit, self.unit)[:, None]
            left = self.last[run]
            left -= at
            at, left = (at[..., None] + within).ravel(), (left[..., None] - within).ravel()
            block = pairs[np.where(left > 0, at, words.size - 2)].view(np.uint64)
            block[1::2][left == 1] = words[-1]
            yield slice(begin * sub * self.unit, end * sub * self.unit), block.view(np.uint32).reshape(-1, 2)


def lay_out(units: Int64s, taken: Int64s, bundles: Int64s, lengths: Int64s, row_sets: int, unit: int) -> Layout:
    """The stream in the order in which warps meet it: step, row set, unit, row of the set.

    `units` (at most `MOST_UNITS` each) and `taken` are those of `schedule`, `bundles` (warps * row_sets, sub) that of
    `in_bundles`, `lengths` those of the strands; a unit is of 2 or 4 nonzeros.
    """
    sub, steps = bundles.shape[1], units.shape[1]
    in_order = units.reshape(-1, row_sets, steps).transpose(0, 2, 1)
    runs = in_order.ravel()
    ends = np.cumsum(runs)

    def by_run(of_steps: Int64s) -> Int64s:
        return of_steps.reshape(-1, row_sets, sub, steps).transpose(0, 3, 1, 2).reshape(-1, sub)

    begins = np.append(np.cumsum(lengths) - lengths, 0)[bundles]
    last = by_run(begins[:, :, None] + np.cumsum(taken, axis=2))
    first = last - by_run(taken) - (unit * (ends - runs))[:, None]
    trips = np.zeros((in_order.shape[0], steps + 1, _MOST_SETS), dtype=np.uint8)
    trips[:, :steps, :row_sets] = in_order
    starts = sub * (ends - runs)[:: steps * row_sets]
    return Layout(starts.astype(np.int32), trips, sub * int(ends[-1]), ends, first, last, unit)


_MOST_STAGES, _LEAST_STAGES = 16, 6
T = TypeVar("T", bound="RingTiling")


@dataclass(frozen=True)
class RingTiling(TileConfiguration):
    """Lanes of a row, what each holds, and the ring; the names are the defines of the `.cu` files."""

    CHUNKS: ClassVar[tuple[int, ...]]
    """Rows of B per chunk, the largest first."""
    LEAST_CHUNKS: ClassVar[int]
    """With fewer, a block waits for much of B before it starts."""
    MOST_AHEAD: ClassVar[int]
    """Chunks in flight where all of B stays."""

    lanes: int
    vec: int
    warps: int
    row_steps: int
    block_k: int = 0
    window: int = 0
    """Chunks that can be used in a step."""
    ahead: int = 0
    """Chunks in flight behind the window."""
    stages: int = 0
    """Chunks in shared memory: `window + ahead`, and where warps drift those that they may drift apart; or all of B."""

    @property
    def sub(self) -> int:
        """Rows that one warp advances side by side."""
        return 32 // self.lanes

    @property
    def block_n(self) -> int:
        """Columns of C per block, or length of the dot products."""
        return self.lanes * self.vec

    @property
    def row_bytes(self) -> int:
        """A row of B in the ring."""
        return 4 * self.block_n

    def chunks(self, columns: int) -> int:
        """Chunks that a block goes through."""
        return -(-columns // self.block_k)

    def with_ring(self: T, columns: int, budget: int, apart: bool = False, most_rows: int = 1 << 30) -> T | None:
        """The same with the ring of the largest chunks that fit `budget` bytes; None where no ring does.

        `apart`: stages are kept for warps to drift apart. A window has at most `most_rows` rows of B.
        """
        for block_k in self.CHUNKS:
            ring = replace(self, block_k=block_k)
            chunks = ring.chunks(columns)
            if chunks < self.LEAST_CHUNKS and block_k > self.CHUNKS[-1]:
                continue
            stages = min((budget - self.row_bytes) // (block_k * self.row_bytes), _MOST_STAGES)
            window, ahead = chunks, min(chunks, self.MOST_AHEAD)
            if stages < chunks:
                ahead = 2 if stages < 8 else 3
                window = stages - ahead - (ahead - 1) * apart
            if stages >= min(chunks, _LEAST_STAGES):
                return replace(ring, window=min(window, most_rows // block_k), ahead=ahead, stages=min(stages, chunks))
        return None

    def layout(
        self, strands: Strands, landed: Int64s, bundles: Int64s, first: int, progress: NDArray[np.float64], unit: int
    ) -> Layout:
        """The stream of `strands` that advance in `bundles`; `landed` is theirs, the rest as for `schedule`.

        Raises `Unsupported` where a row has more nonzeros in one step than a byte can count units.
        """
        blocks = len(bundles) // (self.warps * self.row_steps)
        units, taken = schedule(
            in_bundles(landed, bundles),
            deadlines(progress.size, self.window, first),
            progress,
            warp_phases(blocks, self.warps, self.row_steps),
            unit,
        )
        if units.max(initial=0) > MOST_UNITS:
            raise Unsupported(f"a row has over {unit * MOST_UNITS} nonzeros in {self.window * self.block_k} columns")
        return lay_out(units, taken, bundles, strands.lengths, self.row_steps, unit)
