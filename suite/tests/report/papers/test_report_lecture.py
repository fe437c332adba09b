"""Pages of 2:4 sparsity and granularity where times differ from problem to problem, as means of like ones hide."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import fake_records
import pandas as pd
import pytest

from nnzbench.facts.results import load
from nnzbench.papers.han_lecture import granularity
from nnzbench.problems import tables
from nnzbench.problems.problem import Problem
from nnzbench.records.selection import select

Times = Callable[[int, Problem], dict[tuple[str, str], float]]


def drawn(tmp_path: Path, experiment: str, times: Times) -> tuple[str, pd.DataFrame]:
    """The page and the summary of hot rows; `times` by place and problem."""
    rows = [
        fake_records.timed(
            kernel, us, variant, experiment=experiment, problem=one.name, op=one.op, m=one.m, k=one.k, n=one.n,
            sparsity=one.sparsity, source=one.source, dtype=one.dtype,
        )
        for at, one in enumerate(tables.load(experiment))
        for (kernel, variant), us in times(at, one).items()
    ]  # fmt: skip
    page, summary = fake_records.drawn(load(fake_records.write(tmp_path / "nvidia-h200" / experiment, select(rows))))
    return "\n".join(text for one in page.sections for text in (one.text, *map(str, one.tables))), summary


def test_a_granularity_is_set_against_the_median_of_the_dense_layer_without_the_smaller_ones(tmp_path):
    def times(at: int, one: Problem) -> dict[tuple[str, str], float]:
        if one.conv or one.dtype != "f32":
            return {}
        sparse = {} if one.label.startswith("channel") else {("ring", "x32"): 10.0}
        return {("cublas", "f32_rowmajor"): 1.0 if one.label.startswith("channel") else 40.0 + at**2} | sparse

    drawn(tmp_path, "granularity", times)
    frame = load(tmp_path / "nvidia-h200" / "granularity").frame
    dense = frame[(frame["kernel"] == "cublas") & ~frame["problem"].str.startswith("channel")]["median_us"]
    cells = granularity._cells(frame, "hot", "f32")
    assert {cell.dense_us for cell in cells.values()} == {statistics.median(dense)}
    assert cells["product", "channel", 75.0].us == 1.0


def test_the_better_form_is_the_one_that_gains_more_over_its_own_dense_layer(tmp_path):
    def times(at: int, one: Problem) -> dict[tuple[str, str], float]:
        if one.conv:
            return {("cudnn", "f32_nchw"): 15.0, ("direct_conv", "t1"): 5.0}
        return {("cublas", "f32_rowmajor"): 40.0, ("ring", "x32"): 10.0}

    drawn(tmp_path, "granularity", times)
    cells = granularity._cells(load(tmp_path / "nvidia-h200" / "granularity").frame, "hot", "f32")
    best = granularity._best(cells, "unstructured", 75.0)
    assert best is not None
    assert (best.kernel, best.gain) == ("ring", pytest.approx(4.0))
