"""When the warps of a ring kernel take the nonzeros of their rows, and where these lie in the stream that they read.

Chunks of a dense matrix land in a ring one after another and leave it again. Rows advance in bundles, side by side in a
warp, and take whole units of a few nonzeros each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_UNITS = 255
"""A byte counts the units of a bundle in a step."""
_MOST_SETS = 4
"""Bundles of a warp: their bytes of a step make up a word."""


def landed_nonzeros(
    bundles: NDArray[np.int64], row: NDArray[np.int64], step: NDArray[np.integer[Any]], steps: int
) -> NDArray[np.int64]:
    """Nonzeros of each row whose chunk is there by each step: (bundles, sub, steps).

    `bundles` (bundles, sub) holds all rows from 0 on, each once, and -1 where there is none; `row` and `step` (nnz,):
    the row of each nonzero, and the step in which its chunk lands.
    """
    rows = int(bundles.max(initial=-1)) + 1
    counts = np.zeros((rows + 1, steps), dtype=np.int64)  # one row more: -1 finds no nonzeros there
    counts[:-1] = np.bincount(row * steps + step, minlength=rows * steps).reshape(-1, steps)
    return np.cumsum(counts[bundles], axis=2)


def deadlines(steps: int, window: int, first: int) -> NDArray[np.int64]:
    """For each step (steps,): all that landed by which step must be taken by its end, -1 where nothing must.

    After step s the chunk that landed in step s - window + 1 leaves, from step `first` on; the last leaves nothing.
    """
    step = np.arange(steps)
    due = np.where(step >= first, step - window + 1, -1)
    due[-1] = steps - 1
    return due


def even_progress(landed: NDArray[np.int64], lag: float, whole: int) -> NDArray[np.float64]:
    """Share of its work that a warp aims to have done by each step, where `landed` (steps,) of `whole` has landed.

    It runs `lag` behind what has landed: half a window, so that rows whose nonzeros come early or late both find room.
    """
    aim: NDArray[np.float64] = np.maximum(landed / 2, landed - lag) / whole
    return aim


def warp_phases(groups: int, warps: int, row_sets: int) -> NDArray[np.float64]:
    """(groups * warps * row_sets,) in (0, 1), another for each warp of a block."""
    return np.tile(np.repeat((np.arange(warps) + 0.5) / warps, row_sets), groups)


def schedule(
    landed: NDArray[np.int64],
    due: NDArray[np.int64],
    progress: NDArray[np.float64],
    phase: NDArray[np.float64],
    unit: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When each bundle takes its nonzeros, `unit` of each row at a time.

    Apart from the deadlines `due` (steps,), a bundle takes whole units only, and keeps to a line of even `progress`
    (steps,), since then the warps of a block finish each step together, unless a row has nothing left to take: that
    would be padding. `phase` (bundles,) shifts the rounding of the line, so that not all warps round up in the same
    step.

    Returns the units (bundles, steps) that each row takes in each step, and the nonzeros in them (as `landed`).
    """
    bundles, _, steps = landed.shape
    units = np.zeros((bundles, steps), dtype=np.int64)
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

    starts: NDArray[np.int32]
    """(warps,) each warp's first unit."""
    trips: NDArray[np.uint8]
    """(warps, steps + 1, 4): units of each row set in each step, none behind the last."""
    places: NDArray[np.int64]
    """(nnz,) the place of each nonzero, in nonzeros: row after row, each row's in the order in which it takes them."""
    units: int
    """All units, padding included."""


def lay_out(
    units: NDArray[np.int64], taken: NDArray[np.int64], bundles: NDArray[np.int64], row_sets: int, unit: int
) -> Layout:
    """The stream in the order in which warps meet it: step, row set, unit, row of the set.

    `units` (at most `MOST_UNITS` each) and `taken` are those of `schedule`, `bundles` (warps * row_sets, sub) that of
    `landed_nonzeros`.
    """
    sub, steps = bundles.shape[1], units.shape[1]
    held = np.flatnonzero(bundles.ravel() >= 0)
    slot = np.empty(held.size, dtype=np.int64)  # the (warp, row set, lane group) that holds each row
    slot[bundles.ravel()[held]] = held
    in_order = units.reshape(-1, row_sets, steps).transpose(0, 2, 1)
    ends = np.cumsum(in_order.ravel()).reshape(in_order.shape) * sub
    first = (ends - in_order * sub).transpose(0, 2, 1).reshape(units.shape)
    takes = taken.reshape(-1, steps)[slot].ravel()
    within = np.arange(takes.sum()) - np.repeat(np.cumsum(takes) - takes, takes)
    start = first[slot // sub] + (slot % sub)[:, None]
    trips = np.zeros((in_order.shape[0], steps + 1, _MOST_SETS), dtype=np.uint8)
    trips[:, :steps, :row_sets] = in_order
    return Layout(
        starts=(ends[:, 0, 0] - in_order[:, 0, 0] * sub).astype(np.int32),
        trips=trips,
        places=unit * (np.repeat(start.ravel(), takes) + within // unit * sub) + within % unit,
        units=int(ends[-1, -1, -1]),
    )
