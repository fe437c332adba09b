"""The number that a claim's rule makes of records with known answers, for every kind of quantity."""

import math

import pandas as pd
import pytest
from fake_claim_records import GPU, Judged, figure1, judged, names, row
from fake_records import failed, tuned, write

from nnzbench.data.problems.tables import load
from nnzbench.papers.claims.claim import Quantity
from nnzbench.papers.claims.quantities import Outcome, Records, made_of
from nnzbench.papers.claims.verdicts import (
    CONTRADICTED,
    NOT_COMPARABLE,
    NOT_MEASURABLE,
    REPRODUCED,
    STRONGER,
    UNDECIDED,
    WEAKER,
)
from nnzbench.results.groups import ALL
from nnzbench.results.selector import CUBLAS, Selector


def sizes(name):
    """What a record says of a problem of SparseRT's instances."""
    one = next(p for p in load("sparsert_instances", False) if p.name == name)
    return {"m": one.m, "k": one.k, "n": one.n, "label": one.label, "level": one.level}


def test_a_crossover_is_interpolated_for_the_papers_heuristic_alone(tmp_path):
    found = judged(tmp_path, figure1(0.73))
    one = found["sputnik-crossover"]
    assert one.measured == pytest.approx(0.73, abs=0.002)
    assert one.verdict == REPRODUCED
    assert math.isnan(one.measured_tf32)
    assert one.verdict_tf32 == CONTRADICTED  # never as fast
    assert found["sputnik-crossover-nonzeros"].measured == pytest.approx(3, rel=0.03)
    assert found["sputnik-crossover-nonzeros"].verdict == WEAKER


def test_a_crossover_outside_what_was_recorded_is_no_number(tmp_path):
    below = judged(tmp_path / "a", figure1(0.3))["sputnik-crossover"]
    assert (below.measured, below.verdict) == (pytest.approx(0.5), STRONGER)
    assert "below 50 %" in below.note
    above = judged(tmp_path / "b", figure1(0.99))["sputnik-crossover"]
    assert math.isnan(above.measured)
    assert above.verdict == CONTRADICTED
    cut = [r for r in figure1(0.9) if r.sparsity < 0.8]
    partial = judged(tmp_path / "c", cut)["sputnik-crossover"]
    assert partial.verdict == NOT_COMPARABLE
    assert math.isnan(partial.measured)


@pytest.mark.parametrize(
    ("crossing", "whole", "before"),
    [(0.71, REPRODUCED, UNDECIDED), (0.95, WEAKER, UNDECIDED), (0.99, CONTRADICTED, CONTRADICTED)],
)
def test_a_claim_holds_against_the_best_of_today_only_where_that_was_tuned(tmp_path, crossing, whole, before):
    said = judged(tmp_path, figure1(crossing))["sputnik-crossover"]
    assert (said.verdict, said.verdict_today) == (whole, whole)
    tuned(tmp_path / GPU / "sputnik_figure1", lambda one: ("first",) if one.kernel == "cublas" else ("all",))
    said = Judged(tmp_path, GPU)["sputnik-crossover"]
    assert (said.verdict, said.verdict_today) == (whole, before)


def test_of_two_kernels_that_never_meet_the_dense_product_nothing_is_known(tmp_path):
    one = judged(tmp_path, figure1(0.99))["sputnik-crossover-nonzeros"]
    assert math.isnan(one.measured)
    assert one.verdict == NOT_MEASURABLE


def test_of_several_kernels_on_one_problem_the_fastest_counts_and_any_may_be_untuned(tmp_path):
    name = names("sparsert_table1")[0]
    rows = [row(name, "sputnik", 4.0), row(name, "ring", 2.0), row(name, "cublas", 8.0, "f32_default_nn")]
    folder = write(tmp_path / GPU / "sparsert_table1", rows)
    tuned(folder, lambda one: ("first",) if one.kernel == "sputnik" else ("all",))
    asked = Quantity(Selector("both", ("sputnik", "ring")), CUBLAS, ALL, "geometric mean", "sparsert_table1")
    found = Records(tmp_path, GPU).measure(asked, judging=False)
    assert (found.value, found.cut) == (pytest.approx(4.0), True)


def test_the_ideal_is_the_share_that_is_kept_of_what_is_above_the_overhead(tmp_path):
    """10 us above a launch of 1 us, of which a tenth is kept: 2 us, and the subject takes 4."""
    first, second = names("sparsert_table1", "_90_")[:2]
    at = {"sparsity": 0.9, "floor_us": 1.0}
    rows = [row(first, "ring", 4.0, **at), row(first, "cublas", 11.0, "f32_default_nn", **at)]
    rows += [row(second, "ring", 9.0, sparsity=0.9, floor_us=None), row(second, "cublas", 9.0, "f32_default_nn")]
    write(tmp_path / GPU / "sparsert_table1", rows)
    asked = Quantity(Selector("ring", ("ring",)), CUBLAS, ALL, "over ideal", "sparsert_table1")
    found = Records(tmp_path, GPU).measure(asked, judging=False)
    assert (found.value, found.have) == (pytest.approx(2.0), 1)


