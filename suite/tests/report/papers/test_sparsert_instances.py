"""SparseRT's instances: which they are, and how far apart invented times of them are."""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter

import numpy as np
import pytest
from fake_records import timed, write, written

from nnzbench.claims import rules
from nnzbench.claims.quantities import Quantity, Records
from nnzbench.facts.data import Data
from nnzbench.facts.results import load
from nnzbench.facts.spread import spread
from nnzbench.papers.sparsert import sparsert_instances as instances
from nnzbench.problems import tables


def test_the_table_has_the_papers_counts_as_far_as_the_collection_does():
    rows = tables.rows("sparsert_instances", full=True)
    have = Counter((one.problem.label[:2], one.problem.sparsity) for one in rows)
    paper = {(one.problem.label, one.problem.sparsity): one.count for one in tables.rows("sparsert_table1")}
    assert sum(paper.values()) == 257
    assert {key: (have[key], count) for key, count in paper.items() if have[key] != count} == {
        ("07", 0.9): (2, 3),
        ("07", 0.95): (2, 3),
    }
    assert len({one.problem.source for one in rows}) == len(rows) == 255


def test_the_default_run_has_two_instances_of_each_size_that_has_two():
    have = Counter(one.problem.label[:2] for one in tables.rows("sparsert_instances"))
    assert set(have.values()) <= {1, 2}
    assert len(have) == 20


@pytest.fixture
def folder(tmp_path):
    """Problem 11 takes 10 to 12 us with SparseRT, and exactly 20 with cuSPARSE."""
    problems = [one for one in tables.load("sparsert_instances", False, True) if one.label.startswith("11_")][:5]
    times = np.linspace(10.0, 12.0, 5)
    rows = [
        dataclasses.replace(
            timed(kernel, us, "v", experiment="sparsert_instances", problem=one.name, m=one.m, k=one.k, n=one.n),
            source=one.source, policy="hot", selected=True,
        )
        for one, varied in zip(problems, times, strict=True)
        for kernel, us in (("sparsert_paper", float(varied)), ("cusparse", 20.0))
    ]  # fmt: skip
    place = tmp_path / "sparsert_instances"
    place.mkdir()
    return write(place, rows)


def test_the_spread_is_over_instances_of_one_size(folder):
    data = Data(load(folder), instances.page().attributes)
    found = spread(data, instances.SIDES, instances.SIZES).set_index("subject")
    ours, library = found.iloc[0], found.iloc[1]
    assert (ours["instances"], ours["mean_us"]) == (5, 11.0)
    assert ours["deviation"] == pytest.approx(np.std(np.linspace(10, 12, 5), ddof=1) / 11)
    assert ours["slowest"] == pytest.approx(1.2)
    assert library["deviation"] == 0.0


def test_the_claim_is_the_slowest_over_the_fastest_of_a_size(folder):
    asked = Quantity(
        instances.SIDES[0], None, rules.RULES["sparsert-instances"].quantity.group, "instances", "sparsert_instances"
    )
    place = folder.parent / "reports" / "nvidia-h200"
    place.mkdir(parents=True)
    shutil.copytree(folder, place / "sparsert_instances")
    assert Records(place.parent, "nvidia-h200").measure(asked, "hot").value == pytest.approx(1.2)


def test_the_page_tells_it(folder):
    text = written(folder).read_text(encoding="utf-8")
    assert "| 5 | 11.00 | 7.2% | 1.20× |" in text
    assert "0.0% at most" in text
