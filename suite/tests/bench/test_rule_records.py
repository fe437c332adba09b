"""Rules' trials from records, and `nnzbench fit rule`, which fits constants to them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import invoke
from fake_records import timed

from nnzbench.data.matrices.generate import uniform
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels import cost_rule
from nnzbench.kernels.cost_rule import RuleCosts
from nnzbench.kernels.sputnik.sddmm import candidates, heuristic_strip, sddmm_plan, strip_features
from nnzbench.kernels.sputnik.spmm import heuristic_tile, oracle_tiles, spmm_plan, tile_features
from nnzbench.papers.predict.fitting import STRIPS, TILES, family_trials, untuned_trials
from nnzbench.results.records.record import Record, append

TRUE = RuleCosts({"launch": 3.0, "wavefronts": 0.001, "longest_staged": 0.5, "longest_prefetched": 0.3, "blocks": 0.05})
TRUE_STRIPS = RuleCosts({"launch": 1.0, "wavefronts": 0.0004, "strips": 0.04, "trips": 0.3})


def record(problem: Problem, kernel: str, variant: str, us: float, **changed: object) -> Record:
    operands = make_operands(problem)
    told = {name: getattr(problem, name) for name in ("experiment", "op", "m", "k", "n", "dtype", "sparsity", "source")}
    made = {"nnz": operands.sparse.nnz, "pattern_hash": operands.pattern, "gpu": "fake-gpu", "problem": problem.name}
    return timed(kernel, us, variant, **{**told, **made, **changed})


def problem_of(m: int, k: int, n: int, seed: int = 0) -> Problem:
    return Problem("sputnik_rnn", f"p{m}x{k}x{n}", "spmm", m, k, n, 0.9, f"uniform:{seed}")


def sddmm_problem(m: int, k: int, n: int, seed: int = 0) -> Problem:
    return replace(problem_of(m, k, n, seed), name=f"sddmm_{m}x{k}x{n}", op="sddmm")


def test_variants_name_their_tiles():
    for dtype, itemsize in (("f32", 4), ("f16", 2)):
        problem = replace(problem_of(16, 64, 128), dtype=dtype)  # type: ignore[arg-type]
        operands = make_operands(problem)
        for tile in (heuristic_tile(128, itemsize), *oracle_tiles(128, itemsize)):
            for label in ("", "rule", "heuristic"):
                variant = spmm_plan(operands.sparse, operands.dense["b"], tile, label).variant
                assert TILES.named(variant, 128, itemsize) == tile
    assert TILES.named("y3_x7_w9_v1", 128, 4) is None


def test_variants_name_their_strips():
    """`_bc` and the index type of fp16 come after what other strips' names start with."""
    pattern = uniform(16, 64, 0.5, 0)
    for itemsize, dtype in ((4, np.float32), (2, np.float16)):
        a, b = np.zeros((16, 40), dtype), np.zeros((64, 40), dtype)
        for strip in (heuristic_strip(40, itemsize), *candidates(40, itemsize)):
            for label in ("", "rule", "heuristic"):
                assert STRIPS.named(sddmm_plan(pattern, a, b, strip, label).variant, 40, itemsize) == strip
    assert STRIPS.named("s64_w8_v4_y4", 40, 4) is None


def test_records_become_trials_of_strips():
    one = sddmm_problem(16, 64, 128)
    paper, other = heuristic_strip(64, 4).name, candidates(64, 4)[0].name
    rows = [
        record(one, "sputnik_sddmm", f"heuristic_{paper}", 5.0),
        record(one, "sputnik_sddmm", f"rule_{other}", 4.0),
        record(one, "sputnik_sddmm", paper, 1.0, policy="cold"),
        record(one, "ring_sddmm", paper, 1.0),
        record(one, "sputnik", heuristic_tile(128, 4).name, 1.0, op="spmm"),
    ]
    found = STRIPS.trials(rows, lambda r: np.full(16, 12))
    assert [(t.candidate, t.us) for t in found] == [(paper, 5.0), (other, 4.0)]
    assert found[0].features == strip_features(heuristic_strip(64, 4), np.full(16, 12), 64, 4, 132)
    assert cost_rule.score(found, STRIPS.heuristic_choices(rows)).percent == pytest.approx(80)
    assert TILES.heuristic_choices(rows) == {}


