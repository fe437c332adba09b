"""SparseRT (PACT 2020): its experiments and their pages."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from nnzbench.data.problems.problem import ConvShape
from nnzbench.report import published
from nnzbench.report.page import Answer, Bars, Dots, Drawn, Made, Page, Printed, Rows, View
from nnzbench.results.data import Data
from nnzbench.results.groups import Group
from nnzbench.results.records.folder import has_records
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import each, load
from nnzbench.results.selector import (
    CUBLAS,
    CUDNN,
    CUDNN_TF32,
    CUSPARSE,
    CUSPARSE_DEFAULT,
    DEFAULT,
    DENSE,
    FP16,
    TF32,
    UNTUNED,
    Selector,
    kernel,
    own,
    written_here,
)
from nnzbench.results.table import Comparison, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVELS = (Group(level=90), Group(level=95))
WHOLE = kernel("sparsert_paper")
"""The paper's tilings and its code."""

ROLLED = kernel("sparsert_rolled", words="at the same tiling")
PARTS = (ROLLED, kernel("sparsert_unbalanced"), kernel("sparsert_fixed"))
WORDS = ("unrolling", "load balancing", "autotuning")
GAINS = Comparison((WHOLE,), PARTS, LEVELS[:1], ("label", "size"), (ROLLED,))
EACH = "one subject over several baselines, one of them at the subject's own tiling"


def _figure(view: View, title: str) -> Figure | None:
    from matplotlib.patches import Patch

    from nnzbench.report.draw import canvas

    facts = view.compare(GAINS)
    if facts.empty:
        return None
    names = sorted(set(facts["label"]))
    look = canvas.looks([dataclasses.replace(one, variants="") for one in PARTS])

    def draw(axis: Axes, row: None, policy: str) -> None:
        for at, part in enumerate(PARTS):
            rows = canvas.rows_at(facts, policy=policy, baseline=part.label)
            ys = [names.index(row.label) + 0.27 * (at - 1) for row in each(rows)]
            axis.barh(ys, rows["ratio"] - 1, 0.25, left=1, color=look[part.label].colour)
        canvas.scale(axis, "ratio", "x", facts["ratio"])
        axis.set(ylim=(len(names) - 0.4, -0.6), yticks=np.arange(len(names)), yticklabels=names)
        axis.set_title(canvas.policy_text(policy), pad=4)

    legend = {word: Patch(color=look[part.label].colour) for part, word in zip(PARTS, WORDS, strict=True)}
    caption = (
        "Times as fast as without the part, at 90 % zeros, by problem of Table 1. What is not unrolled has the same "
        "tiling, the rest its own best. The paper: unrolling over 10× at best, tuning around 2×, balancing comparable."
    )
    return canvas.grid([None], view.policies, [0.32 * len(names)], title, caption, legend, draw, share="y")


def sparsert_ablation() -> Page:
    """SparseRT's figure 8: what unrolling, load balancing and tuning are each worth, one left out at a time."""
    ours = kernel("sparsert")
    own_best, pattern = kernel("sparsert_rolled", words="at its own best tiling"), kernel("sparsert_pattern")
    return Page(
        answers=tuple(Answer(LEVELS[0], WHOLE, one) for one in (own_best, *PARTS[:0:-1])),
        comparison=Comparison((WHOLE,), (ROLLED, own_best, *PARTS[1:], CUBLAS), LEVELS[:1], same_variant=(ROLLED,)),
        figures=(Drawn("gains", "What each part of SparseRT is worth", _figure, EACH),),
        facts=(Comparison((ours, WHOLE, *PARTS[1:], own_best, pattern, TF32), (CUBLAS,), LEVELS[:1]),),
        baseline=CUBLAS,
    )  # fmt: skip


SIDES = (WHOLE, CUSPARSE)
SIZES = ("row", "size", "level")
"""Of problems whose instances should take the same."""


def _spread(view: View) -> Rows:
    """One line per problem of table 1 and kernel: how far its instances are apart, hot."""
    for row in each(spread(view, SIDES, SIZES).query("policy == 'hot'")):
        yield {
            "problem": f"{row.row:02.0f}", "size": row.size, "zeros (%)": f"{row.level:g}", "kernel": row.subject,
            "instances": str(row.instances), "mean µs": f"{row.mean_us:.2f}",
            "deviation": f"{100 * row.deviation:.1f} %", "slowest over fastest": f"{row.slowest:.2f}×",
        }  # fmt: skip


def _answer(view: View) -> str:
    hot = spread(view, SIDES, SIZES).query("policy == 'hot'")
    said = [
        f"**{100 * some['deviation'].median():.1f} %** (at most {100 * some['deviation'].max():.1f}) in {name}"
        for name, some in hot.groupby("subject", sort=False)
    ]
    times = "Times of a problem's instances deviate from their mean by"
    return f"{times} {', '.join(said)}; the median of {hot['row'].nunique()} problems." if said else "Not recorded yet."


