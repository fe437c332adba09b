"""Sputnik's figure 2: properties of the collection of pruned matrices, from its index alone. Nothing is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from nnzbench.papers.sputnik import PAPER
from nnzbench.problems import tables
from nnzbench.problems.experiment import Experiment
from nnzbench.report.data import published
from nnzbench.report.pages.page import Drawn, Made, Page
from nnzbench.report.pages.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXPERIMENT = Experiment("sputnik_figure2", "Properties of pruned deep-learning matrices", PAPER, "Figure 2", {})
MODELS = {"rn50": ("ResNet-50", "#E69F00"), "transformer": ("Transformer", "#0072B2")}
BINS = 30


class Property(NamedTuple):
    """One of the paper's three, and what its ratio to SuiteSparse says."""

    label: str
    ratio: str


PROPERTIES = {
    "sparsity": Property("sparsity", "times less sparse (share of nonzeros)"),
    "row_length": Property("mean nonzeros per row", "times longer rows"),
    "row_cov": Property("CoV of row lengths", "times less variation"),
}


def matrices() -> pd.DataFrame:
    """The paper's 3,012 matrices: model, method, sparsity as counted, mean nonzeros of a row, and their variation.

    `row_cov` is the standard deviation of row lengths over their mean; NaN where it is not known.
    """
    rows = [
        (one.model, one.method, 1 - one.nnz / (one.rows * one.cols), one.row_mean, one.row_cov)
        for one in tables.dlmc_selection()
    ]
    return pd.DataFrame(rows, columns=["model", "method", *PROPERTIES]).astype(dict.fromkeys(PROPERTIES, float))


def _ratios() -> pd.Series[float]:
    """How many times the collection's means differ from SuiteSparse's, by the paper."""
    return published.read("sputnik_figure2_properties", ("property", "ratio")).set_index("property")["ratio"]


def implied(name: str, mean: float, ratio: float) -> float:
    """SuiteSparse's mean by the paper's ratio, if the ratio is one of means."""
    if name == "sparsity":
        return 1 - (1 - mean) / ratio
    return mean / ratio if name == "row_length" else mean * ratio


def _answer(view: View) -> str:
    means, ratios = matrices()[list(PROPERTIES)].mean(), _ratios()
    said = "; ".join(
        f"{one.label} **{means[name]:.3g}**, {ratios[name]:g} {one.ratio}" for name, one in PROPERTIES.items()
    )
    return f"In the mean: {said}. The ratios are the paper's, to SuiteSparse."


def _against_paper(view: View) -> pd.DataFrame:
    found, ratios = matrices(), _ratios()
    rows = []
    for name, one in PROPERTIES.items():
        values, ratio = found[name].dropna(), float(ratios[name])
        spread = f"{values.quantile(0.1):.3g} to {values.quantile(0.9):.3g}"
        cells = (f"{values.mean():.3g}", f"{values.median():.3g}", spread, f"{ratio:g} {one.ratio}")
        rows.append([one.label, *cells, f"{implied(name, values.mean(), ratio):.3g}"])
    heads = ["", "mean", "median", "10th to 90th percentile", "the paper, against SuiteSparse"]
    return pd.DataFrame(rows, columns=[*heads, "SuiteSparse's mean, implied"])


def _groups(view: View) -> pd.DataFrame:
    found = matrices()
    found["method"] = found["method"].str.replace("_", " ")
    found["model"] = found["model"].map({model: name for model, (name, _) in MODELS.items()})
    groups = [("all", found)]
    for model, some in found.groupby("model"):
        groups += [(str(model), some), *((f"{model}, {method}", few) for method, few in some.groupby("method"))]
    rows = [[words, str(len(some)), *(f"{some[name].mean():.3g}" for name in PROPERTIES)] for words, some in groups]
    return pd.DataFrame(rows, columns=["mean of", "matrices", *(one.label for one in PROPERTIES.values())])


def _figure(view: View, title: str) -> Figure:
    from matplotlib.patches import Patch

    from nnzbench.report.draw import canvas, style

    found, ratios = matrices(), _ratios()

    def draw(axis: Axes, row: None, name: str) -> None:
        values = found[name].dropna()
        if name == "sparsity":
            edges = np.linspace(np.floor(20 * values.min()) / 20, 1, BINS + 1)
        else:
            edges = np.geomspace(max(values[values > 0].min(), values.max() / 1e4), values.max(), BINS + 1)
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        for model, (_, colour) in MODELS.items():
            mine = values[found["model"] == model].clip(edges[0], edges[-1])
            axis.stairs(np.histogram(mine, edges)[0], edges, fill=True, color=colour, alpha=0.55)
        axis.axvline(values.mean(), color=style.INK, lw=1.4)
        axis.axvline(implied(name, values.mean(), ratios[name]), color=canvas.PRINTED, lw=1.6, ls=":")
        axis.grid(axis="y")
        axis.set_xlabel(PROPERTIES[name].label)

    legend = {name: Patch(color=colour, alpha=0.55) for name, colour in MODELS.values()}
    caption = (
        f"Matrices of {len(found):,} in each bin. The line is the mean of both models, the dotted one SuiteSparse's, "
        "by the paper's ratio."
    )
    return canvas.grid([None], list(PROPERTIES), [2.6], title, caption, legend, draw)


def page() -> Page:
    """Its page."""
    why = "statistics of matrices, not of times"
    return Page(
        question="How do the matrices of pruned networks differ from those of scientific computing?",
        intro="Matrices of pruned ResNet-50 and Transformer models from the Deep Learning Matrix Collection, those of "
        "figure 2 of *Sparse GPU Kernels for Deep Learning* (SC 2020), from the index in `datasets/dlmc_index.csv.gz`. "
        "The coefficient of variation (CoV) is the standard deviation of a matrix's row lengths over their mean. The "
        "paper sets these beside 2,833 scientific matrices (SuiteSparse), which this suite does not hold; its ratios "
        "of averages imply SuiteSparse's means.",
        made=_answer,
        figures=(Drawn("properties", "Sparsity, row length and its variation, by model", _figure, why),),
        tables=(
            Made("Against SuiteSparse", _against_paper, why, collapsed=False),
            Made("By model and pruning method", _groups, why, collapsed=False),
        ),
    )
