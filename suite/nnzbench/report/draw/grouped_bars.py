"""Panels of grouped bars along problem numbers, for SparseRT's figures 4 to 7: rates from 0, ratios from 1x."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from nnzbench.report.draw import style
from nnzbench.report.draw.dots import PAPER_COLOUR, Marker
from nnzbench.report.draw.figures import paper_line
from nnzbench.report.draw.layout import WIDTH_IN

HEAD_IN, TITLE_IN, PANEL_IN, TICKS_IN, LEGEND_LINE_IN = 0.98, 0.32, 2.15, 0.42, 0.24
LEFT_IN, RIGHT_IN = 0.62, 0.1
LEGEND_COLUMNS = 4
MEAN_AT = 0.6
"""How much further than a problem the geometric mean stands from the last one."""
ROOM = 0.88
"""Share of an axis below the names of the groups."""


@dataclass(frozen=True)
class Bars:
    """One bar per tick, NaN for none. Hollow bars are a paper's numbers on its own GPU."""

    label: str
    values: tuple[float, ...]
    colour: str
    hollow: bool = False
    printed: tuple[float, ...] = ()
    """The paper's value of the same bar, drawn as a diamond over it; empty for none."""
    marker: Marker | None = None
    """On the bar's end: the kernel's own, where a figure has bars of two kernels that share a colour."""


@dataclass(frozen=True)
class Range:
    """A range that a paper states in words for some ticks, counted from 0, both ends included."""

    label: str
    first: int
    last: int
    low: float
    high: float


@dataclass(frozen=True)
class Panel:
    """Ticks with the group that each belongs to. A tick more than groups is the geometric mean, set apart."""

    title: str
    ticks: tuple[str, ...]
    groups: tuple[str, ...]
    bars: tuple[Bars, ...]
    ylabel: str
    ratio: bool
    stated: tuple[Range, ...] = ()


