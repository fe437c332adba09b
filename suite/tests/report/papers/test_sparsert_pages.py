"""Facts and tables of SparseRT's pages on invented records with known answers."""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from pathlib import Path

import fake_records
import numpy as np
import pandas as pd
import pytest
from sputnik_records import Timed, records, view_of

from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import Problem
from nnzbench.papers import sparsert
from nnzbench.papers.claims.claim import Quantity
from nnzbench.papers.claims.quantities import Records
from nnzbench.report.page import Made
from nnzbench.results.data import Data
from nnzbench.results.groups import ALL
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import load
from nnzbench.results.table import spread


def table(title: str) -> Made:
    return next(
        one for one in sparsert.sparsert_table1().tables if isinstance(one, Made) and one.title.startswith(title)
    )


def us(factor: float) -> Timed:
    return "sparsert_paper", "mb8", lambda problem: factor * problem.m * problem.k * (1 - problem.sparsity)


TABLE1: tuple[Timed, ...] = (
    us(1e-3),
    ("sputnik", "x64", lambda problem: 10.0),
    ("sputnik", "heuristic_x32", lambda problem: 20.0),
    ("cublas", "f32_default_nn", lambda problem: 40.0),
)


def test_the_same_problems_at_both_levels_are_paired(tmp_path: Path) -> None:
    page = sparsert.sparsert_table1()
    view = view_of(tmp_path, "sparsert_table1", TABLE1)
    asked = next(one for one in page.facts if one.groups == (sparsert.SPARSER,))
    (fact,) = view.compare(asked).to_dict("records")
    assert (fact["n"], fact["ratio"]) == (11, pytest.approx(2.0, rel=1e-3))  # half the nonzeros


def test_the_papers_speedups_stand_at_the_problems_labels(tmp_path: Path) -> None:
    view = view_of(tmp_path, "sparsert_table1", TABLE1)
    printed = sparsert._printed_table1(view)
    here = view.problems[["label", "level"]]
    assert len(printed.merge(here, on=["label", "level"])) == len(here) == 31
    assert printed.set_index(["label", "level"])["value"]["01", 90.0] == 4.3


def test_real_patterns_stand_beside_synthetic_ones(tmp_path: Path) -> None:
    """Problem 20 has no real one."""
    made = records("sparsert_table1", TABLE1)
    real = [
        row
        if row.problem.startswith("20_")
        else dataclasses.replace(
            row, problem=row.problem.replace("standin", "dlmc"), source=row.source.replace("standin:", "dlmc:")
        )
        for row in records("sparsert_table1", (us(2e-3), *TABLE1[1:]))
    ]
    view = view_of(tmp_path, "sparsert_table1", real)
    assert not [*table("Real").make(view)]
    folder = fake_records.write(tmp_path / "standin", [row for row in made if row.kernel != "sparsert_paper"])
    rows = pd.DataFrame(table("Real").make(view)).set_index(["kernel", "problems"])
    cells = rows.loc[("sputnik, its heuristic", "at 90 % zeros (19)")]
    assert tuple(cells[["real over cuBLAS", "synthetic over cuBLAS", "real over synthetic"]]) == (2.0, 2.0, 1.0)
    assert {"sputnik, real patterns"} <= set(view.facts()["subject"])  # of facts.csv too
    (folder / "records.csv").unlink()
    fake_records.write(folder, [dataclasses.replace(row, gpu="nvidia-a100") for row in made])
    with pytest.raises(RecordError, match="not a run of sparsert_table1 on nvidia-h200"):
        list(table("Real").make(view))


