"""Sputnik's parts, one left out at a time, and the collection's rows, whose variation one of them is for."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from nnzbench.data.problems import tables
from nnzbench.report import published
from nnzbench.report.page import Answer, Bars, Drawn, Made, Page, Printed, Rows, View
from nnzbench.report.text import number
from nnzbench.results.groups import OPS, Group
from nnzbench.results.result_set import each
from nnzbench.results.selector import Selector, kernel
from nnzbench.results.table import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARTS = {
    "-load_balancing": ("no_load_balancing", "load balancing"),
    "-vector_inst": ("no_vector", "vector instructions"),
    "-residue_unroll": ("no_residue_unroll", "residue unrolling"),
    "-index_prescale": ("no_prescale", "index pre-scaling"),
}
"""The paper's name of each part left out: how its variant starts, and in words."""
KERNELS = ("sputnik_ablation", "sputnik_sddmm_ablation")
WHOLE = Selector("the complete kernel", KERNELS, variants="complete")
FOURS = Selector("the kernel with residues in fours", KERNELS, variants="paper_residue")
BY_LENGTH = Selector("the kernel with rows by length", KERNELS, variants="paper_order")
AS_PUBLISHED = {("spmm", "-residue_unroll"): FOURS, ("sddmm", "-load_balancing"): BY_LENGTH}
"""What the paper leaves a part out of, where the complete kernel here does more than the paper's in that very part."""
NAMES = {"transformer": "the Transformer", "resnet50": "ResNet-50"}
SETS = (("transformer", 1), ("transformer", 8), ("resnet50", 1), ("resnet50", 256))


def _without(op: str, part: str) -> Selector:
    variant, words = PARTS[part]
    return Selector(f"{OPS[op]} without {words}", (KERNELS[op == "sddmm"],), variants=f"{variant}(_|$)")


SUBJECTS = {
    (op, part): _without(op, part)
    for op, parts in (("spmm", tuple(PARTS)), ("sddmm", tuple(PARTS)[:2]))
    for part in parts
}


def _layers(model: str, batch: int | None = None) -> Group:
    """Every layer counts for as many of the paper's matrices as have its shape and level."""
    where = f"model == '{model}'" + ("" if batch is None else f" and batch == {batch}")
    words = f"layers of {NAMES[model]}" + ("" if batch is None else f" at batch {batch}")
    return Group(where=where, words=words, statistic="mean", counted=True)


def _paper() -> pd.DataFrame:
    columns = ("kernel", "ablation", "model", "batch", "percent_of_full")
    return published.read("sputnik_table2_ablation", columns)


def _printed(model: str, view: View) -> pd.DataFrame:
    table = _paper().query(f"model == '{model}'")
    subjects = [SUBJECTS[key].label for key in zip(table["kernel"], table["ablation"], strict=True)]
    return table.assign(subject=subjects, value=table["percent_of_full"] / 100)


def _beside(view: View) -> Rows:
    """Table II, ours and the paper's side by side."""
    groups = {one: _layers(*one) for one in SETS}
    facts: dict[tuple[str, ...], Any] = {}
    sides = [(tuple(SUBJECTS.values()), WHOLE), *(((SUBJECTS[key],), one) for key, one in AS_PUBLISHED.items())]
    for subjects, whole in sides:
        asked = Comparison(subjects, (whole,), tuple(groups.values()))
        facts |= {(row.subject, row.baseline, row.group, row.policy): row for row in each(view.compare(asked))}
    for printed in each(_paper()):
        key = printed.kernel, printed.ablation
        subject, group = SUBJECTS[key].label, groups[printed.model, printed.batch]
        for whole in filter(None, (WHOLE, AS_PUBLISHED.get(key))):
            found = facts.get((subject, whole.label, group.label, view.policy))
            if found:
                name = subject if whole is WHOLE else f"{subject}, over {whole.label}"
                shares = {"here": 100 * found.ratio, "the paper, V100": printed.percent_of_full}
                told = {of: number(share, 1) for of, share in shares.items()}
                yield {"": name, "layers": f"{group.words} ({found.n})", **told}


