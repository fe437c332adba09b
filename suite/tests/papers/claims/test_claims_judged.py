"""Which records judge a claim, beside which rivals, and the verdict that follows."""

import dataclasses
import math

import pytest
from fake_claim_records import GPU, figure1, judged, of_nothing, table1
from fake_records import failed, write

from nnzbench.kernels.registry import OURS
from nnzbench.papers.claims.claim import Quantity
from nnzbench.papers.claims.quantities import Records
from nnzbench.papers.claims.verdicts import NOT_COMPARABLE, NOT_MEASURABLE, REPRODUCED, WEAKER
from nnzbench.results.groups import ALL
from nnzbench.results.selector import DENSE, Selector

PAPER = "sparsert_paper"


def test_a_geometric_mean_is_judged_against_each_arithmetic_of_the_dense_product(tmp_path):
    one = judged(tmp_path, table1(5.0))["sparsert-spmm-95"]
    assert one.measured == pytest.approx(5.0)  # cuBLASLt's 10 us, not cuBLAS's 12
    assert (one.measured_tf32, one.measured_fp16) == (pytest.approx(2.0), pytest.approx(1.0))
    assert one.measured_cold == pytest.approx(2.5)
    assert (one.verdict, one.verdict_tf32, one.verdict_fp16) == (REPRODUCED, WEAKER, WEAKER)
    assert one.problems == "11 of 11"
    assert f"{WEAKER}." in one.note  # the verdict with cold caches is another
    warm = [r if r.policy == "hot" else dataclasses.replace(r, median_us=r.median_us / 2) for r in table1(5.0)]
    warm = [r if r.policy == "hot" or r.kernel == PAPER else dataclasses.replace(r, median_us=10.0) for r in warm]
    same = judged(tmp_path / "same", warm)["sparsert-spmm-95"]
    assert same.measured_cold == pytest.approx(same.measured)
    assert f"{WEAKER}." not in same.note


def test_the_papers_own_kernel_judges_and_ours_stands_beside(tmp_path):
    ours = [dataclasses.replace(r, kernel="sparsert", median_us=2.0) for r in table1(2.5) if r.kernel == PAPER]
    one = judged(tmp_path, [*table1(2.5), *ours])["sparsert-spmm-95"]
    assert one.measured == pytest.approx(2.5)
    assert one.kernel.startswith("`sparsert_paper`")
    assert "5.00×, TF32 2.00×, fp16 1.00×" in one.note


def test_no_design_of_this_project_judges_a_claim(tmp_path):
    """Whatever a rule names, rows of role `own` and of users' kernels do not reach it."""
    ours = [dataclasses.replace(r, kernel="sparsert") for r in table1(5.0) if r.kernel == PAPER]
    guest = [dataclasses.replace(r, kernel="mine") for r in table1(5.0) if r.kernel == PAPER]
    libraries = [r for r in table1(5.0) if r.kernel != PAPER]
    one = judged(tmp_path, [*libraries, *ours, *guest])["sparsert-spmm-95"]
    assert one.verdict == NOT_MEASURABLE
    records = Records(tmp_path, GPU)
    everybody = Selector("everybody", roles=OURS | {"external"})
    for subject in (everybody, Selector("ours", ("sparsert",)), Selector("a user's", ("mine",))):
        asked = Quantity(subject, DENSE, ALL, "geometric mean", "sparsert_table1")
        assert records.measure(asked, judging=False).value == pytest.approx(5.0)
        assert not records.measure(asked).have


def wrong(row):
    return failed(row, "wrong", "far") if row.kernel == PAPER else row


@pytest.mark.parametrize(
    ("rows", "word", "problems", "told"),
    [
        (table1(5.0, keep=10), NOT_COMPARABLE, "10 of 11", "10 of 11"),  # shown all the same
        ([wrong(r) if i % 2 else r for i, r in enumerate(table1(5.0))], REPRODUCED, "11 of 11", ""),
        ([wrong(r) for r in table1(5.0)], NOT_MEASURABLE, "0 of 11", "sparsert_table1"),
        ([dataclasses.replace(r, device="cpu") for r in table1(5.0)], NOT_MEASURABLE, "0 of 11", "sparsert_table1"),
        (
            [dataclasses.replace(r, source="standin:x") for r in table1(5.0)],
            REPRODUCED,
            "11 of 11",
            "11 of 11 problems",
        ),
    ],
)
def test_checked_times_of_a_gpu_on_all_of_the_papers_problems_judge(tmp_path, rows, word, problems, told):
    one = judged(tmp_path, rows)["sparsert-spmm-95"]
    assert (one.verdict, one.problems) == (word, problems)
    assert told in f"{one.reason} {one.note}"
    assert math.isnan(one.measured) == (word == NOT_MEASURABLE)


def test_nothing_recorded_names_the_experiment():
    found = {one.id: one for one in of_nothing()}
    assert {one.verdict for one in found.values()} == {NOT_MEASURABLE}
    assert "sputnik_rnn" in found["sputnik-rnn-cusparse"].reason


def test_records_that_break_the_schema_judge_nothing_and_are_named(tmp_path):
    path = write(tmp_path / GPU / "sparsert_table1", table1(5.0)) / "records.csv"
    path.write_bytes(path.read_bytes()[:-20])
    found = judged(tmp_path, figure1(0.73))
    assert found["sparsert-spmm-95"].verdict == NOT_MEASURABLE
    assert "refused" in found["sparsert-spmm-95"].reason
    assert found["sputnik-crossover"].verdict == REPRODUCED
