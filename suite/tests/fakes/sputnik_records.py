"""Invented records of any experiment from its problem table, and checks of figures. Not a test file."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import fake_records
import pandas as pd
from draft_figures import pages_alone
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nnzbench.problems import tables
from nnzbench.problems.problem import Problem
from nnzbench.records.record import Record
from nnzbench.records.selection import select
from nnzbench.site.build import build

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
    return select(rows)


def report(tmp_path: Path, rows: list[Record]) -> tuple[str, pd.DataFrame]:
    """The page and what it draws, built from records on disk."""
    folder = fake_records.write(tmp_path / "nvidia-h200" / rows[0].experiment, rows)
    with pages_alone():
        (built,) = build(tmp_path, [rows[0].experiment])
    assert built.page is not None
    return built.page.read_text(encoding="utf-8"), pd.read_csv(folder / "summary.csv")


def apart(figure: Figure) -> None:
    """No two tick labels of an axis overlap, and none is drawn over the legend or past the edge."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    legends = [legend.get_window_extent(renderer) for legend in figure.legends]
    for axis in figure.axes:
        (left, right), (bottom, top) = sorted(axis.get_xlim()), sorted(axis.get_ylim())
        across = [label for label in axis.get_xticklabels() if left <= label.get_position()[0] <= right]
        along = [label for label in axis.get_yticklabels() if bottom <= label.get_position()[1] <= top]
        for labels in (across, along):
            shown = [label for label in labels if label.get_text()]
            boxes = [label.get_window_extent(renderer) for label in shown]
            for box in boxes:
                assert min(box.x0, box.y0) >= 0
                assert box.x1 <= figure.bbox.x1 + 1
                assert not any(box.overlaps(legend) for legend in legends)
            if shown and not shown[0].get_rotation():
                assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))


def spmm(us: Callable[[Problem], float]) -> Callable[[Problem], float | None]:
    return lambda problem: us(problem) if problem.op == "spmm" else None


def sddmm(us: Callable[[Problem], float]) -> Callable[[Problem], float | None]:
    return lambda problem: us(problem) if problem.op == "sddmm" else None
