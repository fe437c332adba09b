"""The speed-of-light score: 0.5 at the best dense product in a row's arithmetic, 1 at the row's roofline."""

import numpy as np
import pandas as pd
import pytest

from nnzbench.results.result_set import _sol, division
from nnzbench.results.roofline import sol_score


def test_the_score_falls_from_the_roofline_through_dense_and_has_no_value_where_dense_is_at_the_roofline():
    us = pd.Series([1.0, 2.0, 4.0, 10.0, 1000.0])
    score = sol_score(us, 2.0 + 0 * us, 10.0 + 0 * us)
    assert score.tolist() == pytest.approx([1.0, 1.0, 0.8, 0.5, 8 / 1006])
    assert sol_score(us, 2.0 + 0 * us, 2.0 + 0 * us).isna().all()


@pytest.mark.parametrize(
    ("scopes", "said"),
    [
        ("all all", "tuned: "),
        ("all first", "tuned on 1 of 2 problems"),
        ("some first", "by rule: "),
        ("", "tuned on 1"),
    ],
)
def test_a_set_is_by_rule_or_tuned_or_some_of_both(scopes, said):
    frame = pd.DataFrame({"problem": ["p", "q", "q"], "search": ["all", *(scopes.split() or ["all", ""])]})
    assert division(frame if scopes != "some first" else frame[1:]).startswith(said)


def test_scores_are_of_whole_rows_over_the_dense_libraries_that_compete():
    rng = np.random.default_rng(6)
    choices = {
        "part": ["", "", "up"], "status": ["ok", "ok", "wrong"], "work": ["dense", "sparse"], "stem": ["p", "q"],
        "role": ["library", "own"], "superseded": [False, True], "policy": ["hot", "cold"], "math": ["f32", "tf32"],
        "median_us": [2.0, 3.0, 5.0, 9.0],
    }  # fmt: skip
    frame = pd.DataFrame({name: rng.choice(some, 200) for name, some in choices.items()}).assign(limit_us=2.0)
    every = list(frame.itertuples())
    for row, score in zip(every, _sol(frame), strict=True):
        dense = [
            one.median_us for one in every
            if (one.part, one.status, one.work, one.role, one.superseded) == ("", "ok", "dense", "library", False)
            and (one.stem, one.policy, one.math) == (row.stem, row.policy, row.math)
        ]  # fmt: skip
        if row.part or row.status != "ok" or min(dense, default=0.0) <= 2.0:
            assert np.isnan(score)
        else:
            assert score == pytest.approx(1 / (1 + (row.median_us - 2.0) / (min(dense) - 2.0)))
    assert 20 < _sol(frame).notna().sum() < 100