def light(colour: str) -> str:
    """The colour's tint, for the second of two levels of one kernel or GPU."""
    red, green, blue = (1 - 0.45 * (1 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def figure(panels: Sequence[Panel], title: str, caption: str, columns: int = 2) -> Figure:
    """Panels row by row; a caption may have three lines. Bars without any value are left out of the legend."""
    handles, labels = _legend(panels)
    rows = math.ceil(len(panels) / columns)
    legend_in = 0.12 + LEGEND_LINE_IN * math.ceil(len(labels) / LEGEND_COLUMNS)
    row_in = TITLE_IN + PANEL_IN + TICKS_IN
    height = HEAD_IN + rows * row_in + legend_in
    drawn = Figure(figsize=(WIDTH_IN, height))
    column_in = WIDTH_IN / columns
    for place, panel in enumerate(panels):
        row, column = divmod(place, columns)
        left = (column * column_in + LEFT_IN) / WIDTH_IN
        bottom = 1 - (HEAD_IN + row * row_in + TITLE_IN + PANEL_IN) / height
        width = (column_in - LEFT_IN - RIGHT_IN) / WIDTH_IN
        _panel(drawn.add_axes((left, bottom, width, PANEL_IN / height)), panel)
    drawn.text(0.012, 1 - 0.1 / height, title, fontsize=12, fontweight="bold", va="top")
    drawn.text(0.012, 1 - 0.36 / height, caption, fontsize=8.5, color=style.MUTED, va="top", linespacing=1.25)
    if handles:
        drawn.legend(handles, labels, loc="lower center", ncols=LEGEND_COLUMNS, fontsize=8.5, borderpad=0.2)
    return drawn


def _legend(panels: Sequence[Panel]) -> tuple[list[Any], list[str]]:
    """Artists, or of bars with a marker both, and what each is called."""
    handles: dict[str, Artist | tuple[Artist, ...]] = {}
    for bars in (bars for panel in panels for bars in panel.bars if known(bars.values)):
        face = "none" if bars.hollow else bars.colour
        patch = Patch(facecolor=face, edgecolor=bars.colour, lw=1.1)
        handles.setdefault(bars.label, patch if bars.marker is None else (patch, bars.marker.line()))
    for stated in (one for panel in panels for one in panel.stated):
        handles.setdefault(stated.label, Patch(color=PAPER_COLOUR, alpha=0.18, lw=0))
    if any(known(bars.printed) for panel in panels for bars in panel.bars):
        handles["SparseRT paper, T4"] = paper_line()
    return list(handles.values()), list(handles)


def known(values: Iterable[float]) -> list[float]:
    """The values that are there."""
    return [value for value in values if not math.isnan(value)]


def _panel(axis: Axes, panel: Panel) -> None:
    places = [float(x) for x in range(len(panel.ticks))]
    if len(panel.ticks) > len(panel.groups):
        places[-1] += MEAN_AT
        axis.axvspan(places[-1] - 0.55, places[-1] + 0.55, color="#eaeef2", lw=0, zorder=0)
    axis.set_xlim(-0.6, places[-1] + 0.6)
    axis.grid(axis="y")
    shown = [bars for bars in panel.bars if known((*bars.values, *bars.printed))]
    base = _scale(axis, panel, shown)
    width = 0.84 / max(len(shown), 1)
    for stated in panel.stated:
        corner, size = (stated.first - 0.5, stated.low), (stated.last - stated.first + 1, stated.high - stated.low)
        axis.add_patch(Rectangle(corner, *size, color=PAPER_COLOUR, alpha=0.18, lw=0, zorder=1))
    for number, bars in enumerate(shown):
        centres = [x + (number + 0.5) * width - 0.42 for x in places]
        there = [(x, value) for x, value in zip(centres, bars.values, strict=True) if not math.isnan(value)]
        xs, heights = [x for x, _ in there], [value - base for _, value in there]
        inner = 0.8 if bars.hollow else 0.94
        face = "none" if bars.hollow else bars.colour
        axis.bar(xs, heights, width * inner, bottom=base, facecolor=face, edgecolor=bars.colour, lw=0.9 * bars.hollow)
        if bars.marker is not None:
            mark = bars.marker.line()
            mark.set(markersize=min(5.0, 26 * width), zorder=3)
            mark.set_data(xs, [value for _, value in there])
            axis.add_line(mark)
        if bars.printed:
            line = paper_line()
            line.set(markersize=min(5.0, 26 * width), markerfacecolor="white", zorder=3)  # seen over any bar
            line.set_data(centres, bars.printed)
            axis.add_line(line)
    _groups(axis, panel.groups)
    axis.set_ylabel(panel.ylabel)
    axis.set_title(panel.title, pad=4)
    axis.set_xticks(places, list(panel.ticks), fontsize=7.8)
    axis.set_xlabel("problem", fontsize=8.5, labelpad=2)


def _scale(axis: Axes, panel: Panel, shown: Sequence[Bars]) -> float:
    """Sets the limits and ticks of the y axis; returns where bars begin."""
    values = [value for bars in shown for value in known((*bars.values, *bars.printed))]
    values += [one.high for one in panel.stated]
    if not panel.ratio:
        axis.set_ylim(0, max(values, default=1.0) / ROOM)
        axis.yaxis.set_major_locator(MaxNLocator(6))
        return 0.0
    low = math.log2(min([*values, 1.0])) - 0.15
    high = low + (math.log2(max([*values, 2.0])) - low) / ROOM
    axis.set_yscale("log", base=2)
    axis.set_ylim(2.0**low, 2.0**high)
    axis.axhline(1, color=style.INK, lw=1.2, zorder=2.5)
    powers = range(math.ceil(low), math.floor(high) + 1)
    axis.yaxis.set_major_locator(FixedLocator([2.0**power for power in powers]))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axis.yaxis.set_minor_locator(NullLocator())
    return 1.0


def _groups(axis: Axes, groups: Sequence[str]) -> None:
    """Shades every other group and names each above its bars."""
    ends = [end for end in range(1, len(groups) + 1) if end == len(groups) or groups[end] != groups[end - 1]]
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if number % 2 == 0 and len(ends) > 1:
            axis.axvspan(start - 0.5, end - 0.5, color=style.BAND, lw=0, zorder=0)
        axis.text(
            (start + end - 1) / 2, 0.985, groups[start], transform=axis.get_xaxis_transform(),
            ha="center", va="top", fontsize=7.6, color=style.MUTED,
        )  # fmt: skip