def _of_how_many(view: View) -> str:
    """On how many problems a part is left out, where only the complete kernel is recorded on others."""
    timed = view.frame[view.frame["kernel"].isin(KERNELS) & view.frame["median_us"].notna()]
    told = []
    for op, rows in timed.groupby("op", sort=False):
        parts = rows[rows["variant"].str.startswith("no_")]
        if (some := parts["problem"].nunique()) < (every := rows["problem"].nunique()):
            told.append(f"{some} of {every} problems of {OPS[str(op)]}")
    return f"Parts are left out on {' and '.join(told)}: every mean is of such problems alone." if told else ""


def sputnik_ablation() -> Page:
    """Sputnik's table II: speed without one optimisation against the complete kernel's."""
    spmm = [one for (op, _), one in SUBJECTS.items() if op == "spmm"]
    return Page(
        answers=tuple(
            Answer(_layers(model, batch), spmm[0], WHOLE, tuple(spmm[1:]), claim=claim)
            for model, batch, claim in (
                ("resnet50", 256, "sputnik-no-load-balancing-rn50-256"),
                ("transformer", 8, "sputnik-no-load-balancing-tf-8"),
            )
        ),
        figures=tuple(
            Bars(model, f"Sputnik without one optimisation at a time, {name}", tuple(SUBJECTS.values()), WHOLE,
                 "subject", "batch", _layers(model), printed=Printed("the paper, V100", partial(_printed, model)))
            for model, name in NAMES.items()
        ),
        tables=(
            Made("Percent of the complete kernel's speed", _beside, "the paper's numbers stand beside ours",
                 collapsed=False),
        ),
        findings=(_of_how_many,),
    )  # fmt: skip


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


def _against_paper(view: View) -> Rows:
    found, ratios = matrices(), _ratios()
    for name, one in PROPERTIES.items():
        values, ratio = found[name].dropna(), float(ratios[name])
        yield {
            "": one.label,
            "mean": f"{values.mean():.3g}",
            "median": f"{values.median():.3g}",
            "10th to 90th percentile": f"{values.quantile(0.1):.3g} to {values.quantile(0.9):.3g}",
            "the paper, against SuiteSparse": f"{ratio:g} {one.ratio}",
            "SuiteSparse's mean, implied": f"{implied(name, values.mean(), ratio):.3g}",
        }


def _groups(view: View) -> Rows:
    found = matrices()
    found["method"] = found["method"].str.replace("_", " ")
    found["model"] = found["model"].map({model: name for model, (name, _) in MODELS.items()})
    groups = [("all", found)]
    for model, some in found.groupby("model"):
        groups += [(str(model), some), *((f"{model}, {method}", few) for method, few in some.groupby("method"))]
    for words, some in groups:
        means = {one.label: f"{some[name].mean():.3g}" for name, one in PROPERTIES.items()}
        yield {"mean of": words, "matrices": str(len(some)), **means}


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


def sputnik_figure2() -> Page:
    """Sputnik's figure 2: properties of the collection of pruned matrices, from its index alone. Nothing is run."""
    why = "statistics of matrices, not of times"
    return Page(
        made=_answer,
        figures=(Drawn("properties", "Sparsity, row length and its variation, by model", _figure, why),),
        tables=(
            Made("Against SuiteSparse", _against_paper, why, collapsed=False),
            Made("By model and pruning method", _groups, why, collapsed=False),
        ),
    )


STANDARD = Selector("sputnik, standard row order", ("sputnik_ablation",), variants="no_load_balancing")
SWIZZLE = Selector("sputnik, row swizzle", ("sputnik_ablation",), variants="complete")
CURVES = (STANDARD, SWIZZLE, kernel("sputnik"), kernel("row_stream"), kernel("ring"))


def _at(cov: str) -> Group:
    return Group(words=f"with a CoV of {cov}", like=f"cov{cov}", baseline_like="cov0")


def _even(one: Selector) -> Selector:
    return dataclasses.replace(one, label=f"{one.label}, on even rows")


