"""Rows dealt to warps, each once and evenly; nonzeros taken between landing and leaving, at an even pace."""

from contextlib import nullcontext

import numpy as np
import pytest

from nnzbench.core.plan import Unsupported
from nnzbench.kernels.ring.order import (
    Strands,
    deadlines,
    even_progress,
    in_bundles,
    lay_out,
    schedule,
    warp_phases,
)
from nnzbench.kernels.ring.spmm import RingSpmmTiling

WARPS, SETS, SUB, STEPS, WINDOW, UNIT = 4, 2, 3, 9, 3, 2
ROWS = WARPS * SETS * SUB - 1
BUNDLES = np.insert(np.random.default_rng(0).permutation(ROWS), 7, -1).reshape(-1, SUB)


def nonzeros(seed):
    """Row and step of about 20 nonzeros of each row, row after row."""
    rng = np.random.default_rng(seed)
    row = np.sort(rng.integers(0, ROWS, 20 * ROWS))
    return row, np.sort(row * STEPS + rng.integers(0, STEPS, row.size)) % STEPS


def strands(row, step):
    """All rows, whose nonzeros are in columns 10 times their step; with each comes its number."""
    lengths = np.bincount(row, minlength=ROWS)
    starts = np.cumsum(lengths) - lengths
    number = np.arange(row.size, dtype=np.uint32)
    return Strands.of(
        starts, np.ones_like(lengths), lengths, 10 * step.astype(np.int32), number, (10 * STEPS, row.size)
    )


def landed_nonzeros(row, step):
    return in_bundles(strands(row, step).landed(np.arange(10 * STEPS) // 10, STEPS), BUNDLES)


def scheduled(seed):
    row, step = nonzeros(seed)
    landed = landed_nonzeros(row, step)
    progress = even_progress(np.arange(1, STEPS + 1), (WINDOW - 1) / 2, STEPS)
    due = deadlines(STEPS, WINDOW, WINDOW - 1)
    return landed, *schedule(landed, due, progress, warp_phases(1, WARPS, SETS), UNIT)


def test_deadlines_follow_the_chunk_that_leaves_and_the_last_step_ends_all():
    assert deadlines(6, 3, 2).tolist() == [-1, -1, 0, 1, 2, 5]
    assert deadlines(6, 3, 3).tolist() == [-1, -1, -1, 1, 2, 5]
    assert deadlines(1, 1, 1).tolist() == [0]


@pytest.mark.parametrize("seed", range(4))
def test_nonzeros_are_taken_between_landing_and_leaving(seed):
    landed, units, taken = scheduled(seed)
    done = np.cumsum(taken, axis=2)
    assert (done <= landed).all()
    assert (done[:, :, WINDOW - 1 :] >= landed[:, :, : STEPS - WINDOW + 1]).all()
    assert np.array_equal(done[:, :, -1], landed[:, :, -1])
    assert (taken <= UNIT * units[:, None]).all()


def test_strands_take_every_so_many_nonzeros_in_order():
    columns, payload = np.arange(100, 107, dtype=np.int32), np.arange(7, dtype=np.uint32)
    shared = Strands.of(np.array([0, 1, 4]), np.array([2, 2, 1]), np.array([2, 2, 3]), columns, payload, (9, 8))
    halves = shared.words.view(np.uint32).reshape(-1, 2)
    assert halves[:, 1].tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 8]
    assert halves[:, 0].tolist() == [100, 102, 101, 103, 104, 105, 106, 9, 9]
    assert shared.landed(np.arange(107) // 104, 2).tolist() == [[2, 2], [2, 2], [0, 3], [0, 0]]


def test_every_nonzero_has_a_place_in_its_warp_and_step():
    row, step = nonzeros(2)
    _, units, taken = scheduled(2)
    held = strands(row, step)
    layout = lay_out(units, taken, BUNDLES, held.lengths, SETS, UNIT)
    assert layout.units == units.sum() * SUB
    stream = np.full((layout.units * UNIT, 2), -1)
    for span, words in layout.read(held.words):
        stream[span] = words
    number = stream[:, 1]
    assert (stream[number == row.size, 0] == 10 * STEPS).all()
    places = np.argsort(number, kind="stable")[: row.size]
    assert np.array_equal(number[places], np.arange(row.size))
    assert np.count_nonzero(number == row.size) == number.size - row.size
    assert np.array_equal(stream[places, 0], 10 * step)
    bundle_of, lane_of = np.divmod(np.argsort(BUNDLES.ravel())[1:], SUB)  # of rows in rising order, behind the -1
    unit = places // UNIT
    assert np.array_equal(unit % SUB, lane_of[row])
    ends = np.append(layout.starts[1:], layout.units)
    warp = bundle_of[row] // SETS
    assert (unit >= layout.starts[warp]).all()
    assert (unit < ends[warp]).all()
    in_order = units.reshape(WARPS, SETS, STEPS).transpose(0, 2, 1)
    assert np.array_equal(layout.trips[:, :STEPS, :SETS], in_order)
    assert not layout.trips[:, STEPS].any()
    assert not layout.trips[:, :, SETS:].any()


@pytest.mark.parametrize("nonzeros", [510, 511])
def test_a_byte_counts_the_units_of_a_step(nonzeros):
    one, numbers = np.ones(1, np.int64), np.arange(nonzeros)
    held = Strands.of(0 * one, one, nonzeros * one, numbers.astype(np.int32), numbers.astype(np.uint32), (nonzeros, 0))
    tiling = RingSpmmTiling(32, 4, 1, 1, block_k=512, window=1)
    with pytest.raises(Unsupported, match="over 510") if nonzeros > 510 else nullcontext():
        tiling.layout(held, held.landed(0 * numbers, 1), np.zeros((1, 1), np.int64), 0, np.ones(1), UNIT)


LENGTHS = np.random.default_rng(0).gamma(4.0, 25.0, 4096).astype(np.int64)
