"""The speed-up figure: problems along x grouped by sparsity level, every kernel as its own marker, 1x the baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from nnzbench.facts.results import each, geometric_mean, percent
from nnzbench.kernels.registry import about
from nnzbench.kernels.roles import RETIRED
from nnzbench.report.data.series import BEST, Series
from nnzbench.report.data.spread import VISIBLE
from nnzbench.report.draw import layout
from nnzbench.report.draw.style import BAND, BAR, INK, MUTED, look

HEAD_IN, PANEL_IN, TICKS_IN, LEGEND_IN = 0.95, 3.0, 1.15, 0.62
"""Inches of the figure's title and caption, of one panel with its title, of slanted labels, of a legend below."""
PER_PANEL = 24
"""Problems drawn side by side before the labels would touch."""


@dataclass(frozen=True)
class SpeedupTable:
    """All that a speed-up page shows, already computed: figures and tables only lay it out."""

    problems: pd.DataFrame
    """One row per problem in drawing order: label, level, model, m, k, n, size, problem (NaN: not recorded)."""
    points: pd.DataFrame
    """One row per policy, problem and series with a time."""
    means: pd.DataFrame
    """Geometric means per policy, level and series."""
    series: tuple[Series, ...]
    baseline: Series
    baseline_text: str
    """What 1x is, for the axis and the caption."""
    paper_label: str = ""
    """Legend of the published numbers; empty where there are none."""
    paper_mean: tuple[str, float] = ("", math.nan)
    """Legend and value of what is published over all problems alone."""
    subject: str = ""
    """Kernel whose own choice of tiling the figure's title is about, which is then drawn in any case."""
    told: str = ""
    """Key of the series that the figure's title is about, where that is a kernel's best: drawn in any case too."""


MOST = 8
"""Series of one figure that a reader can tell apart; the tables have all."""


def few(
    series: Sequence[Series], points: pd.DataFrame, most: int = MOST, subject: str = "", told: str = ""
) -> list[Series]:
    """At most so many of the series that figures show and that have a time in `points` (rows of one policy).

    Left out first are a second library that computes the same as a first one, then libraries' defaults, kernels' own
    choices, and of this suite's kernels those that are the fastest on the fewest problems; never `BEST` and the series
    with the key `told`. Of the kernel `subject` its own choice stays, its best is left out as others' choices are, and
    other papers' kernels stay longer.
    """
    have = set(points["series"])
    kept = [one for one in series if one.drawn and one.key in have and one.kernel not in RETIRED]
    ours = points[points["series"].isin({one.key for one in kept if one.own and one != BEST and not one.default})]
    fastest = ours.loc[ours.groupby("problem")["median_us"].idxmin(), "series"].value_counts().to_dict()

    def worth(one: Series) -> tuple[int, int]:
        if one.key == told:
            return 8, 0
        said = about(one.kernel)
        second = one.dense and said.searched
        own_choice = 2 if one.own else 1
        if subject and one.kernel == subject and one.math == "f32":
            return 5 if one.default else 2, 0
        if subject and said.role == "paper" and not one.default:
            return 4, 0
        order = 9 if one == BEST else 0 if second else own_choice if one.default else 4 if not one.own else 3
        return order, int(fastest.get(one.key, 0))

    gone = sorted(kept, key=worth)[: max(len(kept) - most, 0)]
    return [one for one in kept if one not in gone and (worth(one)[0] > 0 or len(kept) <= most)]


def _shown(table: SpeedupTable, policy: str) -> list[Series]:
    here = table.points[table.points["policy"] == policy]
    others = [one for one in table.series if one != table.baseline]
    return few(others, here, MOST - bool(_paper_words(table)), table.subject, table.told)


def drawn_times(table: SpeedupTable, policy: str) -> pd.DataFrame:
    """The recorded rows behind the speed-up figure: of the series shown, and those that they are divided by."""
    keys = {one.key for one in (*_shown(table, policy), table.baseline)}
    return table.points[(table.points["policy"] == policy) & table.points["series"].isin(keys)]


