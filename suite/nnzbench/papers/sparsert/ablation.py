"""SparseRT's figure 8 redrawn: what unrolling, load balancing and tuning are each worth, one left out at a time."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from nnzbench.papers.sparsert import leads
from nnzbench.report import generic
from nnzbench.report.data import context
from nnzbench.facts.results import ResultSet, each, geometric_mean, percent
from nnzbench.report.data.series import Series, pick_under
from nnzbench.report.draw import style
from nnzbench.report.draw.figures import SpeedupTable
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text import tables
from nnzbench.report.text.tables import GAP, markdown, number

COMPLETE = Series("sparsert_paper", "the paper's system, tuned", ("sparsert_paper",), "f32")
MEAN = "geometric mean"
LEFT_OUT = (
    (Series("sparsert_rolled", "unrolling", ("sparsert_rolled",), "f32"), "the paper: over 10× at best"),
    (Series("sparsert_unbalanced", "load balancing", ("sparsert_unbalanced",), "f32"), "the paper: comparable"),
    (Series("sparsert_fixed", "autotuning", ("sparsert_fixed",), "f32"), "the paper: around 2×"),
)


def gains(frame: pd.DataFrame, policy: str) -> pd.DataFrame:
    """Per problem and part left out: its time over that of the complete system, where both have one.

    What is not unrolled has the tiling of the complete system, as in the paper; other parts are at their own best.
    """
    here = frame[frame["policy"] == policy]
    complete = pick_under(here, policy, COMPLETE)
    parts = {}
    for series, _ in LEFT_OUT:
        rows = here
        if series.kernel == "sparsert_rolled":
            rows = here[here["variant"] == here["problem"].map(complete["variant"])]
        parts[series.label] = pick_under(rows, policy, series)["median_us"] / complete["median_us"]
    return pd.DataFrame(parts).dropna(how="all")


def gain_rows(found: pd.DataFrame, policy: str, labels: dict[str, str]) -> pd.DataFrame:
    """The bars of one policy's figure, and their geometric means, as lines of `summary.csv`."""
    rows = []
    for series, _ in LEFT_OUT:
        words = {"figure": "8", "policy": policy, "series": f"{series.key} over {COMPLETE.key}"}
        bars = found[series.label].dropna()
        rows += [
            {**words, "problem": name, "label": labels[str(name)], "speedup": value} for name, value in bars.items()
        ]
        if len(bars):
            rows.append({**words, "problem": MEAN, "speedup": geometric_mean(bars), "count": len(bars)})
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Parts:
    """The experiment's table, its problems in words, and the gains under every policy."""

    table: SpeedupTable
    names: dict[str, str]
    gains: dict[str, pd.DataFrame]


def collect(results: ResultSet) -> Parts:
    """Computes the gains of every recorded problem."""
    table = generic.tabulate(results)
    by_number = table.problems.sort_values("label", key=lambda labels: labels.astype(int))
    names = {str(row.problem): f"{row.label}: {row.size}" for row in each(by_number)}
    found = {policy: gains(results.frame, policy) for policy in context.policies(results.frame)}
    return Parts(table, names, {policy: one.reindex(list(names)).dropna(how="all") for policy, one in found.items()})


def _show(view: View[Parts]) -> Shown:
    found, names = view.data.gains[view.policy], view.data.names
    text = (
        "Time without a part over time of the complete system (the paper's tilings, searched exhaustively): 1× means "
        "that the part is worth nothing there. What is not unrolled has the same tiling, the rest its own best."
    )
    tables: list[str | TableOf] = [_table(found, names), *generic.per_problem(view.data.table, view)]
    return Shown(_figure(found, names, view), text, tables)


def _incomplete(view: View[Parts]) -> list[str]:
    """Problems that lack the time of a part under some policy, in words."""
    whole = [set(found.dropna().index) for found in view.data.gains.values()]
    return [name for problem, name in view.data.names.items() if not all(problem in one for one in whole)]


def _intro(view: View[Parts]) -> str:
    count = len(view.data.names) - len(_incomplete(view))
    return (
        f"Figure 8 of *SparseRT* (PACT 2020) at {percent(0.9)} zeros, on {count} problem{'s' * (count != 1)} of its "
        "Table 1: unrolled code against the same tiling with the matrix as data, rows balanced between thread blocks "
        "or not, the best tiling or one fixed choice."
    )


def _summary(view: View[Parts]) -> pd.DataFrame:
    """The bars of every policy, and the speed-ups over cuBLAS."""
    table = view.data.table
    labels = {str(row.problem): str(row.label) for row in each(table.problems)}
    drawn = [tables.drawn_rows(table).assign(figure="table")]
    drawn += [gain_rows(found, policy, labels) for policy, found in view.data.gains.items()]
    return pd.concat([rows for rows in drawn if len(rows)], ignore_index=True)[["figure", *tables.POINT_COLUMNS]]


def _figure(found: pd.DataFrame, names: dict[str, str], view: View[Parts]) -> Figure:
    figure = Figure(figsize=(10.4, 4.3))
    axis = figure.add_axes((0.062, 0.3, 0.928, 0.52))
    axis.set_yscale("log", base=2)
    axis.grid(axis="y")
    axis.axhline(1, color=style.INK, lw=1.2)
    width = 0.26
    for place, (series, claim) in enumerate(LEFT_OUT):
        values = [*found[series.label], geometric_mean(found[series.label].dropna())]
        xs = [x + (place - 1) * width + (0.5 if x == len(found) else 0.0) for x in range(len(values))]
        heights = [value - 1 for value in values]
        colour = style.look(series.kernel).colour
        axis.bar(xs, heights, width * 0.92, bottom=1, color=colour, label=f"{series.label} ({claim})")
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylabel("gain (log)")
    labels = [*(names[name] for name in found.index), MEAN]
    axis.set_xticks([*range(len(found)), len(found) + 0.5], labels)
    for tick in axis.get_xticklabels():
        tick.set(rotation=38, ha="right", rotation_mode="anchor", fontsize=7.8)
    figure.text(0.012, 0.97, view.title, fontsize=12, fontweight="bold", va="top")
    caption = f"Time without the part over time of the complete system; fp32, TF32 off.\n{view.policy_sentence}"
    figure.text(0.012, 0.91, caption, fontsize=8.5, color=style.MUTED, va="top")
    figure.legend(loc="lower center", ncols=3, fontsize=8.5)
    return figure


def _table(found: pd.DataFrame, names: dict[str, str]) -> str:
    parts = [series.label for series, _ in LEFT_OUT]
    rows = [[names[str(name)], *(number(float(line[part])) for part in parts)] for name, line in found.iterrows()]
    means = [found[part].dropna() for part in parts]
    rows.append(["**geometric mean**", *(f"**{number(geometric_mean(m))}**" if len(m) else GAP for m in means)])
    return markdown(["problem", *parts], rows)


PAGE = PageSpec(
    lead=leads.ABLATION,
    title="SparseRT's ablation",
    intro=_intro,
    data=collect,
    sections=(SectionSpec("gains", "What each part of SparseRT is worth", _show),),
    gaps=lambda view: [
        f"Problem {name} lacks the time of a part; the means of that part are without it." for name in _incomplete(view)
    ],
    summary=_summary,
    problem_names=lambda view: view.data.names,
    series=lambda view: [COMPLETE, *(part for part, _ in LEFT_OUT)],
)
