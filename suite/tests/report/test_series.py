"""The one selector: which rows compete in a series, and which of them is picked."""

from __future__ import annotations

import fake_records
import pandas as pd
import pytest
from fake_records import to_frame

from nnzbench.kernels.roles import OURS
from nnzbench.records.selection import select
from nnzbench.report.data import context
from nnzbench.report.data.series import (
    BEST,
    DEFAULT,
    Series,
    geometric_means,
    least,
    pick,
    pick_under,
    rows_of,
    speedup_series,
    standing,
    word,
)


def row(kernel: str, variant: str, us: float, **changes: object):
    return fake_records.timed(kernel, us, variant, **changes)


def frame(*rows) -> pd.DataFrame:
    return to_frame(select(rows))


ROWS = frame(
    row("balanced", "paper_w8", 5.0, source="balanced:0"),
    row("balanced", "async2_w16x1_c4_r1_g16", 3.0, source="balanced:0"),
    row("balanced", "registers_w8x2", 4.0, source="balanced:0", policy="cold"),
    row("cusparse", "csr_default_row", 2.0, source="uniform:0", problem="u"),
    row("cusparse", "csr_alg2_row", 1.0, source="uniform:0", problem="u"),
    row("cublas", "f32_rowmajor", 6.0),
    row("cublas", "tf32_rowmajor", 0.5),
    fake_records.failed(row("balanced", "paper", 1.0), "wrong", "an error above the tolerance"),
    row("nobody_knows_it", "v", 0.1),
)


def picked(series: Series, **more) -> list[tuple[str, str, float]]:
    found = pick(ROWS, series, **more)
    return list(found[["policy", "variant", "median_us"]].itertuples(index=False, name=None))


def test_the_fastest_of_a_kernels_rows_stands_for_it_per_problem_and_policy():
    assert picked(Series("k", "", ("balanced",))) == [
        ("hot", "async2_w16x1_c4_r1_g16", 3.0), ("cold", "registers_w8x2", 4.0),
    ]  # fmt: skip
    assert picked(Series("k", "", ("balanced",)), by=("problem",)) == [("hot", "async2_w16x1_c4_r1_g16", 3.0)]


def test_a_papers_mapping_is_told_from_ours_by_role():
    paper = Series("k", "", ("balanced",), roles=frozenset({"paper"}))
    assert picked(paper) == [("hot", "paper_w8", 5.0)]
    assert set(rows_of(ROWS, Series("k", "", (), roles=frozenset({"own"})))["role"]) == {"own"}


def test_best_is_of_paper_and_own_alone_and_never_a_row_without_a_time():
    found = rows_of(ROWS, BEST)
    assert set(found["role"]) == set(OURS)
    assert set(found["kernel"]) == {"balanced"}
    assert found["median_us"].notna().all()


def test_arithmetic_source_and_variants_each_narrow_a_series():
    assert picked(Series("k", "", ("cublas",), "tf32")) == [("hot", "tf32_rowmajor", 0.5)]
    assert picked(Series("k", "", ("cusparse",), variants=DEFAULT)) == [("hot", "csr_default_row", 2.0)]
    assert picked(Series("k", "", ("cusparse",), source="uniform")) == [("hot", "csr_alg2_row", 1.0)]
    assert picked(Series("k", "", ("cusparse",), source="block")) == []
    assert picked(Series("k", "", ("cusparse",), "f16", source="uniform", variants=DEFAULT)) == []


@pytest.mark.parametrize(
    ("variant", "found"),
    [
        ("default", True),
        ("heuristic_y4_x32", True),
        ("csr_default_row", True),
        ("f32_nchw_plan00_eng45_default", True),
        ("lib-default", True),
        ("defaults_x", False),
        ("mydefault", False),
    ],
)
def test_a_default_is_a_word_of_the_variant(variant: str, found: bool):
    rows = frame(row("cusparse", variant, 1.0))
    assert len(rows_of(rows, Series("k", "", ("cusparse",), variants=DEFAULT))) == found
    assert len(rows_of(rows, Series("k", "", ("cusparse",), variants=word("no_such")))) == 0


def test_of_equal_times_the_row_that_stands_for_its_kernel_is_picked():
    rows = frame(row("cusparse", "z", 1.0), row("cusparse", "a", 1.0))  # the first recorded is selected
    assert list(pick(rows, Series("k", "", ("cusparse",)))["variant"]) == ["z"]
    assert list(standing(rows)["variant"]) == ["z"]
    both = frame(row("sputnik", "v", 1.0), row("ring", "v", 1.0))
    assert list(pick(both, BEST)["kernel"]) == ["ring"]


def test_under_one_policy_rows_are_found_by_problem():
    found = pick_under(ROWS, "hot", Series("k", "", ("cusparse", "balanced")))
    assert dict(found["median_us"]) == {"p": 3.0, "u": 1.0}


def test_least_is_over_several_series_per_problem():
    points = pd.DataFrame({"series": ["a", "b", "c"], "problem": ["p", "p", "p"], "median_us": [3.0, 2.0, 1.0]})
    assert dict(least(points, ("a", "b"))) == {"p": 2.0}


def test_a_series_of_nobody_in_particular_is_refused():
    with pytest.raises(ValueError, match="anybody"):
        Series("k", "", ())
    dense, best = Series("k", "", ("cublas", "cublaslt")), Series("k", "", (), roles=OURS)
    assert (dense.dense, dense.own, dense.kernel) == (True, False, "")
    assert (best.dense, best.own, best.kernel) == (False, True, "")
    assert not Series("k", "", ("nobody_knows_it",)).own


def test_figures_leave_out_the_side_arithmetic_of_a_sparse_library_alone():
    shown = {
        (k, m): Series("k", "", (k,), m).drawn for k in ("cusparse", "cusparselt", "cublas") for m in ("f16", "tf32")
    }
    assert shown == {
        ("cusparse", "f16"): False, ("cusparse", "tf32"): False, ("cusparselt", "f16"): True,
        ("cusparselt", "tf32"): True, ("cublas", "f16"): True, ("cublas", "tf32"): True,
    }  # fmt: skip


def test_the_best_of_this_projects_kernels_is_a_series_where_one_of_them_has_an_fp32_row():
    baseline = Series("cublas-f32", "cuBLAS fp32", ("cublas",))
    half, single = (row("ring", "t4", 1.0, dtype=dtype) for dtype in ("f16", "f32"))
    assert BEST in speedup_series(frame(single), baseline)
    assert BEST not in speedup_series(frame(half, row("cusparse", "csr_alg2_row", 1.0)), baseline)


def test_a_mean_is_geometric_over_the_problems_that_have_one_and_says_of_how_many():
    rows = pd.DataFrame({"speedup": [1.0, 4.0, None], "policy": "hot", "level": 0.9, "position": 0})
    problems = pd.DataFrame({"problem": ["a", "b", "c", "d"], "level": 0.9})
    (found,) = geometric_means(rows.assign(series="k", series_label="k"), problems).to_dict("records")
    assert (found["geometric_mean"], found["count"], found["of"]) == (pytest.approx(2), 2, 4)
    assert (found["faster"], found["smallest"], found["largest"]) == (1, 1.0, 4.0)


def test_a_policy_without_a_time_is_none():
    rows = frame(row("ring", "v", 1.0), fake_records.failed(row("ring", "v", 1.0, policy="cold"), "timeout", "why"))
    assert context.policies(rows) == ["hot"]
    assert context.policies(frame(row("ring", "v", 1.0, policy="cold"), row("ring", "v", 1.0))) == ["hot", "cold"]