def test_part_of_a_larger_sample_of_the_collection_counts_for_nothing(tmp_path):
    sample, more = (
        [p for p in load("sputnik_dlmc", False, sample=count) if (p.op, p.dtype) == ("spmm", "f32")]
        for count in (60, 120)
    )
    extra = [p for p in more if p not in sample]

    def largest(folder, problems):
        times = [
            row(p.name, kernel, us, variant, p.experiment, dtype=p.dtype, source=p.source)
            for p in problems
            for kernel, variant, us in (
                ("sputnik", "heuristic_x", 10.0),
                ("cusparse", "csr_default_col", 900.0 if p in extra else 40.0),
            )
        ]
        return judged(tmp_path / folder, times)["sputnik-spmm-most"]

    part, whole = largest("part", [*sample, *extra[:20]]), largest("whole", more)
    assert (part.measured, part.problems) == (pytest.approx(4.0), "120 of 120")
    assert (whole.measured, whole.problems) == (pytest.approx(90.0), "242 of 242")


def test_what_a_library_computes_wrong_is_no_problem_that_lacks(tmp_path):
    """Nor is it one on which the library is slower. A wrong result of the paper's kernel stays a gap."""
    problems = [p for p in load("sputnik_dlmc", False) if (p.op, p.dtype) == ("spmm", "f32")]

    def share(kernel):
        times = [
            row(p.name, name, us, variant, p.experiment, dtype=p.dtype, source=p.source)
            for p in problems
            for name, variant, us in (("sputnik", "heuristic_x", 10.0), ("cusparse", "csr_default_col", 40.0))
        ]
        at = next(at for at, one in enumerate(times) if one.kernel == kernel)
        times[at] = failed(times[at], "wrong", "far")
        return judged(tmp_path / kernel, times)["sputnik-spmm"]

    theirs, ours = share("cusparse"), share("sputnik")
    assert (theirs.verdict, theirs.problems) == (REPRODUCED, f"{len(problems) - 1} of {len(problems) - 1}")
    assert "On 1 more problem" in theirs.note
    assert (ours.verdict, ours.problems) == (NOT_COMPARABLE, f"{len(problems) - 1} of {len(problems)}")


def test_a_pair_is_synthetic_where_either_sparse_side_is(tmp_path):
    name, made = names("sparsert_table1")[0], "standin:x"
    rows = [row(name, "sputnik", 1.0), row(name, "cusparse", 2.0, source=made), row(name, "cublas", 3.0, source=made)]
    write(tmp_path / GPU / "sparsert_table1", rows)
    sides = (Selector("Sputnik", ("sputnik",)), Selector("cuSPARSE", ("cusparse",)), CUBLAS)
    found = {
        one.label: Records(tmp_path, GPU).measure(
            Quantity(sides[0], one, ALL, "geometric mean", "sparsert_table1"), judging=False
        )
        for one in sides[1:]
    }
    assert {label: one.synthetic for label, one in found.items()} == {"cuSPARSE": 1, "cuBLAS fp32": 0}


def test_one_tuning_serves_as_far_as_others_fastest_candidates_are_fast(tmp_path):
    """Of two instances of one size; a third of another size has nobody to lend it a tiling."""
    first, second, other = (names("sparsert_instances", part)[0] for part in ("01_01_", "01_02_", "02_01_"))
    times = {first: (10.0, 12.0), second: (15.0, 12.0), other: (1.0, 9.0)}
    rows = [
        row(name, "sparsert_paper", us, variant, "sparsert_instances", **sizes(name))
        for name, pair in times.items()
        for variant, us in zip(("a", "b"), pair, strict=True)
    ]
    found = judged(tmp_path, rows)["sparsert-one-tuning"]
    assert found.measured == pytest.approx((12 / 10 * 15 / 12) ** 0.5)
    assert (found.low, found.high) == (pytest.approx(12 / 10), pytest.approx(15 / 12))  # of the paper's 257
    assert found.verdict == NOT_COMPARABLE  # three problems of all


@pytest.mark.parametrize(("shares", "word"), [((80.9, 80.9), REPRODUCED), ((60.0, 101.8), UNDECIDED)])
def test_matrices_that_stand_for_all_of_their_shape_and_level_are_a_sample(tmp_path, shares, word):
    """Table II: those of most matrices count most, and the interval is of them."""
    problems = [p for p in load("sputnik_ablation", False) if p.op == "spmm" and p.label.endswith("_b8")]
    rows = [
        row(p.name, "sputnik_ablation", us, f"{part}_x", p.experiment, op=p.op, source=p.source, count=p.count)
        for at, p in enumerate(problems)
        for part, us in (("complete", shares[at % 2]), ("no_vector", 100.0))
    ]
    found = judged(tmp_path, rows)["sputnik-no-vector-tf-8"]
    weights = [p.count for p in problems]
    mean = sum(shares[at % 2] * weight for at, weight in enumerate(weights)) / sum(weights)
    assert (found.verdict, found.measured) == (word, pytest.approx(mean))
    assert found.low <= found.measured <= found.high
    assert "Of the paper's 2,205 problems 28" in found.note + found.reason


def test_a_share_is_known_as_well_as_there_are_matrices():
    def interval(problems, matrices):
        fact = pd.Series({"ratio": 2.0, "low": 1.0, "high": 3.0, "best": 4.0, "wins": 0.75 * problems, "n": problems})
        found = made_of(fact, "share faster", Outcome(math.nan, problems, problems), matrices)
        return found.low, found.high

    assert interval(16, 16) == interval(1600, 16)
    assert interval(1600, 16)[0] < interval(1600, 160)[0] < 75 < interval(1600, 160)[1] < interval(1600, 16)[1]
