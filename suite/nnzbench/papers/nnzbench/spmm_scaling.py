"""Whether the cost of a sparse product scales: time per nonzero and column as the matrix grows past the caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from nnzbench.facts.results import ResultSet, each, percent, size_of
from nnzbench.papers.nnzbench import SPMM_SCALING, leads
from nnzbench.report.data import context
from nnzbench.report.data.series import Series, kernel_label, pick_under
from nnzbench.report.draw import layout, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text.fastest import Lost
from nnzbench.report.text.marks import MARK
from nnzbench.report.text.tables import GAP, markdown, number

COLUMNS = (
    "row", "policy", "n", "kernel", "nnz", "problem", "m", "k", "variant", "median_us", "q1_us", "q3_us",
    "limit_share", "picoseconds", "dearest_over_cheapest",
)  # fmt: skip
LEFT, BETWEEN, RIGHT = 0.072, 0.03, 0.985
"""Left edge of the first panel, space between two, right edge of the last: shares of the figure's width."""


def costs(results: ResultSet) -> pd.DataFrame:
    """The fastest checked fp32 row of each policy, problem and kernel; `picoseconds` per nonzero and column."""
    parts = []
    for policy in context.policies(results.frame):
        for kernel in kernels(results.frame):
            rows = pick_under(results.frame, policy, _series(kernel)).reset_index()
            parts.append(rows.sort_values(["n", "nnz"], kind="stable"))
    found = pd.concat(parts, ignore_index=True) if parts else results.frame.iloc[:0]
    return found.assign(row="time", picoseconds=1e6 * found["median_us"] / (found["nnz"] * found["n"]))


def _series(kernel: str) -> Series:
    return Series(kernel, kernel_label(kernel), (kernel,))


def kernels(frame: pd.DataFrame) -> list[str]:
    """Recorded kernels: the experiment's in its order, then others by name."""
    return context.known_first(set(frame["kernel"]), SPMM_SCALING.kernels)


def spreads(found: pd.DataFrame) -> pd.DataFrame:
    """Per policy, n and kernel with two sizes at least: cost of the dearest size over that of the cheapest."""
    out = []
    for (policy, n, kernel), group in found.groupby(["policy", "n", "kernel"], sort=False):
        if len(group) > 1:
            ratio = group["picoseconds"].max() / group["picoseconds"].min()
            out.append({"policy": policy, "n": n, "kernel": kernel, "dearest_over_cheapest": ratio})
    return pd.DataFrame(out, columns=["policy", "n", "kernel", "dearest_over_cheapest"]).assign(row="spread")


@dataclass(frozen=True)
class Costs:
    """Every time with its cost, what the costs of a kernel span, and the problems by size."""

    found: pd.DataFrame
    ratios: pd.DataFrame
    names: dict[str, str]


def collect(results: ResultSet) -> Costs:
    """Computes what the page shows."""
    found = costs(results)
    sizes = results.frame.drop_duplicates("problem").sort_values(["n", "nnz"], kind="stable")
    return Costs(found, spreads(found), {row.problem: size_of(row) for row in each(sizes)})


def _show(view: View[Costs]) -> Shown | None:
    here, ratios = (rows[rows["policy"] == view.policy] for rows in (view.data.found, view.data.ratios))
    if here.empty:
        return None
    none = here.iloc[:0]  # each line is of one problem, so it has its mark itself
    return Shown(_figure(here, view), _finding(here, ratios), (TableOf(_table(here), none),), lost=_lost(view, here))


def _lost(view: View[Costs], here: pd.DataFrame) -> Iterator[Lost]:
    names = view.data.names
    for kernel in dict.fromkeys([*SPMM_SCALING.kernels, *kernels(view.frame)]):
        have = set(here[here["kernel"] == kernel]["problem"])
        without = tuple(name for problem, name in names.items() if problem not in have)
        yield Lost(kernel_label(kernel), view.policy, without, len(names))


def _intro(view: View[Costs]) -> str:
    levels = ", ".join(percent(level) for level in sorted(set(view.frame["sparsity"].round(4))))
    return (
        f"Does the cost of a sparse product scale? Square matrices with uniformly random patterns, {levels} zeros, "
        "fp32, times 128 and 1024 columns; each size has four times the nonzeros of the one before. The cost is "
        "the time of each kernel's fastest variant over nonzeros times columns. This sweep is nnzbench's own: "
        "there are no published numbers. Small products pay for the launch, whose time is part of every row."
    )


