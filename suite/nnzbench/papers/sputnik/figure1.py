"""Sputnik's figure 1 redrawn: runtime of sparse and dense products against sparsity, and where they cross."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from nnzbench.kernels.registry import about
from nnzbench.papers.sputnik import leads
from nnzbench.report.data import published
from nnzbench.facts.results import ResultSet, each, percent
from nnzbench.report.data.series import BEST, Series, kernel_label, least, speedup_series, speedups
from nnzbench.report.draw import layout, style
from nnzbench.report.draw.figures import MOST, few, series_line
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, View
from nnzbench.facts import crossover
from nnzbench.report.text.baselines import RIVALS, Rival
from nnzbench.report.text.tables import GAP, markdown, number

BASELINE = Series("cublas-f32", "cuBLAS fp32", ("cublas",), "f32")
DENSE = tuple(rival for rival in RIVALS if about(rival.series[0].rpartition("-")[0]).work == "dense")
COLUMNS = ("row", "policy", "series", "rival", "kernel", "variant", "math", "sparsity", "median_us", "q1_us", "q3_us")


HALF_RIVALS = tuple(rival for rival in DENSE if all(key.endswith("-f16") for key in rival.series))


def _sparse(series: Series) -> bool:
    return (series.own or not series.dense) and series.math in ("f32", "f16")


def crossovers(points: pd.DataFrame, series: tuple[Series, ...]) -> pd.DataFrame:
    """Per policy, sparse series and dense rival with times at one level at least: `sparsity` from which it is faster.

    A sparse product in fp16 has the dense one in fp16 for its rival alone.

    The rival's time is that of the same problem; `sparsity` is infinite where the levels that both have, `lowest` to
    `highest`, don't reach it.
    """
    out = []
    for policy, group in points.groupby("policy", sort=True):
        for rival in DENSE:
            dense = least(group, rival.series, "sparsity")
            able = (one for one in series if _sparse(one) and (one.math == "f32" or rival in HALF_RIVALS))
            for one in able:
                mine = group[group["series"] == one.key].set_index("sparsity")["median_us"]
                ratios = (dense / mine).dropna()
                if len(ratios):
                    found = crossover.crossover(ratios.items())  # type: ignore[arg-type]
                    ends = {"lowest": float(ratios.index.min()), "highest": float(ratios.index.max())}
                    out.append({"policy": policy, "series": one.key, "rival": rival.label, "sparsity": found, **ends})
    columns = ["policy", "series", "rival", "sparsity", "lowest", "highest"]
    return pd.DataFrame(out, columns=columns).assign(row="crossover")


@dataclass(frozen=True)
class Crossings:
    """Every time of every series, and where sparse and dense cross, here and in the paper."""

    series: tuple[Series, ...]
    points: pd.DataFrame
    crossed: pd.DataFrame
    paper: pd.DataFrame


def collect(results: ResultSet) -> Crossings:
    """Matches the series of the records with the paper's crossover."""
    series = tuple(speedup_series(results.frame, BASELINE))
    points = speedups(results.frame, series, BASELINE).sort_values(["policy", "position", "sparsity"], kind="stable")
    paper = published.read("sputnik_figure1_crossover", ("kernel", "gpu", "rival", "sparsity", "note"))
    return Crossings(series, points, crossovers(points, series), paper)


def _summary(view: View[Crossings]) -> pd.DataFrame:
    found = view.data
    paper = found.paper.assign(row="published", policy="published", series=found.paper["kernel"])
    parts = (found.points.assign(row="time"), found.crossed, paper)
    return pd.concat([part.reindex(columns=list(COLUMNS)) for part in parts if len(part)])


def _intro(view: View[Crossings]) -> str:
    size = " × ".join(str(value) for value in view.frame[["m", "k", "n"]].iloc[0])
    return (
        f"One product of an LSTM's pruned weights ({size}, M × K × N) at rising sparsity, uniformly random "
        "positions: figure 1 of *Sparse GPU Kernels for Deep Learning* (SC 2020)."
    )


def _show(view: View[Crossings]) -> Shown:
    found, series = view.data, view.data.series
    points, crossed = (frame[frame["policy"] == view.policy] for frame in (found.points, found.crossed))
    return Shown(
        _figure(points, crossed, found, view),
        "Sparsity from which the sparse kernel is the faster one, interpolated between the levels measured.",
        (_crossover_table(crossed, series, found.paper), f"Microseconds:\n\n{_time_table(points, series)}"),
    )


