"""Sputnik's table IV and figure 12 redrawn: frames per second of dense and sparse MobileNetV1 by accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nnzbench.facts.results import ResultSet, each
from nnzbench.papers.sputnik import leads
from nnzbench.problems.names import label_of
from nnzbench.report.data import context, networks, published
from nnzbench.report.data.series import Series
from nnzbench.report.draw import layout, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, View
from nnzbench.report.text.tables import GAP, markdown, number

EQUAL_ACCURACY = ((1.0, 1.3), (1.2, 1.5), (1.4, 1.8))
"""Widths of the dense and the sparse network of the same accuracy: the paper's pairs."""


@dataclass(frozen=True)
class Drawn:
    """One way of computing the 1x1 convolutions of dense or of sparse networks."""

    series: Series
    model: str
    colour: str
    marker: str
    size: float = 6.0
    """Of its markers: larger where another curve may cover them."""

    @property
    def key(self) -> str:
        return self.series.key

    @property
    def label(self) -> str:
        return self.series.label


TF32 = replace(networks.DENSE, key="dense_tf32", label="dense: cuBLAS TF32", math="tf32")
ALONE = Series("sparse_sputnik", "sparse: sputnik alone", ("sputnik_bias_relu",))
CURVES = (
    Drawn(networks.DENSE, "dense", style.INK, "s"),
    Drawn(TF32, "dense", style.MUTED, "s"),
    Drawn(networks.SPARSE, "sparse", style.GREEN, "^", size=11.0),
    Drawn(ALONE, "sparse", style.BLUE, "o"),
)
COLUMNS = ("curve", "gpu", "policy", "model", "width", "accuracy", "us", "frames_per_second", "depthwise_us", "missing")


def networks_of(results: ResultSet) -> pd.DataFrame:
    """Every network of every curve per policy, and the paper's (`curve` = `paper`); `us` is NaN where incomplete."""
    paper = published.read(
        "sputnik_table4_sparse_mobilenet", ("model", "width", "accuracy", "throughput_fps", "gpu", "batch")
    ).rename(columns={"throughput_fps": "frames_per_second"})
    accuracy = {(row.model, row.width): row.accuracy for row in each(paper)}
    rows = []
    for policy in context.policies(results.frame):
        for curve in CURVES:
            way = {curve.model: curve.series}
            for one in networks.mobilenets(results.frame, policy, **way):
                if one.name.partition("_")[0] != curve.model:
                    continue
                rows.append(
                    {
                        "curve": curve.key,
                        "gpu": results.gpu,
                        "policy": policy,
                        "model": curve.model,
                        "width": one.width,
                        "accuracy": accuracy.get((curve.model, one.width), math.nan),
                        "us": one.us if one.us else math.nan,
                        "frames_per_second": one.frames_per_second or math.nan,
                        "depthwise_us": one.depthwise_us if one.us else math.nan,
                        "missing": " ".join(one.missing),
                    }
                )
    paper = paper.assign(curve="paper", policy="published", us=1e6 / paper["frames_per_second"])
    return pd.concat([pd.DataFrame(rows, columns=list(COLUMNS)), paper.reindex(columns=list(COLUMNS))])


def _show(view: View[pd.DataFrame]) -> Shown:
    here = view.data[view.data["policy"].isin([view.policy, "published"])]
    return Shown(
        _figure(here, view.title, view.gpu),
        _finding(here),
        (
            f"Frames per second:\n\n{_table(here, view.gpu)}",
            f"Sparse over dense at the same accuracy (frames per second):\n\n{_equal(here)}",
        ),
        _gaps(here),
        headline=_headline(here),
        names={name: _of_network(name) for name in set(view.frame["problem"])},
    )


def _of_network(problem: str) -> str:
    """`layer pw11 of dense 1.2`: which point of the figure a layer is a part of."""
    model, _, rest = label_of(problem).partition("_w")
    width, _, layer = rest.partition("_")
    return f"layer {layer} of {model} {width}" if layer else label_of(problem) or problem