def _over_even(view: View) -> pd.DataFrame:
    """Facts of each kernel over itself on rows of equal length, with their `CoV` and `kernel`."""
    covs = [str(label).removeprefix("cov") for label in view.problems["label"]]
    groups = {_at(cov).label: cov for cov in covs}
    parts = [
        view.compare(Comparison((one,), (_even(one),), tuple(map(_at, covs)))).assign(kernel=one.label)
        for one in view.recorded(CURVES)
    ]
    found = pd.concat(parts) if parts else pd.DataFrame(columns=["group", "kernel", "policy", "ratio"])
    return found.assign(CoV=found["group"].map(groups))


def _paper_kept() -> pd.DataFrame:
    columns = ("gpu", "row_order", "percent_of_balanced_throughput")
    table = published.read("sputnik_figure7_load_imbalance", columns)
    sides = [STANDARD.label if one == "standard" else SWIZZLE.label for one in table["row_order"]]
    return table.assign(kernel=sides, ratio=table["percent_of_balanced_throughput"] / 100)


def _kept(view: View) -> pd.DataFrame | None:
    """Each kernel over itself on rows of equal length, and the paper's numbers."""
    paper = _paper_kept()
    paper = paper.assign(policy="hot", CoV=[f"most uneven (the paper, {gpu})" for gpu in paper["gpu"]])
    every = pd.concat([_over_even(view), paper])
    every["column"] = every["kernel"] + ", " + every["policy"]
    wide = every.pivot(index="CoV", columns="column", values="ratio")
    return wide.loc[every["CoV"].unique(), every["column"].unique()].reset_index()


def _imbalance(view: View, title: str) -> Figure | None:
    from matplotlib.lines import Line2D

    from nnzbench.report.draw import canvas, style

    found, paper = _over_even(view), _paper_kept()
    if found.empty:
        return None
    look, mean = canvas.looks(CURVES), matrices()["row_cov"].mean()

    def draw(axis: Axes, row: None, policy: str) -> None:
        for label in found["kernel"].unique():
            rows = canvas.rows_at(found, kernel=label, policy=policy)
            axis.add_line(look[label].line(rows["CoV"].astype(float), 100 * rows["ratio"], joined=True))
        last = [found["CoV"].astype(float).max()] * len(paper)
        axis.add_line(canvas.printed_line(last, 100 * paper["ratio"]))
        axis.axvline(mean, color=style.INK, lw=1.2, ls=":")
        axis.grid()
        axis.autoscale_view()
        axis.set_ylim(0, None)
        axis.set_xlabel("CoV of row lengths", fontsize=8.5)
        axis.set_title(canvas.policy_text(policy), pad=4)

    legend = {label: look[label].line(joined=True) for label in found["kernel"].unique()} | {
        "the paper, V100": canvas.printed_line(), "neural networks": Line2D([], [], color=style.INK, lw=1.2, ls=":")
    }  # fmt: skip
    caption = "Percent of the throughput on rows of equal length."
    return canvas.grid([None], view.policies, [2.8], title, caption, legend, draw, share="y")


def sputnik_figure7() -> Page:
    """Sputnik's figure 7: throughput as rows grow uneven, with and without the row swizzle."""
    even = _even(SWIZZLE)
    return Page(
        words={"mean": matrices()["row_cov"].mean()},
        attributes=r"cov(?P<CoV>[\d.]+)",
        answers=(
            Answer(_at("1.7"), SWIZZLE, even, (STANDARD,), claim="sputnik-swizzle"),
            Answer(_at("0.75"), SWIZZLE, even, (STANDARD,)),
        ),
        figures=(
            Drawn("imbalance", "Throughput kept by imbalance of rows (Sputnik's figure 7)", _imbalance,
                  "each kernel is compared with itself on another problem"),
        ),
        tables=(
            Made("Speed kept, times that with rows of equal length", _kept,
                 "each kernel is compared with itself on another problem", collapsed=False),
        ),
    )  # fmt: skip
