"""Cells of the tables that all pages share, and which level a counted sparsity is told as."""

from __future__ import annotations

import fake_records
import pandas as pd
import pytest
from fake_records import to_frame

from nnzbench.facts.results import load
from nnzbench.records.record import Record
from nnzbench.records.selection import select
from nnzbench.report import generic
from nnzbench.report.text import marked, tables


def timed(problem: str, kernel: str, us: float, variant: str = "v", **changes: object) -> Record:
    return fake_records.timed(kernel, us, variant, problem=problem, **changes)


def test_a_table_has_the_rivals_time_over_the_best_and_says_of_how_many_a_mean_is(tmp_path):
    rows = [
        *(timed(name, "cublas", 8.0, "f32_default_nn") for name in ("a", "b")),
        timed("a", "ring", 2.0),
        timed("a", "cublaslt", 6.0, "f32_algo1"),
    ]
    folder = fake_records.write(tmp_path / "nvidia-h200" / "own", select(rows))
    text = tables.speedups(generic.tabulate(load(folder)), "hot", 0.9)
    header, _, *lines = text.splitlines()
    assert header.endswith("| best over cuBLASLt fp32, best |")
    assert [line.split("|")[-2].strip() for line in lines] == ["3.00", "–", "**3.00**"]
    assert "| **4.00** (1 of 2) |" in lines[-1]


def test_what_tuning_brought_is_a_geometric_mean_within_one_role():
    """The paper's mapping of a kernel is another contest than this project's."""
    times = [("a", "paper_w8", 8.0, True), ("a", "paper_w4", 4.0, False), ("a", "async2_w16", 1.0, False)]
    times += [("b", "paper_w8", 8.0, True), ("b", "paper_w4", 1.0, False)]
    rows = to_frame([timed(problem, "balanced", us, variant) for problem, variant, us, _ in times])
    found = tables.tuning(rows.assign(untuned=[first for *_, first in times]), {})
    assert found.splitlines()[-1].endswith("| 4.00 |")  # of 2 and 8


def test_kernels_without_a_time_are_not_called_untuned():
    rows = [timed("a", "ring", 1.0), fake_records.failed(timed("b", "ring", 1.0), "timeout", "too long")]
    found = tables.untuned(to_frame(rows).assign(cut_short="first"))
    assert found.splitlines()[-1] == "| `ring` | 1 |"
    assert marked.any_cut(to_frame(rows[:1]).assign(cut_short="first"))
    assert not marked.any_cut(to_frame(rows[1:]).assign(cut_short="first"))


@pytest.mark.parametrize(
    ("counted", "level"), [(0.9098, 0.9), (0.888, 0.9), (0.93, 0.93), (0.333, 0.33), (0.873, 0.875), (0.0, 0.0)]
)
def test_a_counted_sparsity_is_of_a_usual_level_that_is_near(counted: float, level: float):
    assert generic.level_of(counted) == level


def test_no_time_is_a_dash():
    assert [tables.number(value) for value in (1.005, float("nan"), None, pd.NA)] == ["1.00", "–", "–", "–"]
