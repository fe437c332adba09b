"""Where one page shows several operations or types, marks and notes are of what each figure and table shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import fake_records
import pytest
from matplotlib.figure import Figure

from nnzbench.facts.results import load
from nnzbench.problems import tables
from nnzbench.problems.problem import Problem
from nnzbench.records.record import Record
from nnzbench.records.selection import select
from nnzbench.report.text.pages import Page

Cut = Callable[[Record], bool]


def page_of(folder: Path, rows: Sequence[Record], cut: Cut = lambda _: False, workers: Sequence[str] = "x") -> Page:
    """The page of these rows; `cut` were not tuned; `workers` are the GPUs of the environments in their order."""
    fake_records.write(folder, rows)
    for at, worker in enumerate(workers, 1):
        path = folder / ("environment.json" if at == 1 else f"environment-{at}.json")
        path.write_text(json.dumps({"source": {"commit": "1"}, "worker": worker}), encoding="utf-8")
    fake_records.tuned(folder, lambda row: ("first",) if cut(row) else ("all",))
    page, _ = fake_records.drawn(load(folder))
    return page


def legend_of(figure: Figure) -> set[str]:
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def convolutions(problem: Problem, math: str) -> dict[tuple[str, str], float]:
    """A time of each of the figure's curves, and both of cuDNN's layouts."""
    paper = {("direct_conv", f"paper_sbs{images}"): 300.0 + images for images in (2, 4, 8)}
    ours = {("direct_conv", "staged_r86_1x4x32_c32_b4"): 100.0}
    return paper | ours | {("cudnn", f"{math}_{form}_plan01_eng1"): 400.0 for form in ("nchw", "nhwc")}


@pytest.mark.parametrize(
    ("variants", "cut", "uncut"),
    [
        ("paper", "the paper's method, padded input given", "best of this project's kernels"),
        ("staged", "best of this project's kernels", "the paper's method, padded input given"),
    ],
)
def test_legend_and_table_of_direct_convolution_mark_the_same_names(
    tmp_path: Path, figures: dict[str, Figure], variants: str, cut: str, uncut: str
) -> None:
    """Of a layer the run had time for one mapping's first choice alone, which is all that it recorded of it."""
    rows = [
        fake_records.timed(
            kernel, us, variant, experiment=p.experiment, problem=p.name, op=p.op, m=p.m, k=p.k, n=p.n,
            sparsity=p.sparsity, source=p.source, shape=p.shape, dtype=p.dtype,
        )
        for p in tables.load("direct_conv_table6", None)
        for (kernel, variant), us in convolutions(p, p.dtype).items()
    ]  # fmt: skip
    layer = next(row.problem for row in rows if "_equal" in row.problem and row.dtype == "f32")
    rows = [
        row
        for row in rows
        if row.problem != layer
        or row.kernel == "cudnn"
        or (row.variant.startswith(variants) and "sbs4" not in row.variant)
    ]
    selected = select(rows)
    page = page_of(tmp_path / "r", selected, lambda row: (row.problem, row.kernel) == (layer, "direct_conv"))
    legend = legend_of(figures["speedup"])
    assert f"{cut}†" in legend
    assert uncut in legend
    equal, stages, uniform, others = page.sections[0].tables
    paper = "| the paper's method, padded input given"
    assert (f"{paper}† |" in stages, f"{paper}† |" in others) == (variants == "paper", False)
    assert ("| ours fp32† |" in equal, "| ours fp32† |" in uniform) == (variants == "staged", False)
    assert "ours fp16†" not in equal