def _frames(rows: pd.DataFrame, curve: str, model: str, width: float) -> float:
    found = rows[(rows["curve"] == curve) & (rows["model"] == model) & (rows["width"] == width)]["frames_per_second"]
    return float(found.iloc[0]) if len(found) else math.nan


def _at_equal_accuracy(rows: pd.DataFrame, sparse: str, dense: str) -> list[float]:
    """Frames per second of one curve's sparse network over another's dense one, of the pairs that have both."""
    pairs = [_frames(rows, sparse, "sparse", s) / _frames(rows, dense, "dense", d) for d, s in EQUAL_ACCURACY]
    return [ratio for ratio in pairs if not math.isnan(ratio)]


def _headline(rows: pd.DataFrame) -> str:
    """Title of the figure; empty where no pair has both speeds."""
    said = []
    for key, math_ in (("dense", "fp32"), ("dense_tf32", "TF32")):
        if known := _at_equal_accuracy(rows, "sparse", key):
            ends = dict.fromkeys(f"{end(known):.2f}" for end in (min, max))
            said.append(f"{' to '.join(ends)}× as fast as dense {math_}")
    return f"At equal accuracy sparse MobileNetV1 is {' and '.join(said)}" if said else ""


def _finding(rows: pd.DataFrame) -> str:
    known, paper = _at_equal_accuracy(rows, "sparse", "dense"), _at_equal_accuracy(rows, "paper", "paper")
    if not known:
        return "No pair of networks of one accuracy has all its layers timed."
    return (
        f"At the same accuracy the sparse networks process {min(known):.2f} to {max(known):.2f} times as many frames "
        f"per second as the dense ones in fp32; in the paper's table, on a V100, {min(paper):.2f} to {max(paper):.2f} "
        "times (its text: 1.21 to 1.24)."
    )


def _table(rows: pd.DataFrame, gpu: str) -> str:
    networks_ = rows[["model", "width"]].drop_duplicates().sort_values(["model", "width"], kind="stable")
    accuracy = {(r.model, r.width): r.accuracy for r in each(rows)}
    shown = [curve for curve in CURVES if rows.loc[rows["curve"] == curve.key, "us"].notna().any()]
    out = []
    for one in each(networks_):
        cells = [number(_frames(rows, curve.key, one.model, one.width), 0) for curve in shown]
        paper = number(_frames(rows, "paper", one.model, one.width), 0)
        layers = rows[(rows["curve"] == one.model) & (rows["width"] == one.width)]
        share = (layers["depthwise_us"] / layers["us"]).dropna()
        depthwise = f"{100 * share.iloc[0]:.0f} %" if len(share) else GAP
        printed = number(accuracy[one.model, one.width], 1)
        out.append([one.model, f"{one.width:g}", printed, *cells, depthwise, paper])
    header = ["model", "width", "accuracy (%), the paper's", *(f"{curve.label}, {gpu}" for curve in shown)]
    return markdown([*header, "time in depthwise layers", "the paper, V100"], out, left=2)


def _equal(rows: pd.DataFrame) -> str:
    out = []
    for dense, sparse in EQUAL_ACCURACY:
        best, alone = _frames(rows, "sparse", "sparse", sparse), _frames(rows, "sparse_sputnik", "sparse", sparse)
        line = [
            best / _frames(rows, "dense", "dense", dense),
            alone / _frames(rows, "dense", "dense", dense),
            best / _frames(rows, "dense_tf32", "dense", dense),
            _frames(rows, "paper", "sparse", sparse) / _frames(rows, "paper", "dense", dense),
        ]
        out.append([f"dense {dense:g}, sparse {sparse:g}", *map(number, line)])
    header = ["widths", "best over fp32", "sputnik over fp32", "best over TF32", "the paper, V100, fp32"]
    return markdown(header, out)


