"""Theorem 1 by sampling: against what the sum of squares must be, and on its page."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from nnzbench.facts.results import nothing
from nnzbench.papers.balanced import balanced_theorem1 as theorem
from nnzbench.report import render


def test_the_sampled_variance_is_the_sum_of_the_squares_taken_away():
    cut = norm.ppf(0.75)  # half of all magnitudes lie below it
    squares = 0.5 - 2 * cut * norm.pdf(cut)
    found = theorem.sample(0.5, 32)
    assert found.zeros == 0.5
    assert found.random == pytest.approx(theorem.N * squares, rel=0.03)
    assert 1.05 < found.balanced / found.random < 1.2
    assert abs(found.mean) < 0.02


def test_small_balance_ranges_cost_more_than_large_ones():
    more = [one.balanced / one.random for one in theorem.samples() if one.zeros == 0.5]
    assert sorted(more, reverse=True) == more


def test_equation_3_is_how_uncertain_the_kth_smallest_of_a_sample_is():
    rng = np.random.default_rng(0)
    drawn = np.sort(rng.standard_normal((4000, 99)), axis=1)[:, 49]  # the median
    assert theorem.order_variance(np.array([49.5]), 99)[0] == pytest.approx(drawn.var(), rel=0.06)


def test_its_page_is_drawn_from_nothing_recorded(tmp_path):
    folder = tmp_path / "balanced_theorem1"
    folder.mkdir()
    text = render.write(theorem.page(), nothing(folder)).read_text(encoding="utf-8")
    assert text.count("| 50 |") == len(theorem.RANGES)
