"""Rows dealt to warps: each once, and near-equal work for all."""

import numpy as np

from nnzbench.kernels.ring.order import bundled, deal_bundles, deal_rows

LENGTHS = np.random.default_rng(0).gamma(4.0, 25.0, 4096).astype(np.int64)


def test_rows_are_dealt_evenly():
    loads = LENGTHS[deal_rows(LENGTHS, 512, 8)].sum(axis=1)
    assert loads.max() < 1.02 * loads.mean()


def test_fewer_rows_than_places_are_dealt_evenly_too():
    lengths = np.full(300, 10)
    assert (np.append(lengths, 0)[deal_rows(lengths, 2, 256)].sum(axis=1) == 1500).all()


def test_a_heavy_row_gets_light_company():
    lengths = np.array([90, 40, 30, 30, 20, 10])
    assert sorted(lengths[deal_rows(lengths, 2, 3)].sum(axis=1)) == [100, 120]


def test_bundles_hold_each_row_once_beside_rows_of_its_length():
    rows, longest = bundled(LENGTHS[:1001], 128, 8)
    assert sorted(rows[rows >= 0]) == list(range(1001))
    assert (rows[126:] == -1).all()
    assert (longest[126:] == 0).all()
    assert np.array_equal(longest[:125], LENGTHS[rows[:125]].max(axis=1))
    assert (longest[:124] - LENGTHS[rows[:124]].min(axis=1)).mean() < 0.05 * LENGTHS.mean()


def test_blocks_and_the_warps_of_a_block_get_near_equal_work():
    lengths = np.random.default_rng(1).integers(50, 150, 4096)
    dealt = deal_bundles(lengths, 16, 8, 4, 8)
    assert dealt.shape == (16, 8, 4, 8)
    assert sorted(dealt.ravel()) == list(range(lengths.size))
    work = lengths[dealt].max(axis=3).sum(axis=2)
    assert work.max() < 1.02 * work.mean()
    assert work.sum(axis=1).max() < 1.005 * work.sum(axis=1).mean()


def test_no_rows_are_dealt_as_empty_places():
    assert (deal_bundles(np.empty(0, dtype=np.int64), 1, 2, 2, 4) == -1).all()