def names_of(table: SpeedupTable) -> dict[str, str]:
    """What the speed-up figure calls its problems: as on its axis, and in which panel."""
    return {
        str(row.problem): f"{row.label}: {row.size} at {percent(row.level)} zeros"
        for row in each(table.problems)
        if isinstance(row.problem, str)
    }


def _paper_words(table: SpeedupTable) -> str:
    """Legend of the paper's numbers, by problem or over all of them; empty for none."""
    return table.paper_label or table.paper_mean[0]


def series_line(series: Series) -> Line2D:
    """The marker of a series, as in the legend."""
    style = look(series.kernel)
    if series.default:
        return Line2D([], [], ls="", marker=style.marker, ms=4.2, mfc="white", mec=style.colour, mew=1.1)
    if series.dense:
        colour, width = _dense_colour(series)
        return Line2D([], [], ls="", marker="_", ms=11, mec=colour, mew=width)
    return Line2D([], [], ls="", marker=style.marker, ms=6, mfc=style.colour, mec="white", mew=0.6)


def _dense_colour(series: Series) -> tuple[str, float]:
    searched = bool(series.kernel) and about(series.kernel).searched
    shades = {"tf32": "#2f8f9d", "f16": "#c77d1e"} if searched else {"tf32": MUTED, "f16": "#8a5a00"}
    return shades.get(series.math, look(series.kernel).colour), 2.2


def paper_line() -> Line2D:
    """Hollow diamonds are the paper's numbers on its own GPU, never ours."""
    return Line2D([], [], ls="", marker="D", ms=5, mfc="none", mec="#8250df", mew=1.1)


def speedup_figure(table: SpeedupTable, policy: str, title: str, caption: str) -> Figure:
    """One panel per sparsity level. Points without a baseline are not drawn (the tables name them)."""
    levels = list(dict.fromkeys(table.problems["level"]))
    widest = max(int((table.problems["level"] == level).sum()) for level in levels)
    shares = [(int((table.problems["level"] == level).sum()) + 2.6) / (widest + 2.6) for level in levels]
    beside = shares[-1] < 0.72
    height = HEAD_IN + (PANEL_IN + TICKS_IN) * len(levels) + (0.0 if beside else LEGEND_IN)
    figure = Figure(figsize=(10.4, height))
    left, right = 0.072, 0.99
    limits = _limits(table, policy)
    for row, (level, share) in enumerate(zip(levels, shares, strict=True)):
        problems = table.problems[table.problems["level"] == level]
        below = HEAD_IN + (row + 1) * (PANEL_IN + TICKS_IN) - TICKS_IN
        axis = figure.add_axes((left, 1 - below / height, (right - left) * share, (PANEL_IN - 0.3) / height))
        _panel(axis, table, problems, policy, level, limits)
    figure.text(0.012, 1 - 0.12 / height, title, fontsize=12, fontweight="bold", va="top")
    caption += layout.HOLES * _has_holes(table, policy)
    figure.text(0.012, 1 - 0.38 / height, caption, fontsize=8.5, color=MUTED, va="top")
    _legend(figure, table, policy, axis if beside else None)
    return figure


def level_figure(table: SpeedupTable, policy: str, title: str, caption: str) -> Figure:
    """For many problems: per level and series, every speed-up as a dot and the geometric mean as a bar."""
    points = table.points[(table.points["policy"] == policy) & table.points["speedup"].notna()]
    shown = [
        s for s in table.series if s not in (table.baseline, BEST) and s.drawn and (points["series"] == s.key).any()
    ]
    levels = sorted(set(table.problems["level"]))
    figure = Figure(figsize=(10.4, 5.2))
    axis = figure.add_axes((0.065, 0.25, 0.925, 0.6))
    limits = _limits(table, policy)
    axis.set_yscale("log", base=2)
    axis.set_ylim(*limits)
    axis.grid(axis="y")
    axis.axhline(1, color=INK, lw=1.2)
    step = 0.8 / max(len(shown), 1)
    for place, series in enumerate(shown):
        colour = look(series.kernel).colour
        for x, level in enumerate(levels):
            values = points.loc[(points["series"] == series.key) & (points["level"] == level), "speedup"]
            if values.empty:
                continue
            centre = x - 0.4 + step * (place + 0.5)
            spread = [centre + step * 0.5 * ((i * 0.618) % 1 - 0.5) for i in range(len(values))]
            line = series_line(series)
            line.set(alpha=0.35, markersize=3)
            line.set_data(spread, list(values))
            axis.add_line(line)
            axis.hlines(geometric_mean(values), centre - step * 0.42, centre + step * 0.42, color=colour, lw=2.5)
    axis.set_xlim(-0.5, len(levels) - 0.5)
    axis.set_xticks(range(len(levels)), [f"{percent(level)} zeros" for level in levels])
    _speedup_ticks(axis, limits)
    figure.text(0.012, 0.985, title, fontsize=12, fontweight="bold", va="top")
    figure.text(0.012, 0.935, f"{caption} Bars are geometric means.", fontsize=8.5, color=MUTED, va="top")
    handles = [series_line(series) for series in shown]
    figure.legend(handles, [s.label for s in shown], loc="lower center", ncols=4, fontsize=8.5)
    return figure


