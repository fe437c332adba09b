"""Sputnik's figure 2 redrawn: properties of the collection of pruned matrices. Statistics alone: nothing is run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullLocator
from numpy.typing import NDArray

from nnzbench.matrices.index import DlmcEntry
from nnzbench.papers.sputnik import collection
from nnzbench.problems import tables
from nnzbench.report.data import published
from nnzbench.facts.results import each
from nnzbench.report.draw import layout, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, View
from nnzbench.report.text.tables import markdown

MODELS = {"rn50": ("ResNet-50", style.ORANGE), "transformer": ("Transformer", style.BLUE)}
BINS = 30
_SUITESPARSE = "#8250df"


@dataclass(frozen=True)
class Property:
    """One panel: a key of `collection.PROPERTIES`, and how it is drawn and compared."""

    name: str
    label: str
    ratio: str
    """What the paper's ratio to SuiteSparse says."""
    log: bool

    def implied(self, mean: float, ratio: float) -> float:
        """SuiteSparse's mean by the paper's ratio, if the ratio is one of means."""
        if self.name == "sparsity":
            return 1 - (1 - mean) / ratio
        return mean / ratio if self.name == "row_length" else mean * ratio

    def show(self, value: float) -> str:
        """A mean as the figure says it."""
        return f"{100 * value:.1f} %" if self.name == "sparsity" else f"{value:.3g}"


PANELS = (
    Property("sparsity", "sparsity", "times less sparse (share of nonzeros)", log=False),
    Property("row_length", "mean nonzeros per row", "times longer rows", log=True),
    Property("row_cov", "CoV of row lengths", "times less variation", log=True),
)


@dataclass(frozen=True)
class Properties:
    """What is drawn: bins, means beside the paper's ratios, and how many matrices there are."""

    bins: pd.DataFrame
    means: pd.DataFrame
    paper: pd.Series[float]
    count: int
    unknown: int
    """Matrices without a known CoV."""


def histograms(entries: list[DlmcEntry]) -> pd.DataFrame:
    """Matrices per property, model and bin; values of 0 on a logarithmic axis count in its first bin."""
    rows = []
    for panel in PANELS:
        edges = _edges(panel, collection.values(panel.name, entries))
        for model in MODELS:
            found = collection.values(panel.name, [entry for entry in entries if entry.model == model])
            counts, _ = np.histogram(np.clip(found, edges[0], edges[-1]), edges)
            for low, high, count in zip(edges, edges[1:], counts, strict=False):
                rows.append(("bin", panel.name, model, float(low), float(high), int(count)))
    return pd.DataFrame(rows, columns=["row", "property", "group", "low", "high", "matrices"])


def _edges(panel: Property, values: NDArray[np.float64]) -> NDArray[np.float64]:
    if not panel.log:
        return np.linspace(np.floor(20 * values.min()) / 20, 1.0, BINS + 1)
    low = values[values > 0].min()
    return np.geomspace(max(low, values.max() / 1e4), values.max(), BINS + 1)


def properties() -> Properties:
    """Bins and means over the paper's selection of the collection."""
    entries = tables.dlmc_selection()
    paper = published.read("sputnik_figure2_properties", ("property", "ratio", "note")).set_index("property")["ratio"]
    means = pd.DataFrame(collection.spreads(entries)).rename(columns={"name": "property"}).assign(row="mean")
    means["paper_ratio_to_suitesparse"] = means["property"].map(paper).where(means["group"] == "all")
    unknown = sum(entry.row_cov is None for entry in entries)
    return Properties(histograms(entries), means, paper, len(entries), unknown)


def _intro(view: View[Properties]) -> str:
    return f"{_answer(view.data)}\n\n{_matrices(view)}"


def _answer(found: Properties) -> str:
    """Question and answer: nothing is recorded that a lead could divide."""
    mean = found.means[found.means["group"] == "all"].set_index("property")["mean"]
    said = "; ".join(
        f"{panel.label} **{panel.show(float(mean[panel.name]))}**, {found.paper[panel.name]:g} {panel.ratio}"
        for panel in PANELS
    )
    return (
        "**Question.** How do the matrices of pruned networks differ from those of scientific computing?\n\n"
        f"**Answer.** In the mean: {said}. The ratios are the paper's, to SuiteSparse."
    )


def _matrices(view: View[Properties]) -> str:
    return (
        f"{view.data.count:,} matrices of pruned ResNet-50 and Transformer models from the Deep Learning Matrix "
        "Collection, those of figure 2 of *Sparse GPU Kernels for Deep Learning* (SC 2020), from the index in "
        "`datasets/dlmc_index.csv.gz`. The coefficient of variation (CoV) is the standard deviation of a "
        "matrix's row lengths over their mean."
    )


