"""Invented records of any experiment from its problem table, and the facts of its page. Not a test file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import fake_records
import pandas as pd

from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import Problem
from nnzbench.papers.catalogue import page_of
from nnzbench.report import render
from nnzbench.report.page import View
from nnzbench.results.records.record import Record
from nnzbench.results.result_set import load

Timed = tuple[str, str, Callable[[Problem], float | None]]
"""Kernel, variant and its microseconds on a problem, None for one that it does not compute."""


def records(
    experiment: str, timed: Iterable[Timed], dtype: str = "", keep: Callable[[Problem], bool] = lambda _: True
) -> list[Record]:
    """Hot rows of every problem of the experiment's table, on stand-ins."""
    rows = []
    for problem in filter(keep, tables.load(experiment, real=False)):
        positions = problem.m * (problem.n if problem.op == "sddmm" else problem.k)
        nnz = round(positions * (1 - problem.sparsity))
        depth = problem.k if problem.op == "sddmm" else problem.n
        for kernel, variant, us in timed:
            time = us(problem)
            if time is None:
                continue
            rows.append(
                fake_records.record(
                    experiment=experiment, problem=problem.name, op=problem.recorded_op, m=problem.m, k=problem.k,
                    n=problem.n, shape=problem.shape, dtype=dtype or problem.dtype, sparsity=problem.sparsity, nnz=nnz,
                    source=problem.source, kernel=kernel, variant=variant, policy="hot", median_us=time, q1_us=time,
                    q3_us=time, flops=2.0 * nnz * depth,
                )
            )  # fmt: skip
    return rows


def view_of(folder: Path, experiment: str, timed: Iterable[Timed | Record]) -> View:
    """What the experiment's page sees of those times or rows, which are written to the folder."""
    given = list(timed)
    rows = records(experiment, given) if isinstance(given[0], tuple) else given
    page = page_of(experiment)
    assert page is not None
    return View(load(fake_records.write(folder, rows)), page.attributes)


def drawn(folder: Path, experiment: str, timed: Iterable[Timed | Record]) -> tuple[View, pd.Series]:
    """The same, and the hot facts that its page writes by group, subject and baseline."""
    view = view_of(folder, experiment, timed)
    render.write(page_of(experiment), view.results)
    facts = pd.read_csv(folder / "facts.csv").query("policy == 'hot'")
    return view, facts.set_index(["group", "subject", "baseline"])["ratio"].sort_index()


def spmm(us: Callable[[Problem], float]) -> Callable[[Problem], float | None]:
    return lambda problem: us(problem) if problem.op == "spmm" else None


def sddmm(us: Callable[[Problem], float]) -> Callable[[Problem], float | None]:
    return lambda problem: us(problem) if problem.op == "sddmm" else None