def _limits(table: SpeedupTable, policy: str) -> tuple[float, float]:
    drawn = {series.key for series in _shown(table, policy)}
    here = (table.points["policy"] == policy) & table.points["series"].isin(drawn)
    points = table.points[here]
    values = list(points["speedup"].dropna())
    wide = _wide(points)
    values += [*(wide["baseline_us"] / wide["q3_us"]).dropna(), *(wide["baseline_us"] / wide["q1_us"]).dropna()]
    if "paper_speedup" in table.problems:
        values += list(table.problems["paper_speedup"].dropna())
    values += [] if math.isnan(table.paper_mean[1]) else [table.paper_mean[1]]
    low, high = min([*values, 0.8]), max([*values, 2.0])
    return low / 1.25, high * 1.5


def _panel(
    axis: Axes,
    table: SpeedupTable,
    problems: pd.DataFrame,
    policy: str,
    level: float,
    limits: tuple[float, float],
) -> None:
    points = table.points[(table.points["policy"] == policy) & (table.points["level"] == level)]
    means = table.means[(table.means["policy"] == policy) & (table.means["level"] == level)]
    place = {name: x for x, name in enumerate(problems["problem"])}
    mean_x = len(problems) + 0.6
    axis.set_yscale("log", base=2)
    axis.set_ylim(*limits)
    axis.set_xlim(-0.7, len(problems) + 1.4)
    _bands(axis, problems)
    axis.axvspan(mean_x - 0.75, mean_x + 0.75, color="#eaeef2", lw=0)
    axis.grid(axis="y")
    axis.axhline(1, color=INK, lw=1.2)
    for series in _shown(table, policy):
        rows = points[(points["series"] == series.key) & points["speedup"].notna()]
        xs: list[float] = [place[name] for name in rows["problem"]]
        ys = list(rows["speedup"])
        mean = means.loc[means["series"] == series.key, "geometric_mean"].dropna()
        if not mean.empty:
            xs.append(mean_x)
            ys.append(float(mean.iloc[0]))
        if series == BEST:
            _best_bars(axis, xs, ys)
            continue
        line = series_line(series)
        line.set_data(xs, ys)
        line.set_zorder(2.5 if series.own else 2.2)
        axis.add_line(line)
        _quartiles(axis, rows, place, str(line.get_markeredgecolor() if series.dense else look(series.kernel).colour))
    if _paper_words(table):
        _paper(axis, problems, mean_x, table.paper_mean[1])
    _axis_text(axis, problems, mean_x, level, limits)


def _has_holes(table: SpeedupTable, policy: str) -> bool:
    """Whether a drawn series lacks the time of some problem."""
    here = table.points[(table.points["policy"] == policy) & table.points["speedup"].notna()]
    counts = here["series"].value_counts()
    return any(counts.get(one.key, 0) < len(table.problems) for one in _shown(table, policy))


def _quartiles(axis: Axes, rows: pd.DataFrame, place: Mapping[str, int], colour: str) -> None:
    """A line from the first quartile to the third, where that is longer than a marker."""
    wide = _wide(rows)
    xs = [place[name] for name in wide["problem"]]
    axis.vlines(xs, wide["baseline_us"] / wide["q3_us"], wide["baseline_us"] / wide["q1_us"], color=colour, lw=1.4)


