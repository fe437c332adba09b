"""Which problems and times of an original code's session stand beside which recorded ones."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from fake_claim_records import AUTHORS_GPU as GPU
from fake_claim_records import row
from fake_records import write

from nnzbench.papers.claims import peers
from nnzbench.papers.claims.peers import Match, Pair
from nnzbench.papers.claims.quantities import Records

PAIR = Pair("tuned", "the fastest found", "sputnik", "", "the fastest tile")
HERE = {"problem": "p", "m": 8, "k": 16, "n": 32, "sparsity": 0.9, "source": "uniform:0"}
THERE = {"session": "s", "label": "1", "op": "spmm", "shape": "", "dtype": "f32", "policy": "hot", "status": "ok"}


def match(any_pattern: bool = False) -> Match:
    return Match("an invented one", "sputnik", "s", ("sparsert_table1",), (PAIR,), any_pattern=any_pattern)


def session(**changes: object) -> pd.DataFrame:
    """A session on one problem: the code's two layouts, and dense products of three codes, arithmetics and policies."""
    problem = {name: HERE[name] for name in ("m", "k", "n", "sparsity", "source")}
    times = (
        ("sputnik", "tuned", "f32", "hot", 4.0),
        ("sputnik", "tuned", "f32", "hot", 2.0),
        ("sputnik", "other", "f32", "hot", 1.0),
        ("cublas", "", "f32", "hot", 20.0),
        ("cublas", "", "f32", "hot", 10.0),
        ("cublas", "", "tf32", "hot", 5.0),
        ("cublas", "", "f32", "cold", 3.0),
        ("cusparse", "", "f32", "hot", 0.5),
    )
    names = ("code", "choice", "math", "policy", "median_us")
    rows = [{**THERE, **problem, **dict(zip(names, one, strict=True)), **changes} for one in times]
    return pd.DataFrame(rows, columns=peers.read()[2].columns)


def beside(tmp_path: Path, asked: Match, times: pd.DataFrame, **changes: object) -> pd.Series:
    """The one problem of the session beside records of one that differs from it in some fields."""
    same = {**HERE, "experiment": "sparsert_table1", **changes}
    rows = [
        row(kernel="sputnik", us=6.0, variant="v", **same),
        row(kernel="cublas", us=12.0, variant="f32_rowmajor", **same),
    ]
    write(tmp_path / GPU / "sparsert_table1", rows)
    (block,) = peers.blocks_of(Records(tmp_path, GPU).data, asked, times)
    return block.rows.iloc[0]


def test_the_originals_times_are_its_fastest_of_a_choice_over_the_dense_library_in_its_type_and_policy(tmp_path):
    found = beside(tmp_path, match(), session())
    assert (found["theirs0"], found["dense_theirs"]) == (2.0, 10.0)
    assert (found["here0"], found["dense_here"]) == (6.0, 12.0)


@pytest.mark.parametrize(
    ("any_pattern", "changes", "same"),
    [
        (False, {}, True),
        (False, {"sparsity": 0.905}, True),
        (False, {"sparsity": 0.91}, False),
        (False, {"source": "uniform:7"}, True),
        (False, {"source": "balanced:0"}, False),
        (False, {"dtype": "f16", "problem": "p_f16"}, False),
        (False, {"n": 64}, False),
        (False, {"source": "vnm:64:2:8:1"}, False),
        (True, {"source": "dlmc:rn50/x", "sparsity": 0.91}, True),
        (True, {"source": "dlmc:rn50/x", "sparsity": 0.92}, False),
    ],
)
def test_a_recorded_problem_is_the_sessions_by_sizes_type_pattern_and_level(tmp_path, any_pattern, changes, same):
    found = beside(tmp_path, match(any_pattern), session(), **changes)
    assert (found["problem"] != "") == same
    assert math.isnan(found["here0"]) != same


@pytest.mark.parametrize(("source", "same"), [("vnm:64:2:8:1", True), ("vnm:128:2:8:0", False)])
def test_patterns_of_one_level_with_other_blocks_are_others(tmp_path, source, same):
    found = beside(tmp_path, match(), session(source="vnm:64:2:8"), source=source)
    assert (found["problem"] != "") == same


@pytest.mark.parametrize(("shape", "same"), [("n1_c64", True), ("n2_c32", False)])
def test_a_convolution_is_the_sessions_by_its_shape(tmp_path, shape, same):
    times = session(op="conv2d", shape="n1_c64")
    found = beside(tmp_path, match(), times, op="conv2d", shape=shape)
    assert (found["problem"] != "") == same


@pytest.mark.parametrize(("here", "verdict"), [(1.07, "better"), (1.04, "as good"), (0.96, "as good"), (0.94, "worse")])
def test_as_good_reaches_as_far_above_the_original_as_below(here, verdict):
    assert peers.verdict(pd.DataFrame({"kind": ["gain", "paired"], "ratio": [here, here]})) == verdict