def test_records_become_trials_of_tiles_and_families():
    one = problem_of(16, 64, 128)
    tile = heuristic_tile(128, 4).name
    rows = [
        record(one, "sputnik", f"heuristic_{tile}", 5.0),
        record(one, "sputnik", oracle_tiles(128, 4)[0].name, 4.0, selected=True),
        record(one, "row_stream", "any", 3.0, selected=True),
        record(one, "ring", "any", 6.0),
        record(one, "sputnik", tile, 1.0, policy="cold"),
        record(one, "sputnik", tile, 1.0, op="gemm"),
        record(one, "sputnik", tile, 1.0, shape="attention"),
        record(one, "cublas", "f32", 1.0, selected=True),
    ]
    lengths = {one.name: make_operands(one).sparse.row_lengths}
    tiles = TILES.trials(rows, lambda r: lengths[r.problem])
    assert [(t.candidate, t.us) for t in tiles] == [(tile, 5.0), (oracle_tiles(128, 4)[0].name, 4.0)]
    assert cost_rule.score(tiles, TILES.heuristic_choices(rows)).percent == pytest.approx(80)
    found = family_trials(rows, lambda r: lengths[r.problem])
    assert [(t.candidate, t.us) for t in found] == [("sputnik", 4.0), ("row_stream", 3.0)]
    assert TILES.trials(rows, lambda r: None) == []


def test_families_of_fp8_have_a_rule_of_their_own():
    one = replace(problem_of(16, 64, 1), dtype="f8")
    rows = [record(one, "delta_spmv", "any", 2.0, selected=True), record(problem_of(16, 64, 1), "ring", "any", 3.0)]
    lengths = make_operands(one).sparse.row_lengths
    assert family_trials(rows, lambda r: lengths) == []
    (found,) = family_trials(rows, lambda r: lengths, "family_f8")
    assert (found.candidate, found.features["delta_spmv.products"]) == ("delta_spmv", lengths.sum() / 2 / 132)


def test_what_measures_nothing_is_judged_by_the_tuned_kernels_that_it_chooses_among():
    one, without = problem_of(16, 64, 128), problem_of(16, 64, 64)
    rows = [
        record(one, "untuned", "ring_any", 5.0, selected=True),
        record(one, "ring", "any", 4.0, selected=True),
        record(one, "row_stream", "any", 8.0, selected=True),
        record(one, "row_stream", "other", 1.0),
        record(one, "sparsert", "any", 2.0, selected=True),
        record(without, "ring", "any", 4.0, selected=True),
    ]
    trials = untuned_trials(rows)
    assert [(trial.candidate, trial.us) for trial in trials] == [("untuned", 5.0), ("ring", 4.0), ("row_stream", 8.0)]
    chosen = dict.fromkeys(cost_rule.contests(trials), "untuned")
    assert cost_rule.score(trials, chosen).percent == pytest.approx(80)


def test_one_problem_on_two_matrices_is_two_contests():
    """The uniform and the real pattern of one problem do not compete."""
    tiles = oracle_tiles(64, 4)
    one, two = problem_of(16, 64, 64, seed=0), problem_of(16, 64, 64, seed=1)
    rows = [record(one, "sputnik", tiles[0].name, 4.0), record(two, "sputnik", tiles[1].name, 2.0)]
    assert one.name == two.name
    assert len(cost_rule.contests(TILES.trials(rows, lambda r: np.full(16, 6)))) == 2