def _wide(rows: pd.DataFrame) -> pd.DataFrame:
    """Those whose quartiles are further apart than a marker is high."""
    return rows[rows["q3_us"] > VISIBLE * rows["q1_us"]]


def _best_bars(axis: Axes, xs: Sequence[float], ys: Sequence[float]) -> None:
    tops = [max(y, 1.0) for y in ys]
    bases = [min(y, 1.0) for y in ys]
    axis.bar(xs, [t - b for t, b in zip(tops, bases, strict=True)], bottom=bases, width=0.72, color=BAR, zorder=1.5)


def _paper(axis: Axes, problems: pd.DataFrame, mean_x: float, mean: float) -> None:
    values = [float(v) for v in problems["paper_speedup"]] if "paper_speedup" in problems else []
    present = [(x, v) for x, v in enumerate(values) if not math.isnan(v)]
    if not present and math.isnan(mean):
        return
    mean = geometric_mean(v for _, v in present) if present else mean
    line = paper_line()
    line.set_data([x for x, _ in present] + [mean_x], [v for _, v in present] + [mean])
    line.set_zorder(2.3)
    axis.add_line(line)


def _bands(axis: Axes, problems: pd.DataFrame) -> None:
    """Shades every other model and names it above its problems."""
    models = list(problems["model"])
    start = 0
    for number, end in enumerate(
        i for i in range(1, len(models) + 1) if i == len(models) or models[i] != models[i - 1]
    ):
        if number % 2 == 0:
            axis.axvspan(start - 0.5, end - 0.5, color=BAND, lw=0, zorder=0)
        axis.text(
            (start + end - 1) / 2,
            0.985,
            models[start],
            transform=axis.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize=8.5,
            color=MUTED,
        )
        start = end


def _axis_text(axis: Axes, problems: pd.DataFrame, mean_x: float, level: float, limits: tuple[float, float]) -> None:
    labels = [f"{r.label}:  {r.size}" for r in each(problems)]
    axis.set_xticks([*range(len(labels)), mean_x], [*labels, "geometric mean"])
    for tick in axis.get_xticklabels():
        tick.set(rotation=38, ha="right", rotation_mode="anchor", fontsize=7.8)
    axis.get_xticklabels()[-1].set_fontweight("bold")
    _speedup_ticks(axis, limits)
    axis.set_title(f"{percent(level)} zeros", pad=4)


def _speedup_ticks(axis: Axes, limits: tuple[float, float]) -> None:
    powers = range(math.ceil(math.log2(limits[0])), math.floor(math.log2(limits[1])) + 1)
    axis.yaxis.set_major_locator(FixedLocator([2.0**p for p in powers]))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylabel("speed-up (log)")


def _legend(figure: Figure, table: SpeedupTable, policy: str, beside: Axes | None) -> None:
    """In the free space beside a narrow last panel, else below the figure."""
    shown = _shown(table, policy)
    handles: list[Line2D | Patch] = [Patch(color=BAR) if one == BEST else series_line(one) for one in shown]
    labels = [one.label for one in shown]
    handles.append(Line2D([], [], color=INK, lw=1.2))
    labels.append(f"1× = {table.baseline.label}")
    if words := _paper_words(table):
        handles.append(paper_line())
        labels.append(words)
    have = set(table.points.loc[table.points["policy"] == policy, "series"])
    more = sum(one.key in have and one != table.baseline for one in table.series) - len(shown)
    if more:
        handles.append(Line2D([], [], ls=""))
        labels.append(f"{more} more in the tables")
    if beside is not None:
        corner = beside.get_position()
        anchor = (corner.x1 + 0.012, corner.y1 + 0.02)
        figure.legend(handles, labels, loc="upper left", bbox_to_anchor=anchor, fontsize=8.5, labelspacing=0.55)
    else:
        figure.legend(handles, labels, loc="lower center", ncols=4, fontsize=8, bbox_to_anchor=(0.5, 0.0))
