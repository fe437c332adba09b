"""Facts and tables of SparseRT's pages on invented records with known answers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import fake_records
import pytest
from sputnik_records import Timed, records

from nnzbench.facts.results import load
from nnzbench.papers.sparsert import sparsert_ablation, sparsert_table1, sparsert_table3
from nnzbench.problems.problem import Problem
from nnzbench.records.record import Record, RecordError
from nnzbench.records.selection import select
from nnzbench.report.pages.page import Made
from nnzbench.report.pages.view import View


def view_of(folder: Path, rows: list[Record]) -> View:
    return View(load(fake_records.write(folder, rows)))


def table(title: str) -> Made:
    return next(one for one in sparsert_table1.page().tables if isinstance(one, Made) and one.title.startswith(title))


def us(factor: float) -> Timed:
    return "sparsert_paper", "mb8", lambda problem: factor * problem.m * problem.k * (1 - problem.sparsity)


TABLE1: tuple[Timed, ...] = (
    us(1e-3),
    ("sputnik", "x64", lambda problem: 10.0),
    ("sputnik", "heuristic_x32", lambda problem: 20.0),
    ("cublas", "f32_default_nn", lambda problem: 40.0),
)


def test_the_same_problems_at_both_levels_are_paired(tmp_path: Path) -> None:
    page = sparsert_table1.page()
    view = view_of(tmp_path, records("sparsert_table1", TABLE1))
    asked = next(one.comparison for one in page.tables if one.title == "From 90 to 95 % zeros")
    (fact,) = view.compare(asked).to_dict("records")
    assert (fact["n"], fact["ratio"]) == (11, pytest.approx(2.0, rel=1e-3))  # half the nonzeros


def test_the_papers_speedups_stand_at_the_problems_labels(tmp_path: Path) -> None:
    view = view_of(tmp_path, records("sparsert_table1", TABLE1))
    printed = sparsert_table1._printed(view)
    here = view.data.problems[["label", "level"]]
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
    view = view_of(tmp_path, real)
    assert table("Real").make(view) is None
    folder = fake_records.write(tmp_path / "standin", [row for row in made if row.kernel != "sparsert_paper"])
    found = table("Real").make(view)
    assert found is not None
    rows = found.set_index(["kernel", "problems"])
    cells = rows.loc[("sputnik, its heuristic", "at 90 % zeros (19)")]
    assert tuple(cells[["real over cuBLAS", "synthetic over cuBLAS", "real over synthetic"]]) == (2.0, 2.0, 1.0)
    assert {"sputnik, real patterns"} <= set(view.facts()["subject"])  # of facts.csv too
    (folder / "records.csv").unlink()
    fake_records.write(folder, [dataclasses.replace(row, gpu="nvidia-a100") for row in made])
    with pytest.raises(RecordError, match="not a run of sparsert_table1 on nvidia-h200"):
        table("Real").make(view)


def test_what_is_not_unrolled_is_set_against_the_same_tiling(tmp_path: Path) -> None:
    timed: tuple[Timed, ...] = (
        ("sparsert_paper", "mb4", lambda _: 2.0),
        ("sparsert_paper", "mb8", lambda _: 3.0),
        ("sparsert_rolled", "mb4", lambda _: 12.0),
        ("sparsert_rolled", "mb8", lambda _: 5.0),  # faster, at another tiling
        ("sparsert_fixed", "mb8", lambda _: 3.0),
    )
    view = view_of(tmp_path, records("sparsert_ablation", timed))
    page = sparsert_ablation.page()
    assert page.comparison is not None
    found = view.compare(page.comparison).set_index("baseline")["ratio"].to_dict()
    assert found == pytest.approx(
        {
            "sparsert_rolled, at the same tiling": 6.0,
            "sparsert_rolled, at its own best tiling": 2.5,
            "sparsert_fixed": 1.5,
        }
    )
    each = sparsert_ablation._gains(view)
    assert each is not None
    assert (set(each["unrolling, hot"]), "load balancing, hot" in each) == ({6.0}, False)


def test_table3s_printed_speedups_are_found_by_shape(tmp_path: Path) -> None:
    def half(problem: Problem) -> float | None:
        return None if problem.label == "04" else 5.0

    timed: tuple[Timed, ...] = (("sparsert_conv_paper", "r8", half), ("cudnn", "f32_nchw_default", lambda _: 10.0))
    view = view_of(tmp_path, select(records("sparsert_table3", timed)))
    printed = sparsert_table3._printed(view).set_index(["label", "level"])["value"]
    assert (len(printed), printed["01", 90.0]) == (8, 3.7)
