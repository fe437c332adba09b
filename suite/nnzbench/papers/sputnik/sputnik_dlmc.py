"""Sputnik's figure 9 and table I: the collection of pruned matrices, by share of zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from nnzbench.facts.groups import OPS, Group
from nnzbench.facts.results import each
from nnzbench.facts.selector import (
    CUBLAS,
    CUSPARSE,
    CUSPARSE_COLUMN,
    CUSPARSE_DEFAULT,
    CUSPARSE_F16,
    DEFAULT,
    DENSE,
    FP16,
    MATHS,
    TF32,
    UNTUNED,
    Selector,
    kernel,
    own,
)
from nnzbench.facts.table import Comparison
from nnzbench.papers.sputnik import OTHER_PAPERS, PAPER
from nnzbench.problems.experiment import Experiment, dtypes_of
from nnzbench.report.data import published
from nnzbench.report.pages.page import Answer, Drawn, Made, Page, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "sputnik_dlmc",
    "The collection of pruned deep-learning matrices",
    PAPER,
    "Figure 9, table I",
    dtypes_of(
        *("sputnik", "sputnik_sddmm", "ring_sddmm", "row_stream", "ring", "tensor_spmm", "untuned"),
        *("cublas", "cublaslt", "cusparse"),
        *OTHER_PAPERS,
    ),
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
OTHERS = (kernel("merge_spmm", variants=DEFAULT), kernel("aspt"), kernel("aspt_sddmm"))
BANDS = ((0, 60), (60, 75), (75, 85), (85, 94), (94, 100))
"""Percent of zeros as counted, the first end included."""


def _bands(op: str) -> tuple[Group, ...]:
    return tuple(
        Group(op=op, where=f"{low} <= level < {high}", words=f"with {low} to {high} % zeros", sample=True)
        for low, high in BANDS
    )


class Kind(NamedTuple):
    """An operation in one arithmetic: its kernels, and what it is compared with; the first of both is drawn."""

    op: str
    math: str
    ours: tuple[Selector, ...]
    baselines: tuple[Selector, ...]

    @property
    def title(self) -> str:
        return f"{OPS[self.op]}, {MATHS[self.math]}"


def _of(name: str, math: str = "f32") -> tuple[Selector, Selector]:
    return kernel(name, math, DEFAULT), kernel(name, math)


SPMM = Kind(
    "spmm", "f32", (*_of("sputnik"), own(), UNTUNED), (DENSE, CUSPARSE, TF32, CUBLAS, CUSPARSE_DEFAULT, CUSPARSE_COLUMN)
)
SDDMM = Kind("sddmm", "f32", (*_of("sputnik_sddmm"), own()), (CUSPARSE, CUSPARSE_DEFAULT))
MIXED = Kind(
    "spmm", "f16", (*_of("sputnik", "f16"), own("f16")), (FP16, CUSPARSE_F16, kernel("cusparse", "f16", DEFAULT))
)
KINDS = (SPMM, SDDMM, MIXED)


def _table1(view: View) -> pd.DataFrame | None:
    """All levels together over best cuSPARSE, as the paper pools them, beside the paper's numbers."""
    columns = ("kernel", "precision", "geomean_speedup", "peak_speedup", "peak_tflops", "percent_faster")
    printed = {(row.kernel, row.precision): row for row in each(published.read("sputnik_table1_dataset", columns))}
    rows = []
    for kind in KINDS:
        over = CUSPARSE_F16 if kind.math == "f16" else CUSPARSE
        facts = view.compare(Comparison(kind.ours[:3], (over,), (Group(op=kind.op, sample=True),)))
        peaks = view.cells(kind.ours, Group(op=kind.op)).groupby(["subject", "policy"])["tflops"].max()
        for row in each(facts):
            won = f"{100 * row.wins / row.n:.1f} % of {row.n}"
            cells = [row.ratio, row.best, won, float(peaks[row.subject, row.policy])]
            rows.append([f"{kind.title}: {row.subject}", row.policy, *cells])
        if len(facts):
            paper = printed[kind.op, kind.math]
            cells = [paper.geomean_speedup, paper.peak_speedup, f"{paper.percent_faster:g} %", paper.peak_tflops]
            rows.append([f"{kind.title}: the paper, V100", "", *cells])
    return pd.DataFrame(rows, columns=["", "", "geometric mean", "peak", "won", "peak TFLOP/s"]) if rows else None