def sparsert_instances() -> Page:
    """SparseRT's 257 instances: the matrices of one size and level take the same time, whatever their pattern."""
    return Page(
        attributes=r"(?P<row>\d\d)_(?P<instance>\d\d)",
        made=_answer,
        comparison=Comparison(SIDES, (FP16, DENSE), LEVELS),
        tables=(
            Made("Times of the instances of one size and level, hot", _spread,
                 "compares times of one kernel with themselves"),
        ),
        facts=(Comparison(SIDES, (CUBLAS,), LEVELS, ("row",)),),
        baseline=CUSPARSE,
    )  # fmt: skip


FIRST = tuple(Group(where="label <= '11'", words="problems 1 to 11", level=level) for level in (90, 95))
"""Figure 5: those that have both levels."""
SPARSER = Group(
    words="problems 1 to 11, 95 % zeros against 90 %", cases=r"(\d\d)_.*_95", baseline_cases=r"(\d\d)_.*_90"
)
OLD = Selector(
    "the fastest of cuSPARSE's algorithms of CUDA 10.1", ("cusparse",), variants=r"(csr_alg1|coo_alg[123])_col$"
)
"""What the paper compares with, as far as it is still there."""
MOBILENET = Group(where="label >= '12'", level=90, words="layers of MobileNet V1 (problems 12 to 20)")
SMALLER = Group(where="'12' <= label <= '16'", words="problems 12 to 16")
LARGER = Group(where="label >= '17'", words="problems 17 to 20")


def _printed_table1(view: View) -> pd.DataFrame:
    """Table 1's own speed-ups over cuBLAS."""
    table = published.read("sparsert_table1_spmm", ("problem", "sparsity", "speedup"))
    labels = table["problem"].map("{:02}".format)
    sizes = view.problems.drop_duplicates("label").set_index("label")["size"]
    return table.assign(label=labels, level=100 * table["sparsity"], size=labels.map(sizes), value=table["speedup"])


def _orders(view: View) -> Rows:
    """How alike the order of the problems by their speed-up over cuBLAS is here and on the paper's GPU."""
    facts = view.compare(Comparison((WHOLE,), (CUBLAS,), by=("label", "level")))
    both = facts.merge(_printed_table1(view)[["label", "level", "value"]], on=["label", "level"]).query("label <= '11'")
    for level, some in both.query("policy == @view.policy").groupby("level", sort=False):
        if len(some) > 2:
            yield {"zeros (%)": f"{level:g}", "rank correlation": some["ratio"].rank().corr(some["value"].rank())}


def _synthetic(view: View) -> Rows:
    """The run on synthetic patterns beside the one on real patterns, on the problems that have a real one."""
    folder = view.results.folder / "standin"
    if not has_records(folder):
        return
    other = load(folder)
    if (other.gpu, other.experiment) != (view.results.gpu, view.results.experiment):
        raise RecordError(f"{folder}: not a run of {view.results.experiment} on {view.results.gpu}")
    real = view.frame[~view.frame["source"].str.startswith("standin:")].assign(source="real")
    made = other.frame[other.frame["stem"].isin(real["stem"])]
    made = made.assign(source="synthetic", environment="standin/" + made["environment"])
    theirs = ((f"standin/{name}", count, content) for name, count, content in other.environments)
    whole = (*view.results.environments, *theirs)
    data = Data(dataclasses.replace(view.results, frame=pd.concat([real, made]), environments=whole))
    sputnik = (kernel("sputnik"), kernel("sputnik", variants=DEFAULT))
    for one in (own(), *map(kernel, ("sparsert", "row_stream")), *sputnik, CUBLAS, TF32):
        twin, synthetic = _of(one, "real"), _of(one, "synthetic")
        times = view.compare(Comparison((twin,), (synthetic,), LEVELS), data)
        over = [
            view.compare(Comparison((side,), (_of(CUBLAS, side.source),), LEVELS), data) for side in (twin, synthetic)
        ]
        gains = [{(row.group, row.policy): row.ratio for row in each(facts)} for facts in over]
        for row in each(times):
            if row.policy == view.policies[0]:  # cold times of two sessions differ by more than patterns do
                speed = [found.get((row.group, row.policy), 1.0) for found in gains]
                yield {
                    "kernel": one.label, "problems": f"{row.group} ({row.n})", "real over cuBLAS": speed[0],
                    "synthetic over cuBLAS": speed[1], "real over synthetic": row.ratio,
                    "range": f"{row.worst:.2f} to {row.best:.2f}",
                }  # fmt: skip


def _of(one: Selector, source: str) -> Selector:
    return dataclasses.replace(one, label=f"{one.label}, {source} patterns", source=source)