def _figure(points: pd.DataFrame, found: pd.DataFrame, data: Crossings, view: View[Crossings]) -> Figure:
    series = [one for one in data.series if one != BEST]
    shown = few(series, points, MOST - bool(len(data.paper)), subject="sputnik")
    more = sum((points["series"] == one.key).any() for one in series) - len(shown)
    best = found[(found["series"] == BEST.key) & (found["rival"] == DENSE[0].label)]["sparsity"]
    low, high = 100 * points["sparsity"].min(), 100 * points["sparsity"].max()
    crossed = len(best) > 0 and float(best.iloc[0]) < math.inf
    start = max(low, 100 * float(best.iloc[0])) if crossed else math.nan
    caption = (
        f"{view.policy_sentence}{f' {more} more series are in the tables.' * bool(more)}\n"
        "The paper prints no times, but where its curves meet the dense one: diamonds."
        f"{f' Shaded: {BEST.label} faster than {BASELINE.label}, from {start:.1f} %.' * crossed}"
    )
    figure = layout.headed(5.6, view.title, caption)
    axis = figure.add_axes((0.075, 0.235, 0.915, 0.6))
    axis.set_yscale("log")
    axis.grid(axis="y", which="both")
    handles: list[Line2D] = []
    for one in shown:
        rows = points[points["series"] == one.key]
        line = _line(one)
        line.set_data(100 * rows["sparsity"], rows["median_us"])
        handles.append(axis.add_line(line))
    axis.autoscale_view()
    if crossed:
        axis.axvspan(start, high, color=style.BAND, lw=0, zorder=0)
    for line in (printed := list(_published(points, data.paper))):
        axis.add_line(line)
    if printed:
        handles.append(_diamond(style.INK, label="the paper: " + ", ".join(str(line.get_label()) for line in printed)))
    axis.set_xlim(low - 1, high + 1)
    axis.set_xlabel("sparsity (%)")
    axis.set_ylabel("runtime (µs, log)")
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    layout.legend_below(figure, handles, [str(handle.get_label()) for handle in handles])
    return figure


def _published(points: pd.DataFrame, paper: pd.DataFrame) -> Iterator[Line2D]:
    """The paper's crossings with cuBLAS fp32, at the height of that line here, each in its kernel's colour."""
    dense = points[points["series"] == BASELINE.key]["median_us"]
    for row in each(paper) if len(dense) else ():
        line = _diamond(
            style.look(str(row.kernel)).colour,
            f"{kernel_label(str(row.kernel))} {100 * row.sparsity:.3g} % ({row.gpu})",
        )
        line.set_data([100 * row.sparsity], [dense.median()])
        yield line


def _diamond(colour: str, label: str) -> Line2D:
    return Line2D([], [], color=colour, marker="D", ms=9, mfc="white", mew=2, ls="", zorder=5, label=label)


def _line(series: Series) -> Line2D:
    """Sparse kernels with their markers (fp16 dotted), dense products as plain lines, those of cuBLASLt dashed."""
    if not _sparse(series):
        colour = {"tf32": style.MUTED, "f16": "#b3bac2"}.get(series.math, style.INK)
        dashes = "-" if about(series.kernel).reference else "--"
        return Line2D([], [], color=colour, lw=1.6, ls=dashes, label=series.label)
    line = series_line(series)
    line.set(
        ls="-" if series.math == "f32" else ":", lw=1.1, color=style.look(series.kernel).colour, label=series.label
    )
    return line


def _crossover_table(found: pd.DataFrame, series: tuple[Series, ...], paper: pd.DataFrame) -> str:
    rivals = [rival for rival in DENSE if (found["rival"] == rival.label).any()]
    printed = {row.kernel: f"{100 * row.sparsity:.3g} % ({row.gpu})" for row in each(paper)}
    rows = []
    for one in series:
        mine = {row.rival: row for row in each(found[found["series"] == one.key])}
        if not mine:
            continue
        cells = [
            crossover.text(mine[rival.label].sparsity, mine[rival.label].lowest, mine[rival.label].highest)
            if rival.label in mine
            else GAP
            for rival in rivals
        ]
        rows.append([one.label, *cells, printed.get(one.kernel, GAP)])
    return markdown(["faster than", *(rival.label for rival in rivals), "the paper, over cuBLAS fp32"], rows)


def _time_table(points: pd.DataFrame, series: tuple[Series, ...]) -> str:
    shown = [one for one in series if one != BEST and (points["series"] == one.key).any()]
    cells = {(row.series, row.sparsity): row.median_us for row in each(points)}
    rows = [
        [percent(level), *(number(cells.get((one.key, level), math.nan), 1) for one in shown)]
        for level in sorted(set(points["sparsity"]))
    ]
    return markdown(["zeros", *(one.label for one in shown)], rows)


def _gaps(view: View[Crossings]) -> Iterator[str]:
    points = view.data.points
    keys = set(points["series"])
    yield from (f"No time of {_name(rival)}: no crossover with it." for rival in DENSE if not keys & set(rival.series))
    levels = set(view.frame["sparsity"])
    for policy in view.policies:
        lines = []
        for one in view.data.series:
            have = points[(points["series"] == one.key) & (points["policy"] == policy)]["sparsity"]
            lost = sorted(levels - set(have))
            if lost and len(have):
                lines.append(f"{one.label} at {', '.join(map(percent, lost))}")
        if lines:
            yield f"Levels without a time ({policy}), which their lines skip: {'; '.join(lines)}."


def _name(rival: Rival) -> str:
    return rival.label.partition(",")[0]


PAGE = PageSpec(
    lead=leads.FIGURE1,
    title="Sputnik figure 1",
    intro=_intro,
    data=collect,
    sections=(SectionSpec("runtime", "Sparse and dense products by sparsity", _show),),
    gaps=_gaps,
    summary=_summary,
)
