"""Sputnik's products: the collection of pruned matrices, an LSTM's crossover, recurrent layers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from nnzbench.data.problems.tables import SAMPLE
from nnzbench.report import published
from nnzbench.report.page import (
    Answer,
    Crossings,
    Dots,
    Drawn,
    Lines,
    Made,
    Page,
    Printed,
    RatioTable,
    Rows,
    View,
)
from nnzbench.report.tables import crossings
from nnzbench.report.text import GAP
from nnzbench.results.groups import OPS, Group
from nnzbench.results.result_set import each
from nnzbench.results.selector import (
    COLUMN_DEFAULT,
    CUBLAS,
    CUSPARSE,
    CUSPARSE_COLUMN,
    CUSPARSE_DEFAULT,
    CUSPARSE_F16,
    DEFAULT,
    DENSE,
    FP16,
    MATHS,
    PRODUCTS,
    TF32,
    UNTUNED,
    Selector,
    kernel,
    own,
)
from nnzbench.results.table import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


OTHERS = (kernel("merge_spmm", variants=DEFAULT), kernel("aspt"), kernel("aspt_sddmm"))
BANDS = ((0, 60), (60, 75), (75, 85), (85, 94), (94, 100))
"""Percent of zeros as counted, the first end included."""


def _bands(op: str) -> tuple[Group, ...]:
    return tuple(
        Group(op=op, where=f"{low} <= level < {high}", words=f"with {low} to {high} % zeros", sample=SAMPLE)
        for low, high in BANDS
    )


class Kind(NamedTuple):
    """An operation in one arithmetic: its kernels, and what it is compared with."""

    op: str
    math: str
    ours: tuple[Selector, ...]
    baselines: tuple[Selector, ...]
    drawn: tuple[Selector, ...]
    """The paper's kernel, cuSPARSE as the paper calls it, and today's best of both sides."""

    @property
    def title(self) -> str:
        return f"{OPS[self.op]}, {MATHS[self.math]}"


def _of(name: str, math: str = "f32") -> tuple[Selector, Selector]:
    return kernel(name, math, DEFAULT), kernel(name, math)


SPMM_F32 = Kind(
    "spmm",
    "f32",
    (*_of("sputnik"), own(), UNTUNED),
    (DENSE, CUSPARSE, TF32, CUBLAS, CUSPARSE_DEFAULT, CUSPARSE_COLUMN),
    (_of("sputnik")[0], CUSPARSE_COLUMN, own(), CUSPARSE),
)
SDDMM_F32 = Kind(
    "sddmm", "f32", (*_of("sputnik_sddmm"), own()), (CUSPARSE, CUSPARSE_DEFAULT),
    (_of("sputnik_sddmm")[0], CUSPARSE_DEFAULT, own(), CUSPARSE),
)  # fmt: skip
SPMM_F16 = Kind(
    "spmm",
    "f16",
    (*_of("sputnik", "f16"), own("f16")),
    (FP16, CUSPARSE_F16, kernel("cusparse", "f16", DEFAULT)),
    (_of("sputnik", "f16")[0], kernel("cusparse", "f16", COLUMN_DEFAULT), own("f16"), CUSPARSE_F16),
)
KINDS = (SPMM_F32, SDDMM_F32, SPMM_F16)


def _table1(view: View) -> Rows:
    """All levels together over best cuSPARSE, as the paper pools them, beside the paper's numbers."""
    columns = ("kernel", "precision", "geomean_speedup", "peak_speedup", "peak_tflops", "percent_faster")
    printed = {(row.kernel, row.precision): row for row in each(published.read("sputnik_table1_dataset", columns))}
    for kind in KINDS:
        over = CUSPARSE_F16 if kind.math == "f16" else CUSPARSE
        sample = Group(op=kind.op, sample=SAMPLE)
        facts = view.compare(Comparison(kind.ours[:3], (over,), (sample,)))
        peaks = view.cells(kind.ours, sample).groupby(["subject", "policy"])["tflops"].max()
        for row in each(facts[facts["policy"] == view.policy]):
            won = f"{100 * row.wins / row.n:.1f} % of {row.n}"
            yield _line(f"{kind.title}: {row.subject}", row.ratio, row.best, won, peaks[row.subject, row.policy])
        if len(facts):
            paper = printed[kind.op, kind.math]
            won = f"{paper.percent_faster:g} %"
            whose = f"{kind.title}: the paper, V100"
            yield _line(whose, paper.geomean_speedup, paper.peak_speedup, won, paper.peak_tflops)