def sparsert_table1() -> Page:
    """SparseRT's Table 1 and figures 4 to 6: products of the layers of three pruned networks."""
    paper, tuned, sputnik = WHOLE, kernel("sputnik"), kernel("sputnik", variants=DEFAULT)
    every = (
        paper, own(), *map(kernel, ("sparsert", "row_stream", "ring")), tuned, sputnik, UNTUNED,
        CUSPARSE, CUSPARSE_DEFAULT, kernel("cusparse", "tf32"), CUBLAS, DENSE, TF32, FP16,
    )  # fmt: skip
    printed = Printed("SparseRT's paper, T4", _printed_table1)
    once = dataclasses.replace(own(), label="best of ours, one choice hot and cold", one_choice=True)
    sparser = dataclasses.replace(paper, label="sparsert_paper at 90 % zeros")
    return Page(
        answers=tuple(
            Answer(group, paper, FP16, (own(), own("f16")), DENSE, claim)
            for group, claim in zip(LEVELS, ("sparsert-spmm-90", "sparsert-spmm-95"), strict=True)
        ),
        comparison=Comparison(
            (paper, own(), once, own(as_data=True), UNTUNED, sputnik), (DENSE, TF32, FP16, CUSPARSE), LEVELS
        ),
        figures=(
            Dots("speedup", "Sparse products of pruned layers over dense ones", (paper, own(), sputnik), DENSE,
                 x="size", printed=printed),
            Bars("figure4", "Useful TFLOP/s (SparseRT's figure 4)", (CUBLAS, OLD, paper, CUSPARSE), value="rate",
                 panels="level"),
            Dots("figure4d", "SparseRT over cuSPARSE (SparseRT's figure 4d)", (paper, own(), CUSPARSE), OLD, x="size"),
            Dots("figure6", "SparseRT over Sputnik on MobileNet V1 (SparseRT's figure 6)", (paper, own()), sputnik,
                 group=MOBILENET),
        ),
        tables=(
            Made("Order of problems 1 to 11 by their speed-up over cuBLAS, here and on the paper's T4", _orders,
                 "a correlation of ranks is neither a time nor a ratio"),
            Made("Real and synthetic patterns, hot", _synthetic, "it compares two runs, in two folders"),
        ),
        facts=(
            Comparison(every, (DENSE,), LEVELS),
            Comparison((paper,), (CUSPARSE,), by=("label", "size", "level")),
            Comparison((CUBLAS,), (CUSPARSE, CUSPARSE_DEFAULT), LEVELS),
            Comparison((paper,), (CUBLAS, CUSPARSE), FIRST),
            Comparison((paper,), (sparser,), (SPARSER,)),
            Comparison((paper,), (tuned, sputnik), (SMALLER, LARGER)),
            Comparison((paper, own()), (tuned,), (MOBILENET,), ("label", "size")),
        ),
        energy=Comparison((written_here(),), (FP16, DENSE)),
        baseline=CUBLAS,
    )  # fmt: skip


def _printed_table3(view: View) -> pd.DataFrame:
    """Table 3's speed-ups over cuDNN, by the label that a convolution of that shape has here."""
    labels = {row.shape: row.label for row in each(view.problems)}
    sizes = ["batch", "in_channels", "image", "out_channels", "filter", "padding"]
    table = published.read("sparsert_table3_conv", (*sizes, "sparsity", "speedup"))
    shapes = [
        str(ConvShape(batch, channels, image, image, filters, r, r, padding, padding))
        for batch, channels, image, filters, r, padding in table[sizes].itertuples(index=False)
    ]
    table = table.assign(label=pd.Series(shapes).map(labels), level=100 * table["sparsity"])
    return table.assign(value=table["speedup"]).dropna(subset=["label"])


def _first_choice(view: View) -> str:
    facts = view.facts().set_index(["group", "subject", "baseline", "policy"])["best"]
    most = facts.get(("at 90 % zeros", "best cuDNN fp32", "cuDNN, its first choice", "hot"))
    if most is None:
        return ""
    return f"cuDNN's own first choice takes up to {most:.2f} times as long as its fastest plan."


def sparsert_table3() -> Page:
    """SparseRT's Table 3 and figure 7: 3x3 convolutions of ResNet-50."""
    paper = kernel("sparsert_conv_paper", variants="checked_", words="padding tested")
    ours, direct = kernel("sparsert_conv"), kernel("direct_conv")
    first = kernel("cudnn", variants=DEFAULT, words="its first choice")
    return Page(
        answers=tuple(
            Answer(group, paper, CUDNN_TF32, (ours,), CUDNN, claim)
            for group, claim in zip(LEVELS, ("sparsert-conv-90", "sparsert-conv-95"), strict=True)
        ),
        comparison=Comparison((paper, ours, direct), (CUDNN, CUDNN_TF32), LEVELS),
        figures=(
            Dots("speedup", "Sparse 3×3 convolutions of ResNet-50 (SparseRT's figure 7)", (paper, ours, direct), CUDNN,
                 printed=Printed("SparseRT's paper, T4", _printed_table3)),
        ),
        facts=(Comparison((CUDNN, CUDNN_TF32), (first, CUDNN), LEVELS),),
        findings=(_first_choice,),
    )  # fmt: skip