def _figure(view: View, title: str) -> Figure | None:
    """Every problem's ratio along its zeros."""
    from nnzbench.report.draw import canvas

    found = {
        kind: view.compare(
            Comparison((kind.ours[0], kind.ours[2]), kind.baselines[:1], (Group(op=kind.op),), ("stem", "level"))
        )
        for kind in KINDS
    }
    found = {kind: facts for kind, facts in found.items() if len(facts)}
    if not found:
        return None
    sides: Sequence[str] = ("sputnik, its heuristic", "best of ours")
    look = canvas.looks((SPMM.ours[0], SPMM.ours[2]))

    def draw(axis: Axes, kind: Kind, policy: str) -> None:
        facts = canvas.rows_at(found[kind], policy=policy)
        for one, side in zip((kind.ours[0], kind.ours[2]), (SPMM.ours[0], SPMM.ours[2]), strict=True):
            rows = facts[facts["subject"] == one.label]
            line = look[side.label].line(alpha=0.75)
            line.set_data(rows["level"], rows["ratio"])
            axis.add_line(line)
        axis.set_xlim(facts["level"].min() - 2, 101)
        canvas.scale(axis, "ratio", "y", found[kind]["ratio"])
        axis.set_xlabel("zeros as counted (%)", fontsize=8.5)
        axis.set_title(f"{kind.title}: over {kind.baselines[0].label}, {canvas.policy_text(policy)}", pad=4)

    legend = {name: one.line() for name, one in zip(sides, look.values(), strict=True)}
    caption = "Every mark is a matrix at one batch size; beyond the line at 1× the kernel is faster."
    return canvas.grid(list(found), view.policies, [2.5] * len(found), title, caption, legend, draw)


def page() -> Page:
    """Its page."""
    spmm, sddmm = _bands("spmm"), _bands("sddmm")
    return Page(
        question="Is Sputnik faster than cuSPARSE, and than a dense product, over the collection of pruned matrices?",
        intro="Pruned weight matrices of ResNet-50 and Transformer models from the Deep Learning Matrix Collection at "
        "inference and training batch sizes, as SpMM in fp32 and with fp16 data (sums in fp32), and as SDDMM (figure 9 "
        "and table I of *Sparse GPU Kernels for Deep Learning*, SC 2020). A run takes a sample of 60 of the paper's "
        "3,012 matrices, with its share of every model, method and level. Zeros are as counted: names of folders tell "
        "what was asked for. Throughput counts useful work alone. SDDMM has no dense baseline: cuBLAS computes all of "
        "A Bᵀ.",
        answers=(
            Answer(spmm[3], SPMM.ours[0], FP16, (own(), own("f16"))),
            Answer(spmm[3], SPMM.ours[0], CUSPARSE, (own(),), CUSPARSE_COLUMN),
            Answer(sddmm[3], SDDMM.ours[0], CUSPARSE, (own(),), CUSPARSE_DEFAULT),
        ),
        comparison=Comparison((*SPMM.ours[:3], own("f16"), UNTUNED), (DENSE, CUSPARSE, TF32, FP16), spmm),
        figures=(
            Drawn("collection", "Each matrix of the collection: sparse kernels over the baseline", _figure,
                  "a mark a matrix along its zeros, which no two need to share"),
        ),
        tables=(
            RatioTable("SDDMM", Comparison(SDDMM.ours, SDDMM.baselines, sddmm), collapsed=False),
            RatioTable("SpMM with fp16 data", Comparison(MIXED.ours, MIXED.baselines, spmm)),
            RatioTable("SpMM over other choices of cuBLAS and cuSPARSE",
                       Comparison((*SPMM.ours, own("f16")), SPMM.baselines[3:], spmm)),
            RatioTable("SpMM over other papers' kernels", Comparison(SPMM.ours, OTHERS[:2], spmm)),
            RatioTable("SDDMM over another paper's kernel", Comparison(SDDMM.ours, OTHERS[2:], sddmm)),
            Made("Table I: all levels together over best cuSPARSE, as the paper pools them", _table1,
                 "peaks and the paper's numbers stand beside the means"),
            RatioTable("Best of ours by model and batch",
                       Comparison((own(),), (CUSPARSE, DENSE, TF32), spmm, ("model", "batch"))),
            RatioTable("Best of ours by model and batch, SDDMM",
                       Comparison((own(),), (CUSPARSE,), sddmm, ("model", "batch"))),
            RatioTable("Best of ours by model and batch, fp16",
                       Comparison((own("f16"),), (CUSPARSE_F16, FP16), spmm, ("model", "batch"))),
        ),
        baseline=CUSPARSE,
    )  # fmt: skip
