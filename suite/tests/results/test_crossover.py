"""Where dense and sparse are equally fast, against laws whose crossing is known, and against words and figures."""

import math

import numpy as np
import pytest

from nnzbench.results.crossover import ALWAYS, GAP, NEVER, WIDEST, Crossover, crossing, crossover, text, times_as_fast

SEEDS = pytest.mark.parametrize("seed", range(40))


@SEEDS
def test_times_that_are_powers_of_what_is_kept_cross_where_the_powers_do(seed):
    """And but for the two levels beside the last crossing no time has a part in it."""
    rng = np.random.default_rng(seed)
    levels = np.sort(rng.choice(np.arange(0.05, 0.99, 0.01), 6, replace=False))
    at, power = float(rng.uniform(levels[0] + 1e-6, levels[-1])), float(rng.uniform(0.1, 2.0))
    ratios = ((1 - at) / (1 - levels)) ** power
    between = int(np.searchsorted(levels, at))
    ratios[: between - 1] *= rng.uniform(0.5, 9.0, between - 1)
    ratios[between + 1 :] = rng.uniform(1.0, 5.0, levels.size - between - 1)
    points = [(float(levels[one]), float(ratios[one])) for one in rng.permutation(levels.size)]
    assert crossover(points) == pytest.approx(at)
    slower, faster = [(0.3, 2.0), (0.5, 0.9)], [(0.3, 1.0), (0.5, 1.2)]
    assert [crossover(some) for some in (slower, slower[::-1], faster, faster[:1])] == [NEVER, NEVER, ALWAYS, ALWAYS]


def test_a_crossover_in_words():
    assert math.isnan(crossover([]))
    told = [text(found, 0.5, 0.98) for found in (math.nan, ALWAYS, NEVER, 0.71234)]
    assert told == [GAP, "below 50 %", "above 98 %", "71.2 %"]
    assert times_as_fast(2.0, 6.0) == 3.0


@SEEDS
def test_widths_cross_where_powers_of_the_width_do(seed):
    """Between the last width where sparse is ahead and the next, and past it; wider ones are not looked at."""
    rng = np.random.default_rng(seed)
    widths = sorted({1, 7, 64, 4096, *map(int, 2 ** rng.uniform(0, 12, 3))})[: rng.integers(1, 8)]
    at, power = float(2 ** rng.uniform(-2, 13)), float(rng.uniform(0.1, 0.9))
    points = [(n, 5.0 * at**power / n**power, 5.0) for n in widths]  # dense over sparse time falls with the width
    points += [(WIDEST + 1, 1.0, 2.0 if at > 4096 else 0.1)]
    ahead, behind = [n for n in widths if n <= at], [n for n in widths if n > at]
    found = crossing([points[one] for one in rng.permutation(len(points))])
    if not (ahead and behind):
        assert found == Crossover(None, bool(ahead), widths[0], widths[-1])
        return
    wanted = min(max(round(at), ahead[-1] + 1), behind[0])
    assert found == Crossover(wanted, True, widths[0], widths[-1], ahead[-1], behind[0])
    assert ahead[-1] < found.told <= behind[0]
    assert found.told in (found.n, float(f"{found.n:.1e}"))


def test_what_crosses_twice_crosses_for_good_at_the_last_and_equal_times_are_sparses():
    points = [(1, 1.0, 2.0), (4, 2.0, 2.0), (16, 1.0, 2.0), (64, 9.0, 2.0), (256, 2.0, 9.0)]
    found = crossing(points)
    assert (found.sparse_wins, found.ahead, found.behind) == (False, 64, 256)
    assert crossing(points[1:2]).sparse_wins
    assert crossing([(WIDEST + 1, 1.0, 1.0)]) is None
    assert [Crossover(n, True, 1, 256, 64, end).told for n, end in ((134, None), (128, 129))] == [130, 128]