def test_what_is_not_unrolled_is_set_against_the_same_tiling(tmp_path: Path) -> None:
    timed: tuple[Timed, ...] = (
        ("sparsert_paper", "mb4", lambda _: 2.0),
        ("sparsert_paper", "mb8", lambda _: 3.0),
        ("sparsert_rolled", "mb4", lambda _: 12.0),
        ("sparsert_rolled", "mb8", lambda _: 5.0),  # faster, at another tiling
        ("sparsert_fixed", "mb8", lambda _: 3.0),
    )
    view = view_of(tmp_path, "sparsert_ablation", timed)
    page = sparsert.sparsert_ablation()
    assert page.comparison is not None
    found = view.compare(page.comparison).set_index("baseline")["ratio"].to_dict()
    assert found == pytest.approx(
        {
            "sparsert_rolled, at the same tiling": 6.0,
            "sparsert_rolled, at its own best tiling": 2.5,
            "sparsert_fixed": 1.5,
        }
    )
    each = view.compare(sparsert.GAINS)
    assert set(each.loc[each["baseline"] == sparsert.ROLLED.label, "ratio"]) == {6.0}


def test_table3s_printed_speedups_are_found_by_shape(tmp_path: Path) -> None:
    def half(problem: Problem) -> float | None:
        return None if problem.label == "04" else 5.0

    timed: tuple[Timed, ...] = (("sparsert_conv_paper", "r8", half), ("cudnn", "f32_nchw_default", lambda _: 10.0))
    view = view_of(tmp_path, "sparsert_table3", timed)
    printed = sparsert._printed_table3(view).set_index(["label", "level"])["value"]
    assert (len(printed), printed["01", 90.0]) == (8, 3.7)


def test_the_table_has_the_papers_counts_as_far_as_the_collection_does() -> None:
    rows = tables.rows("sparsert_instances", full=True)
    have = Counter((one.label[:2], one.sparsity) for one in rows)
    paper = {(one.label, one.sparsity): one.count for one in tables.rows("sparsert_table1")}
    assert sum(paper.values()) == 257
    assert {key: (have[key], count) for key, count in paper.items() if have[key] != count} == {
        ("07", 0.9): (2, 3),
        ("07", 0.95): (2, 3),
    }
    assert len({one.source for one in rows}) == len(rows) == 255


def test_the_default_run_has_two_instances_of_each_size_that_has_two() -> None:
    have = Counter(one.label[:2] for one in tables.rows("sparsert_instances"))
    assert set(have.values()) <= {1, 2}
    assert len(have) == 20


@pytest.fixture
def folder(tmp_path):
    """Problem 11 takes 10 to 12 us with SparseRT, and exactly 20 with cuSPARSE."""
    problems = [one for one in tables.load("sparsert_instances", False, True) if one.label.startswith("11_")][:5]
    times = np.linspace(10.0, 12.0, 5)
    rows = [
        dataclasses.replace(
            fake_records.timed(kernel, us, "v", experiment="sparsert_instances", problem=one.name, source=one.source),
            m=one.m, k=one.k, n=one.n, policy="hot", selected=True,
        )
        for one, varied in zip(problems, times, strict=True)
        for kernel, us in (("sparsert_paper", float(varied)), ("cusparse", 20.0))
    ]  # fmt: skip
    place = tmp_path / "sparsert_instances"
    place.mkdir()
    return fake_records.write(place, rows)


def test_the_spread_is_over_instances_of_one_size(folder):
    data = Data(load(folder), sparsert.sparsert_instances().attributes)
    found = spread(data, sparsert.SIDES, sparsert.SIZES).set_index("subject")
    ours, library = found.iloc[0], found.iloc[1]
    assert (ours["instances"], ours["mean_us"]) == (5, 11.0)
    assert ours["deviation"] == pytest.approx(np.std(np.linspace(10, 12, 5), ddof=1) / 11)
    assert ours["slowest"] == pytest.approx(1.2)
    assert library["deviation"] == 0.0


def test_the_claim_is_the_slowest_over_the_fastest_of_a_size(folder):
    asked = Quantity(sparsert.SIDES[0], None, ALL, "instances", "sparsert_instances")
    place = folder.parent / "reports" / "nvidia-h200"
    place.mkdir(parents=True)
    shutil.copytree(folder, place / "sparsert_instances")
    assert Records(place.parent, "nvidia-h200").measure(asked).value == pytest.approx(1.2)


def test_the_page_tells_it(folder):
    text = fake_records.written(folder).read_text(encoding="utf-8")
    assert "| 5 | 11.00 | 7.2 % | 1.20× |" in text
    assert "(at most 0.0)" in text