def _show(view: View[Properties]) -> Shown:
    found = view.data
    return Shown(
        _figure(found.bins, found.means, found.count),
        "The paper sets these beside 2,833 scientific matrices (SuiteSparse), which this suite does not "
        "hold. Its ratios of averages imply the mean in the last column; dotted in the figure.",
        (_against_paper(found.means, found.paper), f"By model and pruning method:\n\n{_groups(found.means)}"),
    )


def _gaps(view: View[Properties]) -> Iterator[str]:
    yield "SuiteSparse's own histogram is not drawn: its statistics are not part of this suite."
    if view.data.unknown:
        yield f"{view.data.unknown} matrices have no known CoV of row lengths; they are in no CoV."


def _against_paper(means: pd.DataFrame, paper: pd.Series[float]) -> str:
    out = []
    for panel in PANELS:
        (row,) = each(means[(means["group"] == "all") & (means["property"] == panel.name)])
        spread = f"{row.p10:.3g} to {row.p90:.3g}"
        ratio = float(paper[panel.name])
        implied = f"{panel.implied(row.mean, ratio):.3g}"
        out.append([panel.label, f"{row.mean:.3g}", f"{row.median:.3g}", spread, f"{ratio:g} {panel.ratio}", implied])
    header = ["", "mean", "median", "10th to 90th percentile", "the paper, against SuiteSparse"]
    return markdown([*header, "SuiteSparse's mean, implied"], out)


def _groups(means: pd.DataFrame) -> str:
    out = []
    for group in dict.fromkeys(means["group"]):
        rows = means[means["group"] == group].set_index("property")
        cells = [f"{rows['mean'][panel.name]:.3g}" for panel in PANELS]
        model, _, method = str(group).partition("/")
        name = MODELS[model][0] if model in MODELS else "all"
        words = f"{name}, {method.replace('_', ' ')}" if method else name
        out.append([words, str(int(rows["matrices"].max())), *cells])
    return markdown(["mean of", "matrices", *(panel.label for panel in PANELS)], out)


def _figure(bins: pd.DataFrame, means: pd.DataFrame, count: int) -> Figure:
    caption = f"{count:,} matrices of the Deep Learning Matrix Collection; histograms are partly transparent."
    mean = means[means["group"] == "all"].set_index("property")["mean"]
    shown = ", ".join(f"{panel.label} {panel.show(float(mean[panel.name]))}" for panel in PANELS)
    figure = layout.headed(4.0, f"A pruned network's matrix in the mean: {shown}", caption)
    for place, panel in enumerate(PANELS):
        axis = figure.add_axes((0.065 + 0.318 * place, 0.26, 0.275, 0.53))
        for model, (_, colour) in MODELS.items():
            mine = bins[(bins["property"] == panel.name) & (bins["group"] == model)]
            edges = [*mine["low"], float(mine["high"].iloc[-1])]
            axis.stairs(list(mine["matrices"]), edges, fill=True, color=colour, alpha=0.55)
        (mean,) = each(means[(means["group"] == "all") & (means["property"] == panel.name)])
        implied = panel.implied(mean.mean, mean.paper_ratio_to_suitesparse)
        axis.axvline(mean.mean, color=style.INK, lw=1.4)
        axis.axvline(implied, color=_SUITESPARSE, lw=1.6, ls=":")
        axis.text(
            implied,
            1.02,
            f"{panel.show(implied)} ({mean.paper_ratio_to_suitesparse:g}×)",
            transform=axis.get_xaxis_transform(),
            ha="center",
            va="bottom",
            fontsize=8,
            color=_SUITESPARSE,
        )
        if panel.log:
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.xaxis.set_minor_locator(NullLocator())
        axis.grid(axis="y")
        axis.set_xlabel(panel.label)
        axis.set_ylabel("matrices" if place == 0 else "")
    handles: list[Patch | Line2D] = [Patch(color=colour, alpha=0.55) for _, colour in MODELS.values()]
    handles += [Line2D([], [], color=style.INK, lw=1.4), Line2D([], [], color=_SUITESPARSE, lw=1.6, ls=":")]
    labels = [
        *(name for name, _ in MODELS.values()),
        "mean of both",
        "SuiteSparse's mean, by the paper's ratio",
    ]
    layout.legend_below(figure, handles, labels)
    return figure


PAGE = PageSpec(
    title="Sputnik figure 2: properties of pruned matrices",
    intro=_intro,
    data=properties,
    sections=(
        SectionSpec(
            "properties",
            "Histograms of sparsity, row length and its variation by model",
            _show,
            heading="Distributions",
            once=True,
        ),
    ),
    gaps=_gaps,
    summary=lambda view: pd.concat([view.data.bins, view.data.means], ignore_index=True),
)