def _line(whose: str, mean: float, best: float, won: str, tflops: float) -> dict[str, object]:
    return {"": whose, "geometric mean": mean, "peak": best, "won": won, "peak TFLOP/s": tflops}


def _collection(view: View, title: str) -> Figure | None:
    """Every problem of the sample by its useful work, under the page's policy."""
    from nnzbench.report.draw import canvas

    found = {one: view.cells(one.drawn, Group(op=one.op, sample=SAMPLE), view.policy) for one in KINDS}
    found = {one: cells.assign(work=cells["tflops"] * cells["median_us"]) for one, cells in found.items() if len(cells)}
    if not found:
        return None
    sides = dict(zip(("sputnik", "cuSPARSE's default", "best of ours", "best cuSPARSE"), KINDS[0].drawn, strict=True))
    look = canvas.looks([*sides.values()])
    values = {"time": "median_us", "rate": "tflops"}

    def draw(axis: Axes, kind: Kind, value: str) -> None:
        for one, side in zip(kind.drawn, sides.values(), strict=True):
            rows = canvas.rows_at(found[kind], subject=one.label)
            axis.add_line(look[side.label].line(rows["work"], rows[values[value]], alpha=0.6, ms=3.5))
        canvas.scale(axis, "time", "x", found[kind]["work"])
        canvas.scale(axis, value, "y", found[kind][values[value]])
        axis.set_xlabel("useful operations, millions (log)", fontsize=8.5)
        axis.set_title(f"{kind.title}, {canvas.policy_text(view.policy)}: {canvas.AXIS[value]}", pad=4)

    legend = {name: look[side.label].line() for name, side in sides.items()}
    caption = "Every mark is a matrix of the sample at one batch size. The paper has its kernel and cuSPARSE's default."
    return canvas.grid([*found], [*values], [2.5] * len(found), title, caption, legend, draw)


def sputnik_dlmc() -> Page:
    """Sputnik's figure 9 and table I: the collection of pruned matrices, by share of zeros."""
    spmm, sddmm = _bands("spmm"), _bands("sddmm")
    return Page(
        answers=(
            Answer(spmm[3], SPMM_F32.ours[0], FP16, (own(), own("f16"))),
            Answer(spmm[3], SPMM_F32.ours[0], CUSPARSE, (own(),), CUSPARSE_COLUMN),
            Answer(sddmm[3], SDDMM_F32.ours[0], CUSPARSE, (own(),), CUSPARSE_DEFAULT),
        ),
        comparison=Comparison((*SPMM_F32.ours[:3], own("f16"), UNTUNED), (DENSE, CUSPARSE, TF32, FP16), spmm),
        figures=(
            Drawn("collection", "Time and throughput by size of the problem (Sputnik's figure 9)", _collection,
                  "a mark a matrix along its work, which no two need to share"),
        ),
        tables=(
            RatioTable("SDDMM of the collection by zeros", Comparison(SDDMM_F32.ours, SDDMM_F32.baselines, sddmm),
                       collapsed=False),
            Made("Table I: all levels together over best cuSPARSE, as the paper pools them", _table1,
                 "peaks and the paper's numbers stand beside the means"),
        ),
        facts=(
            *(Comparison((one.ours[0], one.ours[2]), one.baselines[:1], (Group(op=one.op),), ("stem", "level"))
              for one in KINDS),
            Comparison(SPMM_F16.ours, SPMM_F16.baselines, spmm),
            Comparison((*SPMM_F32.ours, own("f16")), SPMM_F32.baselines[3:], spmm),
            Comparison(SPMM_F32.ours, OTHERS[:2], spmm),
            Comparison(SDDMM_F32.ours, OTHERS[2:], sddmm),
            Comparison((own(),), (CUSPARSE, DENSE, TF32), spmm, ("model", "batch")),
            Comparison((own(),), (CUSPARSE,), sddmm, ("model", "batch")),
            Comparison((own("f16"),), (CUSPARSE_F16, FP16), spmm, ("model", "batch")),
        ),
        baseline=CUSPARSE,
    )  # fmt: skip


