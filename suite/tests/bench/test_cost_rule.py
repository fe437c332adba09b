"""Selection by fitted costs, on times that a known model made."""

import numpy as np
import pytest

from nnzbench.data.matrices.generate import uneven_rows
from nnzbench.kernels import cost_rule
from nnzbench.kernels.cost_rule import RuleCosts, Trial
from nnzbench.kernels.sputnik.spmm import heuristic_tile, oracle_tiles, tile_features

CONSTANTS = (3.0, 0.001, 0.01, 0.5, 0.3, 0.05)
NAMES = ("launch", "wavefronts", "rows", "longest_staged", "longest_prefetched", "blocks")
TRUE = RuleCosts(dict(zip(NAMES, CONSTANTS, strict=True)), {"y4_x128_w32_v4": 1.2})
SIZES = ((64, 256), (512, 512), (2048, 512), (256, 1024), (1024, 1024))
SHAPES = [(m, k, n, cov) for m, k in SIZES for n in (32, 196) for cov in (0.0, 0.5)]


def trials(noise: float = 0.0) -> list[Trial]:
    rng = np.random.default_rng(0)
    found = []
    for m, k, n, cov in SHAPES:
        lengths = uneven_rows(m, k, 0.9, cov, 0).row_lengths
        for tile in dict.fromkeys((heuristic_tile(n, 4), *oracle_tiles(n, 4))):
            features = tile_features(tile, lengths, n, 4, 132)
            us = TRUE.predict(features, tile.name) * np.exp(noise * rng.standard_normal())
            found.append(Trial(f"{m}x{k}x{n}/{cov}", f"{m}x{k}/{cov}", tile.name, features, float(us)))
    return found


def test_fitting_finds_the_model_that_made_the_times():
    made = trials()
    costs = cost_rule.fit(made)
    assert all(value >= 0 for value in costs.constants.values())
    errors = [abs(costs.predict(t.features, t.candidate) / t.us - 1) for t in made]
    assert np.median(errors) < 0.05


def test_choices_are_judged_on_matrices_that_were_not_fitted_to():
    made = trials(noise=0.03)
    judged = cost_rule.cross_validate(made)
    first = {name: rivals[0].candidate for name, rivals in cost_rule.contests(made).items()}
    assert judged.contests == len(SHAPES)
    assert judged.percent > 95
    assert cost_rule.score(made, first).percent < judged.percent


def test_no_fold_sees_the_matrix_it_is_judged_on():
    """Times that only the own matrix explains can't be learnt: a rule that did would have seen them."""
    rng = np.random.default_rng(1)
    made = []
    for matrix in range(40):
        fast = str(rng.integers(4))
        for candidate in "0123":
            features = {"launch": 1.0, f"only{matrix}": 1.0 if candidate == fast else 2.0}
            made.append(Trial(f"c{matrix}", f"m{matrix}", candidate, features, 1.0 if candidate == fast else 2.0))
    fitted = cost_rule.choices(cost_rule.fit(made), made)
    assert cost_rule.score(made, fitted).percent == pytest.approx(100)
    assert cost_rule.cross_validate(made).percent < 85


def test_scores_are_percent_of_the_oracle():
    times = {("c", "a"): 4.0, ("c", "b"): 5.0, ("d", "a"): 1.0, ("d", "b"): 3.0, ("no rival", "a"): 1.0}
    two = [Trial(contest, "m", candidate, {}, us) for (contest, candidate), us in times.items()]
    score = cost_rule.score(two, {"c": "b", "d": "a", "no rival": "a"})
    assert (score.percent, score.worst_percent, score.contests) == (pytest.approx(100 * 0.8**0.5), 80, 2)
    assert cost_rule.slowest(two) == {"c": "b", "d": "b", "no rival": "a"}
    assert cost_rule.score(two, cost_rule.slowest(two)).worst_percent == pytest.approx(100 / 3)
    assert cost_rule.score(two, {"c": "not timed"}).contests == 0


def test_a_candidate_that_nothing_is_known_of_is_not_chosen():
    rivals = [Trial("c", "m", "known", {"known.launch": 1.0}, 2.0), Trial("c", "m", "new", {"new.launch": 1.0}, 1.0)]
    assert cost_rule.choices(RuleCosts({"known.launch": 9.0}), rivals) == {"c": "known"}


def test_too_few_matrices_or_trials_are_refused():
    with pytest.raises(ValueError, match="1 matrices"):
        cost_rule.cross_validate([Trial("c", "m", "a", {"launch": 1.0}, 1.0)])
    with pytest.raises(ValueError, match="no trials"):
        cost_rule.fit([])


def test_constants_are_kept_and_read_again(tmp_path, monkeypatch):
    """Writing one rule anew leaves the others as they are."""
    cost_rule.save(tmp_path / "rule.csv", {"one": TRUE, "two": TRUE}, "here")
    cost_rule.save(tmp_path / "rule.csv", {"two": RuleCosts({"x": 1.5})}, "there")
    monkeypatch.setattr(cost_rule, "path", lambda: tmp_path / "rule.csv")
    cost_rule.load.cache_clear()
    try:
        assert cost_rule.load("one") == TRUE
        assert cost_rule.load("two") == RuleCosts({"x": 1.5})
        with pytest.raises(KeyError, match="three"):
            cost_rule.load("three")
    finally:
        cost_rule.load.cache_clear()
