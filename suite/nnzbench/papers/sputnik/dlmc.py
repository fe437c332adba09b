"""Sputnik's figure 9 and table I redrawn: runtime and throughput over the collection of pruned matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nnzbench.papers.sputnik import leads
from nnzbench.papers.sputnik import table1 as sputnik_table1
from nnzbench.papers.sputnik.speedups import KINDS, Kind, paper_rows, statistics, table
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.names import label_of, parse
from nnzbench.report.data import context
from nnzbench.facts.results import ResultSet, each
from nnzbench.report.data.series import Series, pick
from nnzbench.report.draw import layout, style
from nnzbench.report.draw.figures import series_line
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View

LEVELS = ((0.6, "0 to 60 %"), (0.85, "60 to 85 %"), (0.93, "85 to 93 %"), (1.0, "93 % and more"))
"""Groups of sparsity as counted: below which, and in words."""
MANY = 400
"""Dots of one series above which they are stored in vector figures as an image."""
_TUNED = "Sputnik's kernel, best tile"
CALLED = {"cublas": "cuBLAS, in the type of the data", "sputnik": _TUNED, "sputnik_sddmm": _TUNED}
"""What the figure's legend calls the kernels that panels of different types and operations share."""
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


@dataclass(frozen=True)
class Collection:
    """What figure and tables show: every point, and per policy the speed-ups by class and of all problems."""

    points: pd.DataFrame
    classes: dict[str, pd.DataFrame]
    all: dict[str, list[pd.DataFrame]]
    """By policy, in the order of `KINDS`."""


def collect(results: ResultSet) -> Collection:
    """Computes what the page shows."""
    found, policies = points(results), context.policies(results.frame)
    return Collection(
        found,
        {policy: sputnik_table1.classes(results, found, policy) for policy in policies},
        {policy: [statistics(kind, results.frame, policy).assign(row="all") for kind in KINDS] for policy in policies},
    )


def _show(view: View[Collection]) -> Shown:
    found, stats = view.data.points, view.data.all[view.policy]
    here = found[found["policy"] == view.policy]
    marked = here.iloc[:0]  # of tables whose columns, or numbers, have their mark each
    rows = view.of(here["problem"])
    tables = [TableOf(sputnik_table1.all_problems(here, stats, rows, view.gpu), marked)]
    for kind, one in zip(KINDS, stats, strict=True):
        if one["count"].any():
            text = f"{kind.title}:\n\n{table(one, paper_rows(kind, 'sputnik_table1_dataset'))}"
            tables.append(TableOf(text, kind.rows(rows)))
    by_class = sputnik_table1.by_class(view.data.classes[view.policy])
    text = f"By model, batch and zeros as counted, the best of this project's kernels:\n\n{by_class}"
    tables.append(TableOf(text, marked))
    finding = "Table I: over all problems recorded, each row's kernel against each rival."
    dots = here.drop_duplicates("problem")
    names = {str(row.problem): f"{label_of(row.problem)} ({row.flops:.2g} FLOP)" for row in each(dots)}
    drawn = [here[here["kind"] == kind.key] for kind in KINDS]
    return Shown(_figure(here, view), finding, tables, drawn=drawn, names=names)


def _intro(view: View[Collection]) -> str:
    return (
        "Pruned weight matrices of ResNet-50 and Transformer models from the Deep Learning Matrix Collection at "
        "inference and training batch sizes, as SpMM in fp32 and with fp16 data, and as SDDMM (figure 9 and table "
        "I of *Sparse GPU Kernels for Deep Learning*, SC 2020). Throughput counts useful work alone, two "
        f"operations per nonzero, for dense products too. {_coverage(view.results)}"
    )


def _summary(view: View[Collection]) -> pd.DataFrame:
    parts = [view.data.points]
    for policy in view.policies:
        parts += [view.data.classes[policy], *view.data.all[policy]]
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


def _figure(found: pd.DataFrame, view: View[Collection]) -> Figure:
    dots = "Every dot is a problem, timed with the fastest tile or algorithm; "
    above = "Sputnik's ratio above is of the tile it chooses."
    figure = layout.headed(7.2, view.title, f"{dots}{above}\n{view.policy_sentence}")
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
    """Draws a series and returns its name and mark for the legend."""
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
    return _called(series), line


def _called(series: Series) -> str:
    """Its name in the legend, the same in every panel."""
    return CALLED.get(series.kernel or series.key, series.label)


def _gaps(view: View[Collection]) -> Iterator[str]:
    for kind in KINDS:
        problems = set(kind.rows(view.frame)["problem"])
        if not problems:
            yield f"{kind.title}: not recorded."
            continue
        found = view.data.points[view.data.points["kind"] == kind.key]
        for policy in view.policies:
            here = found[found["policy"] == policy]
            for series in (kind.cusparse, kind.own[0]):
                lost = len(problems - set(here.loc[here["series"] == series.key, "problem"]))
                if lost:
                    yield f"{kind.title} ({policy}): no time of {series.label} on {lost} of {len(problems)} problems."
    yield "SDDMM has no dense rival: cuBLAS computes all of A Bᵀ, which no kernel of this suite is timed for."


def _named() -> Iterator[Series]:
    """The series as tables and the legend call them."""
    for kind in KINDS:
        yield from kind.named
        yield from (replace(series, label=_called(series)) for series in drawn_series(kind))


PAGE = PageSpec(
    lead=leads.DLMC,
    title="Sputnik figure 9 and table I",
    intro=_intro,
    data=collect,
    sections=(SectionSpec("collection", "The collection of pruned matrices", _show),),
    gaps=_gaps,
    summary=_summary,
    series=lambda view: list(_named()),
)