SPUTNIK = kernel("sputnik", variants=DEFAULT)
SPARSE = (
    SPUTNIK, kernel("sputnik"), own(), *map(kernel, ("row_stream", "ring")), UNTUNED, own("f16"),
    kernel("tensor_spmm", "f16"), CUSPARSE, CUSPARSE_DEFAULT,
)  # fmt: skip
BASELINES = (DENSE, CUBLAS, TF32, FP16)
FIGURE1_LEVELS = tuple(Group(level=level) for level in (70, 80, 90, 95))


def _paper() -> pd.DataFrame:
    return published.read("sputnik_figure1_crossover", ("kernel", "gpu", "sparsity"))


def _crossing(view: View, subject: Selector, baseline: Selector) -> dict[str, str]:
    """In words, by policy."""
    return {
        str(row.policy): str(row.text)
        for row in each(crossings(view, Crossings("", subject, baseline, columns="size")))
    }


def _crossings(view: View) -> Rows:
    """From how many zeros on each is as fast as each dense product; fp16 is set against dense fp16 alone."""
    printed = {row.kernel: f"{100 * row.sparsity:.3g} % ({row.gpu})" for row in each(_paper())}
    for one in view.recorded(SPARSE):
        compared = [over for over in BASELINES if one.math == "f32" or over == FP16]
        cells = dict.fromkeys((f"over {over.label}" for over in BASELINES), GAP)
        cells |= {f"over {over.label}": _crossing(view, one, over).get(view.policy, GAP) for over in compared}
        yield {"faster from": one.label, **cells, "the paper, over cuBLAS fp32": printed.get(one.kernel, GAP)}


def _crossed(view: View) -> str:
    """Where the paper's kernel crosses today's fastest dense product, and the paper's."""
    if SPUTNIK not in view.recorded((SPUTNIK,)):
        return "Not recorded yet."
    first, older = (
        f"{_crossing(view, SPUTNIK, over).get('hot', GAP)} zeros over {over.label}" for over in (FP16, CUBLAS)
    )
    paper = published.claim("sputnik-crossover")
    return f"Faster, hot, {SPUTNIK.label}, from **{first}**, from {older}; the paper: {paper}."


def _printed(view: View) -> pd.DataFrame:
    """The paper's crossings, which has no times, at the height of the dense line here."""
    dense = view.cells((CUBLAS,)).query("policy == 'hot'")["median_us"].median()
    return pd.DataFrame({"level": 100 * _paper()["sparsity"], "value": dense})


def sputnik_figure1() -> Page:
    """Sputnik's figure 1: from how many zeros on a sparse product of an LSTM's weights is faster than a dense one."""
    shown = (SPUTNIK, own(), own("f16"), CUSPARSE, CUBLAS, TF32, FP16)
    return Page(
        made=_crossed,
        comparison=Comparison((SPUTNIK, kernel("sputnik"), own(), own("f16"), UNTUNED), PRODUCTS, FIGURE1_LEVELS),
        figures=(
            Lines("runtime", "Sparse and dense products by zeros", shown, value="time",
                  printed=Printed("where sputnik and cuSPARSE cross cuBLAS in the paper, V100", _printed)),
        ),
        tables=(
            Made("Zeros from which it is the faster one", _crossings,
                 "crossings of many kernels with several baselines", collapsed=False),
        ),
        baseline=CUBLAS,
    )  # fmt: skip


