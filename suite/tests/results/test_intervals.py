"""The published 95 % interval of a mean of ratios, against the one that statistics has for it."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from nnzbench.results.groups import ALL, Group
from nnzbench.results.result_set import geometric_mean
from nnzbench.results.table import _mean, _paired, _statistics, facts_of_pairs, spread, tuning_gains


@pytest.mark.parametrize("geometric", [False, True])
def test_the_interval_is_that_of_95_percent(geometric):
    drawn = np.random.default_rng(3).normal(0.0, 0.2, 400)
    ratios = np.exp(drawn) if geometric else 2.0 + drawn
    mean, low, high = _mean(ratios, np.ones(400), np.arange(400), geometric)
    inside = np.log if geometric else np.asarray
    half = 1.96 * drawn.std(ddof=1) / np.sqrt(400)
    assert (inside(high) - inside(mean), inside(mean) - inside(low)) == pytest.approx((half, half), rel=0.07)


def test_a_geometric_mean_is_the_root_of_the_product():
    assert [geometric_mean(some) for some in ([1.0, 4.0, 16.0], [3.0])] == pytest.approx([4.0, 3.0])
    assert np.isnan(geometric_mean([]))


def test_patterns_of_one_matrix_are_drawn_together():
    ratios, of = np.repeat([1.0, 3.0], 50), np.repeat([0, 1], 50)
    assert _mean(ratios, np.ones(100), of, False) == (2.0, 1.0, 3.0)
    assert _mean(ratios, np.repeat([3.0, 1.0], 50), of, False) == (1.5, 1.0, 3.0)


@pytest.mark.parametrize("counted", [False, True])
def test_only_a_group_by_matrix_draws_matrices(counted):
    ratios = np.exp(np.random.default_rng(4).normal(0.0, 0.2, 100))
    twice = {"ratio": [*ratios, *ratios], "source": [*map(str, range(100))] * 2, "tuned": True, "one_run": True}
    widths = {}
    for one in (True, False):
        found = _statistics(Group(by_matrix=one, counted=counted), pd.DataFrame(twice | {"count": 3}))
        widths[one] = np.log(found["high"]) - np.log(found["low"])
    assert widths[True] == pytest.approx(2 * 1.96 * 0.2 / 10, rel=0.2)
    assert widths[True] / widths[False] == pytest.approx(np.sqrt(2), rel=0.1)


def test_pairs_are_apart_where_clocks_differ_or_empty_launches_do_and_change_the_ratio():
    rng = np.random.default_rng(6)

    def side():
        floors = [0.5, 0.55, 0.62, 0.64, 1.0, np.nan]  # a fifth of the larger lies between two of them
        cells = {"median_us": rng.choice([1.0, 24.0, 26.0], 2000), "floor_us": rng.choice(floors, 2000)}
        return pd.DataFrame(
            {**cells, "sm_clock_mhz": rng.choice([1980.0, 1965.0, 1755.0], 2000), "run": "r", "tuned": True}
        )

    below, above = side(), side()
    found = _paired(ALL, below, above)
    assert found["ratio"].tolist() == (above["median_us"] / below["median_us"]).tolist()
    for one, a, b in zip(found["apart"], below.itertuples(), above.itertuples(), strict=True):
        floors, least = abs(a.floor_us - b.floor_us), min(a.median_us, b.median_us)
        changed = floors > 0.02 * least and floors > 0.2 * max(a.floor_us, b.floor_us)
        assert one == (changed or ({a.sm_clock_mhz, b.sm_clock_mhz} >= {1755.0} and a.sm_clock_mhz != b.sm_clock_mhz))
    assert 100 < found["apart"].sum() < 1900


def test_pairs_of_two_sources_have_the_ratio_of_their_times_or_else_the_one_that_is_printed():
    rows = [("a", 2.0, 6.0, 9.0), ("a", np.nan, np.nan, 12.0), ("b", 4.0, 2.0, np.nan), ("b", np.nan, 1.0, np.nan)]
    made = pd.DataFrame(rows, columns=["subject", "us", "over_us", "printed"]).assign(tuned=True, one_run=False)
    found = facts_of_pairs(made.assign(experiment="e", group="g", baseline="c", policy="hot")).set_index("subject")
    assert found["ratio"].to_dict() == pytest.approx({"a": 6.0, "b": 0.5})
    assert found[["n", "wins"]].to_numpy().tolist() == [[2, 2], [1, 0]]


def test_tuning_gained_what_the_fastest_first_choice_took_longer_where_it_was_done():
    """Of kernels that were not tuned on some other problem: the rest need no such estimate."""
    rows = [
        ("ring", "p", 6.0, True, ""),
        ("ring", "p", 2.0, False, ""),
        ("ring", "p", 5.0, True, ""),
        ("eie", "p", 1.0, True, ""),
    ]
    rows += [("ring", "s", 3.0, True, ""), ("ring", "s", 1.0, False, "")]
    rows += [("ring", "q", 4.0, True, ""), ("ring", "r", 1.0, True, "time"), ("ring", "q", 1.0, False, "")]
    made = pd.DataFrame(rows, columns=["kernel", "problem", "median_us", "untuned", "cut_short"])
    pruned = made[:1].assign(median_us=0.5, superseded=True)  # where the unpruned matrix has a time
    found = tuning_gains(pd.concat([made.assign(superseded=False), pruned]).assign(math="f32", policy="hot"))
    assert found[["kernel", "math", "policy", "n"]].to_numpy().tolist() == [["ring", "f32", "hot", 3]]
    assert found["gain"].tolist() == pytest.approx([np.cbrt(5 / 2 * 4 * 3)])


def test_a_spread_is_of_two_problems_or_more_that_are_alike():
    rows = [("a", 1.0), ("b", 2.0), ("a", 3.0), ("c", 4.0), ("c", 4.0), ("c", 7.0)]
    cells = pd.DataFrame(rows, columns=["size", "median_us"]).assign(subject="s", policy="hot")
    found = spread(SimpleNamespace(cells=lambda _: cells), [], ["size"]).set_index("size")
    assert found["slowest"].to_dict() == pytest.approx({"a": 3.0, "c": 7 / 4})
    assert found["deviation"].to_dict() == pytest.approx({"a": np.sqrt(2) / 2, "c": np.sqrt(3) / 5})