def _summary(view: View[Costs]) -> pd.DataFrame:
    parts = [part.reindex(columns=list(COLUMNS)) for part in (view.data.found, view.data.ratios) if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS))


def _count(nonzeros: float) -> str:
    """`1.1e8`."""
    digits, _, exponent = f"{nonzeros:.1e}".partition("e")
    return f"{digits}e{int(exponent)}"


def _finding(here: pd.DataFrame, ratios: pd.DataFrame) -> str:
    """One line per n and kernel of which two sizes are known."""
    lines = []
    for row in each(ratios.sort_values("n", kind="stable")):
        mine = here[(here["n"] == row.n) & (here["kernel"] == row.kernel)]
        dear, cheap = mine.loc[mine["picoseconds"].idxmax()], mine.loc[mine["picoseconds"].idxmin()]
        lines.append(
            f"- {row.n} columns, {kernel_label(row.kernel)}: within {row.dearest_over_cheapest:.2f}× from "
            f"{_count(mine['nnz'].min())} to {_count(mine['nnz'].max())} nonzeros "
            f"({cheap['picoseconds']:.3f} ps at {_count(cheap['nnz'])}, {dear['picoseconds']:.3f} ps at "
            f"{_count(dear['nnz'])})"
        )
    lead = "Cost per nonzero and column of the dearest size over that of the cheapest:"
    return "\n".join([lead, "", *lines]) if lines else ""


def _table(here: pd.DataFrame) -> str:
    rows = [
        [
            size_of(row),
            kernel_label(row.kernel) + MARK * (row.cut_short != ""),
            f"`{row.variant}`",
            f"{row.nnz:,}",
            number(row.median_us, 1),
            number(row.picoseconds, 3),
            GAP if pd.isna(row.limit_share) else f"{100 * row.limit_share:.0f} %",
        ]
        for row in each(here.sort_values(["n", "nnz"], kind="stable"))
    ]
    header = ["m×k×n", "kernel", "variant", "nonzeros", "µs", "ps per nonzero and column", "of the GPU's limit"]
    return markdown(header, rows, left=3)


def _figure(here: pd.DataFrame, view: View[Costs]) -> Figure:
    """One panel per number of columns, all on one scale."""
    sizes = view.frame[view.frame["n"].isin(set(here["n"]))]["problem"].nunique()
    holes = layout.HOLES * (len(here) < sizes * here["kernel"].nunique())
    caption = f"Each kernel's fastest variant; lower is better.\n{view.policy_sentence}{holes}"
    figure = layout.headed(4.6, view.title, caption)
    counts = sorted(set(here["n"]))
    width = (RIGHT - LEFT - BETWEEN * (len(counts) - 1)) / len(counts)
    low, high = here["picoseconds"].min() / 1.6, here["picoseconds"].max() * 1.6  # at least one tick
    ends = here["nnz"].min() / 1.6, here["nnz"].max() * 1.6
    handles: dict[str, Line2D] = {}
    for place, n in enumerate(counts):
        axis = figure.add_axes((LEFT + place * (width + BETWEEN), 0.225, width, 0.53))
        axis.set_title(f"{n} columns")
        axis.set(xscale="log", yscale="log", xlim=ends, ylim=(low, high), xlabel="nonzeros (log)")
        axis.grid(axis="y", which="both")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
        if place:
            axis.tick_params(labelleft=False)
        else:
            axis.set_ylabel("ps per nonzero and column (log)")
        for kernel, rows in here[here["n"] == n].groupby("kernel", sort=False):
            colour, marker = style.look(str(kernel))
            line = Line2D(rows["nnz"], rows["picoseconds"], color=colour, marker=marker, mec="white", lw=1.4)
            handles.setdefault(kernel_label(str(kernel)), axis.add_line(line))
    layout.legend_below(figure, list(handles.values()), list(handles))
    return figure


PAGE = PageSpec(
    lead=leads.SCALING,
    title="Cost of a sparse product by its size",
    intro=_intro,
    data=collect,
    sections=(SectionSpec("scaling", "Cost of a sparse product by its nonzeros", _show),),
    summary=_summary,
    problem_names=lambda view: view.data.names,
    series=lambda view: [_series(kernel) for kernel in kernels(view.frame)],
)