LEVELS = (70, 80, 90)
OF_SPMM, OF_SDDMM = (Group(op=op, where="model != 'extra'", words="of figure 10") for op in ("spmm", "sddmm"))
SPMM_LEVELS, SDDMM_LEVELS = (
    tuple(dataclasses.replace(group, level=level) for level in LEVELS) for group in (OF_SPMM, OF_SDDMM)
)
EXTRA = tuple(Group(words="further sizes", where="model == 'extra'", level=level) for level in (*LEVELS, 95))


def sputnik_rnn() -> Page:
    """Sputnik's figure 10: SpMM and SDDMM with the weights of recurrent layers."""
    rule, best = kernel("sputnik", variants=DEFAULT), kernel("sputnik")
    sddmm_rule, sddmm_best = kernel("sputnik_sddmm", variants=DEFAULT), kernel("sputnik_sddmm")
    merge, aspt, aspt_sddmm = kernel("merge_spmm", variants=DEFAULT), kernel("aspt"), kernel("aspt_sddmm")
    dense = (DENSE, TF32, FP16, CUBLAS)
    spmm, sddmm = (rule, best, own(), UNTUNED, merge, aspt), (sddmm_rule, sddmm_best, own(), aspt_sddmm)
    half = (kernel("sputnik", "f16", DEFAULT), kernel("sputnik", "f16"), own("f16"))
    return Page(
        attributes=r"(?:sddmm_)?(?P<cell>rnn|gru|lstm)(?P<state>[\d.]+)k.*",
        answers=(
            Answer(SPMM_LEVELS[2], rule, FP16, (own(), own("f16")), CUSPARSE_COLUMN, "sputnik-rnn-cusparse"),
            Answer(SPMM_LEVELS[2], rule, CUSPARSE, (own(), own("f16")), CUSPARSE_COLUMN),
            Answer(SDDMM_LEVELS[2], sddmm_rule, CUSPARSE, (own(),), CUSPARSE_DEFAULT, "sputnik-rnn-sddmm"),
        ),
        comparison=Comparison((rule, best, own(), own("f16"), UNTUNED), (CUSPARSE, *dense[:3]), SPMM_LEVELS),
        figures=(
            Dots("spmm", "SpMM of recurrent layers over cuSPARSE's default (Sputnik's figure 10)",
                 (rule, merge, aspt, own(), CUSPARSE), CUSPARSE_COLUMN, "size", group=OF_SPMM),
            Dots("sddmm", "SDDMM of recurrent layers over cuSPARSE's default (Sputnik's figure 10)",
                 (sddmm_rule, aspt_sddmm, own(), CUSPARSE), CUSPARSE_DEFAULT, "size", group=OF_SDDMM),
        ),
        tables=(
            RatioTable("SDDMM of recurrent layers", Comparison(sddmm, (CUSPARSE, CUSPARSE_DEFAULT), SDDMM_LEVELS),
                       collapsed=False),
        ),
        facts=(
            Comparison((rule, own(), merge, aspt), (CUSPARSE,), (OF_SPMM,), ("state", "level")),
            Comparison((sddmm_rule, own(), aspt_sddmm), (CUSPARSE,), (OF_SDDMM,), ("state", "level")),
            Comparison((*spmm, own("f16")), (CUSPARSE_COLUMN, CUSPARSE_DEFAULT, CUBLAS, merge, aspt), SPMM_LEVELS),
            Comparison((merge, aspt), (CUSPARSE, CUSPARSE_COLUMN), SPMM_LEVELS),
            Comparison(sddmm[:3], (aspt_sddmm,), SDDMM_LEVELS),
            Comparison(half, (FP16,), SPMM_LEVELS),
            Comparison((rule, own(), own("f16")), (CUSPARSE, *dense), EXTRA),
            Comparison((*spmm, DENSE, TF32), (CUSPARSE,), (Group(op="spmm"),), ("label", "size", "level")),
            Comparison(sddmm, (CUSPARSE,), (Group(op="sddmm"),), ("label", "size", "level")),
        ),
        baseline=CUSPARSE,
    )  # fmt: skip