def _figure(rows: pd.DataFrame, title: str, gpu: str) -> Figure:
    caption = (
        "Batch 1; accuracies are the paper's, of networks trained and pruned there. Left and up is better; times start "
        "above 0."
    )
    figure = layout.headed(5.0, title, caption)
    ours, theirs = figure.add_axes((0.075, 0.26, 0.53, 0.55)), figure.add_axes((0.665, 0.26, 0.32, 0.55))
    ours.set_title(gpu)
    theirs.set_title("the paper, V100")
    handles = []
    drawn: set[str] = set()
    for curve in CURVES:
        points = rows[(rows["curve"] == curve.key) & rows["us"].notna() & rows["accuracy"].notna()]
        if points.empty:
            continue
        line = Line2D(points["us"], points["accuracy"], color=curve.colour, lw=1.4, label=curve.label)
        line.set(marker=curve.marker, markersize=curve.size, markeredgecolor="white")
        handles.append(ours.add_line(line))
        if curve.key != ALONE.key or networks.SPARSE.key not in drawn:  # both curves end at nearly the same points
            _widths(ours, points, curve.colour)
        drawn.add(curve.key)
    for model, marker in (("dense", "s"), ("sparse", "D")):
        points = rows[(rows["curve"] == "paper") & (rows["model"] == model)]
        line = Line2D(points["us"], points["accuracy"], color="#8250df", ls=":", marker=marker, mfc="none", lw=1.1)
        line.set_label(f"{model}: the paper, V100")
        handles.append(theirs.add_line(line))
        _widths(theirs, points, "#8250df")
    heights = rows["accuracy"].dropna()
    for axis in (ours, theirs):
        axis.grid()
        axis.margins(x=0.12)
        axis.autoscale_view()
        if len(heights):
            axis.set_ylim(heights.min() - 0.25, heights.max() + 0.15)
        axis.set_xlabel("runtime of one image (µs)")
    ours.set_ylabel("top-1 accuracy (%)")
    layout.legend_below(figure, handles, [str(handle.get_label()) for handle in handles], columns=3)
    return figure


def _widths(axis: Axes, points: pd.DataFrame, colour: str) -> None:
    """The width multiplier beside the first and the last point of a curve: sparse ones left, dense ones right."""
    for row in each(points.sort_values("width").iloc[[0, -1]]):
        left = row.model == "sparse"
        axis.annotate(
            f"{row.width:g}",
            (row.us, row.accuracy),
            xytext=(-5 if left else 5, -9),
            ha="right" if left else "left",
            textcoords="offset points",
            fontsize=7.5,
            color=colour,
        )


def _gaps(rows: pd.DataFrame) -> Iterator[str]:
    """One sentence per curve on the networks that have a layer without a time, and so no speed."""
    for curve in CURVES:
        lost = rows[(rows["curve"] == curve.key) & rows["us"].isna()]
        if lost.empty:
            continue
        networks_ = ", ".join(f"{row.width:g} ({len(row.missing.split())} layers)" for row in each(lost))
        layers = [layer.rpartition("_")[2] for layer in lost["missing"].iloc[0].split()]
        named = ", ".join(layers[:6]) + (", …" if len(layers) > 6 else "")
        policy = lost["policy"].iloc[0]
        yield f"{curve.label} ({policy}): no speed at widths {networks_}, whose layers lack times: first {named}."


PAGE = PageSpec(
    lead=leads.MOBILENET,
    title="Sputnik table IV and figure 12",
    intro=(
        "The 13 pairs of depthwise and 1×1 convolution of MobileNetV1 at batch 1, with bias and ReLU, at widths "
        "of table IV of *Sparse GPU Kernels for Deep Learning* (SC 2020): dense 1×1 convolutions, or 90 % sparse "
        "ones but the first. A network's time is the sum of its layers', each timed by itself; the first 3×3 "
        "convolution and the classifier are left out, so that the paper's whole networks do a little more. Nothing "
        "was trained here: accuracies are the paper's."
    ),
    data=networks_of,
    sections=(SectionSpec("accuracy", "MobileNetV1: accuracy and runtime of one image", _show),),
    series=lambda view: [curve.series for curve in CURVES],
)
