"""Sputnik's figure 7: throughput as rows grow uneven, with and without the row swizzle."""

from __future__ import annotations

import dataclasses

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.results import each
from nnzbench.facts.selector import Selector, kernel
from nnzbench.facts.table import Comparison
from nnzbench.papers.sputnik import AS_DATA, PAPER
from nnzbench.papers.sputnik.sputnik_figure2 import matrices
from nnzbench.problems.experiment import Experiment, dtypes_of
from nnzbench.report.data import published
from nnzbench.report.pages.page import Answer, Lines, Made, Page, Pivot
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "sputnik_figure7",
    "Throughput against the imbalance of rows",
    PAPER,
    "Figure 7",
    dtypes_of("sputnik_ablation", *AS_DATA),
)
STANDARD = Selector("sputnik, standard row order", ("sputnik_ablation",), variants="no_load_balancing")
SWIZZLE = Selector("sputnik, row swizzle", ("sputnik_ablation",), variants="complete")
CURVES = (STANDARD, SWIZZLE, kernel("sputnik"), kernel("row_stream"), kernel("ring"))


def _at(cov: str) -> Group:
    return Group(words=f"with a CoV of {cov}", like=f"cov{cov}", baseline_like="cov0")


def _even(one: Selector) -> Selector:
    return dataclasses.replace(one, label=f"{one.label}, on even rows")


def _kept(view: View) -> pd.DataFrame | None:
    """Each kernel over itself on rows of equal length, and the paper's numbers."""
    covs = [str(label).removeprefix("cov") for label in view.data.problems["label"]]
    groups = tuple(map(_at, covs))
    rows: dict[str, dict[str, object]] = {group.label: {"CoV": cov} for group, cov in zip(groups, covs, strict=True)}
    for one in view.recorded(CURVES):
        for fact in each(view.compare(Comparison((one,), (_even(one),), groups))):
            rows[fact.group][f"{one.label}, {fact.policy}"] = fact.ratio
    for row in each(
        published.read("sputnik_figure7_load_imbalance", ("gpu", "row_order", "percent_of_balanced_throughput"))
    ):
        curve = STANDARD if row.row_order == "standard" else SWIZZLE
        line = rows.setdefault(row.gpu, {"CoV": f"most uneven (the paper, {row.gpu})"})
        line[f"{curve.label}, hot"] = row.percent_of_balanced_throughput / 100
    return pd.DataFrame(rows.values())


def page() -> Page:
    """Its page."""
    mean = matrices()["row_cov"].mean()
    even = _even(SWIZZLE)
    return Page(
        question="How much of its speed does a kernel keep where rows are uneven?",
        intro="One product (8192 × 2048 × 128, M × K × N, 75 % zeros, fp32) with rows from equal to very uneven "
        "lengths: figure 7 of *Sparse GPU Kernels for Deep Learning* (SC 2020). The coefficient of variation (CoV) is "
        "the standard deviation of row lengths over their mean, as asked of the generator; 1.73 is the largest "
        f"possible here, {mean:.2f} the mean of pruned networks' matrices. The swizzle starts long rows first.",
        attributes=r"cov(?P<CoV>[\d.]+)",
        answers=(
            Answer(_at("1.7"), SWIZZLE, even, (STANDARD,), claim="sputnik-swizzle"),
            Answer(_at("0.75"), SWIZZLE, even, (STANDARD,)),
        ),
        figures=(Lines("imbalance", "Throughput by imbalance of rows", CURVES, "rate", x="CoV"),),
        tables=(
            Made("Speed kept, times that with rows of equal length", _kept,
                 "each kernel is compared with itself on another problem", collapsed=False),
            Pivot("Every problem, µs", CURVES, rows=("CoV",)),
        ),
    )  # fmt: skip
