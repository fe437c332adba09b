"""Sputnik's figure 9 and table I redrawn: runtime and throughput over the collection of pruned matrices."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nnzbench import tables as problem_tables
from nnzbench.problem_names import parse
from nnzbench.report import context, layout, sputnik_table1, style
from nnzbench.report.figures import series_line
from nnzbench.report.frames import ResultSet
from nnzbench.report.pages import Page, policy_section
from nnzbench.report.series import Series, pick
from nnzbench.report.sputnik_speedups import KINDS, Kind, paper_rows, statistics, table

LEVELS = ((0.6, "0 to 60 %"), (0.85, "60 to 85 %"), (0.93, "85 to 93 %"), (1.0, "93 % and more"))
"""Groups of sparsity as counted: below which, and in words."""
MANY = 400
"""Dots of one series above which they are stored in vector figures as an image."""
COLUMNS = (
    "row", "kind", "policy", "series", "model", "batch", "zeros", "problem", "kernel", "variant", "sparsity", "source",
    "flops", "median_us", "q1_us", "q3_us", "gflops", "rival", "geometric_mean", "peak", "won", "count",
    "peak_tflops",
)  # fmt: skip


def drawn_series(kind: Kind) -> tuple[Series, ...]:
    """Every series of a panel, in drawing order: rivals first."""
    return (*kind.dense[:1], kind.cusparse, *kind.own[1:2], kind.own[0])


def points(results: ResultSet) -> pd.DataFrame:
    """One row per kind, policy, series and problem with a time, with its model, batch and group of sparsity."""
    parts = []
    for kind in KINDS:
        for series in drawn_series(kind):
            rows = pick(kind.rows(results.frame), series)
            parts.append(rows.assign(row="point", kind=kind.key, series=series.key))
    found = pd.concat(parts, ignore_index=True)
    return found.assign(
        model=[source.partition(":")[2].partition("/")[0] for source in found["source"]],
        batch=[_batch(problem) for problem in found["problem"]],
        zeros=[_zeros(sparsity) for sparsity in found["sparsity"]],
    )


def _batch(problem: str) -> int:
    parts = parse(problem)
    return parts.batch if parts else 0


def _zeros(sparsity: float) -> str:
    return next(words for high, words in LEVELS if sparsity < high or high == 1.0)


def build(results: ResultSet) -> tuple[Page, pd.DataFrame]:
    """Draws one figure per policy and describes the page."""
    found = points(results)
    gpu = context.gpu_name(results.gpu, results.environment)
    sections, parts = [], [found]
    for policy in context.policies(results.frame):
        here = found[found["policy"] == policy]
        title = f"The collection of pruned matrices on {gpu}, {policy} policy"
        groups = sputnik_table1.classes(results, found, policy)
        stats = [statistics(kind, results.frame, policy).assign(row="all") for kind in KINDS]
        parts += [groups, *stats]
        sections.append(
            policy_section(
                results.folder,
                "collection",
                policy,
                title,
                partial(_figure, here, title, policy),
                text="Table I: over all problems recorded, each row's kernel against each rival.",
                tables=(
                    sputnik_table1.all_problems(here, stats, gpu),
                    *(
                        f"{kind.title}:\n\n{table(one, paper_rows(kind, 'sputnik_table1_dataset'))}"
                        for kind, one in zip(KINDS, stats, strict=True)
                        if one["count"].any()
                    ),
                    "By model, batch and zeros as counted, the best of this project's kernels:\n\n"
                    + sputnik_table1.by_class(groups),
                ),
            )
        )
    return Page(
        title=f"Sputnik figure 9 and table I on {gpu}",
        intro=(
            "Pruned weight matrices of ResNet-50 and Transformer models from the Deep Learning Matrix Collection at "
            "inference and training batch sizes, as SpMM in fp32 and with fp16 data, and as SDDMM (figure 9 and table "
            "I of *Sparse GPU Kernels for Deep Learning*, SC 2020). Throughput counts useful work alone, two "
            f"operations per nonzero, for dense products too. {_coverage(results)}"
        ),
        sections=tuple(sections),
        gaps=tuple(_gaps(results, found)),
    ), _drawn(parts)


def _drawn(parts: list[pd.DataFrame]) -> pd.DataFrame:
    filled = [part.reindex(columns=list(COLUMNS)) for part in parts if len(part)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=list(COLUMNS))


def _coverage(results: ResultSet) -> str:
    """How much of the paper's data set the records are, and on which data."""
    whole = {entry.path for entry in problem_tables.dlmc_selection()}
    sample = {entry.path for entry in problem_tables.dlmc_sample()}
    sources = [source.partition(":") for source in results.frame["source"].unique()]
    have = {path for _, _, path in sources if path in whole}
    standins = {path for kind, _, path in sources if kind == "standin" and path in whole}
    text = f"Matrices recorded: {len(have):,} of the paper's {len(whole):,}"
    if have == sample:
        text += ", a sample with its share of every model, method and sparsity level"
    elif have < sample:
        text += f", a part of the sample of {len(sample)} that a run takes by default"
    return f"{text}; {len(standins):,} of them are calibrated stand-ins." if standins else f"{text}."