def timed_by_the_model(problem: Problem) -> list[Record]:
    """What a run of `problem` would record if `TRUE` were how long tiles take."""
    lengths, n = make_operands(problem).sparse.row_lengths, problem.n
    timed = {t.name: TRUE.predict(tile_features(t, lengths, n, 4, 132), t.name) for t in oracle_tiles(n, 4)}
    best = min(timed, key=lambda name: timed[name])
    rows = [record(problem, "sputnik", name, us, selected=name == best) for name, us in timed.items()]
    rows.append(record(problem, "sputnik", f"heuristic_{heuristic_tile(n, 4).name}", 50.0))
    return [*rows, record(problem, "row_stream", "any", 3.0, selected=True)]


def strips_timed_by_the_model(problem: Problem) -> list[Record]:
    """What a run of `problem` would record if `TRUE_STRIPS` were how long strips take."""
    lengths, k = make_operands(problem).sparse.row_lengths, problem.k
    strips = {strip.name: strip_features(strip, lengths, k, 4, 132) for strip in candidates(k, 4)}
    rows = [
        record(problem, "sputnik_sddmm", name, TRUE_STRIPS.predict(values, name)) for name, values in strips.items()
    ]
    return [*rows, record(problem, "sputnik_sddmm", f"heuristic_{heuristic_strip(k, 4).name}", 50.0)]


def fit(*words: object) -> str:
    result = invoke("fit", "rule", *words)
    assert result.exit_code == 0, result.output
    cost_rule.load.cache_clear()
    return result.output


@pytest.fixture
def constants(tmp_path, monkeypatch) -> Iterator[Path]:
    """The file of the constants in use, where tests may write."""
    monkeypatch.setattr(cost_rule, "path", lambda: tmp_path / "rule.csv")
    cost_rule.load.cache_clear()
    yield tmp_path / "rule.csv"
    cost_rule.load.cache_clear()


def test_rules_are_fitted_judged_and_written(tmp_path, constants):
    fitted, judged = tmp_path / "records.csv", tmp_path / "other" / "records.csv"
    judged.parent.mkdir()
    append(fitted, [row for m in (16, 32, 64, 128, 256) for row in timed_by_the_model(problem_of(m, 64, 64, seed=m))])
    elsewhere = problem_of(512, 64, 64)
    changed = record(
        problem_of(48, 64, 64), "sputnik", heuristic_tile(64, 4).name, 1.0, pattern_hash="not this matrix's"
    )
    append(judged, [*timed_by_the_model(elsewhere), changed])
    cost_rule.save(constants, {"sputnik_tile": TRUE}, "before")
    said = fit(fitted, "--judge", judged, "--write")
    written = cost_rule.load("sputnik_tile")
    assert "on 5 matrices" in said
    assert "always row_stream" in said
    held_out = said[said.index("sputnik_tile on other, f32, fitted elsewhere:") :].splitlines()
    assert float(held_out[1].split()[1]) > 90
    assert float(held_out[2].split()[2]) < 50
    assert held_out[1].endswith(" 1 problems")
    assert "fitted to fake-gpu sputnik_rnn" in constants.read_text()
    assert written != TRUE


def test_the_rule_of_strips_is_fitted_alone(tmp_path, constants):
    """The matrix of an SDDMM is m x n; constants of rules that were not asked for stay."""
    records = tmp_path / "records.csv"
    shapes = ((16, 64), (48, 100), (128, 64), (256, 256), (512, 128), (1024, 32), (2048, 128))
    problems = [sddmm_problem(m, k, 96, seed=m) for m, k in shapes]
    append(records, [row for problem in problems for row in strips_timed_by_the_model(problem)])
    cost_rule.save(constants, {"sputnik_tile": TRUE}, "before")
    said = fit(records, "--rule", "sputnik_strip", "--write").splitlines()
    assert cost_rule.load("sputnik_tile") == TRUE
    found = cost_rule.load("sputnik_strip").constants
    assert found["trips"] == pytest.approx(TRUE_STRIPS.constants["trips"], rel=0.2)
    assert said[0].endswith("on 7 matrices")
    assert float(said[1].split()[1]) > 90
    heuristic = next(line for line in said if "paper's heuristic" in line)
    assert float(heuristic.split()[2]) < 50