def _figure(found: pd.DataFrame, title: str, policy: str) -> Figure:
    caption = f"Every dot is a problem.\n{context.sentence(context.policy_text(policy))}"
    figure = layout.headed(7.2, title, caption)
    handles: dict[str, Line2D] = {}
    for column, kind in enumerate(KINDS):
        mine = found[found["kind"] == kind.key]
        for place, (value, label) in enumerate((("median_us", "runtime (µs)"), ("gflops", "throughput (GFLOP/s)"))):
            axis = figure.add_axes((0.065 + 0.318 * column, 0.545 - 0.395 * place, 0.275, 0.33))
            axis.set(xscale="log", yscale="log")
            axis.grid()
            for series in drawn_series(kind):
                rows = mine[mine["series"] == series.key]
                if len(rows):
                    handles.setdefault(*_dots(axis, rows, series, value))
            if mine.empty:
                axis.text(0.5, 0.5, "not recorded", transform=axis.transAxes, ha="center", color=style.MUTED)
            axis.minorticks_off()
            axis.autoscale_view()
            if place == 0:
                axis.set_title(kind.title)
            else:
                axis.set_xlabel("useful operations (FLOP)")
            if column == 0:
                axis.set_ylabel(label)
    layout.legend_below(figure, list(handles.values()), list(handles))
    return figure


def _dots(axis: Axes, rows: pd.DataFrame, series: Series, value: str) -> tuple[str, Line2D]:
    """Draws a series and returns its name and mark for the legend, the same in every panel."""
    line = series_line(series)
    if series.key == "best":
        line = Line2D([], [], ls="", marker="x", ms=4.5, mec=style.GREEN, mew=1.2)
    elif series.kernel == "cublas":
        line = Line2D([], [], ls="", marker="_", ms=5, mec=style.INK, mew=1.2)
    else:
        line.set_markersize(4.5)
    line.set(alpha=0.75, rasterized=len(rows) > MANY)
    line.set_data(rows["flops"], rows[value])
    axis.add_line(line)
    names = {"best": series.label, "cublas": "cuBLAS, in the type of the data", "cusparse": "cuSPARSE, best"}
    return names.get(series.kernel or series.key, "Sputnik's kernel, best tile"), line


def _gaps(results: ResultSet, found: pd.DataFrame) -> list[str]:
    out = []
    for kind in KINDS:
        problems = set(kind.rows(results.frame)["problem"])
        if not problems:
            out.append(f"{kind.title}: not recorded.")
            continue
        for policy in context.policies(results.frame):
            here = found[(found["kind"] == kind.key) & (found["policy"] == policy)]
            for series in (kind.cusparse, kind.own[0]):
                lost = len(problems - set(here.loc[here["series"] == series.key, "problem"]))
                if lost:
                    out.append(
                        f"{kind.title} ({policy}): no time of {series.label} on {lost} of {len(problems)} problems."
                    )
    out.append("SDDMM has no dense rival: cuBLAS computes all of A Bᵀ, which no kernel of this suite is timed for.")
    return out
