"""A figure of ratios in the order of a paper's table: rows along x, one marker per curve, groups of rows shaded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from nnzbench.report.draw import layout, style

PAPER_COLOUR = "#8250df"
WIDTH_IN, LEFT, RIGHT = 10.4, 0.085, 0.99
HEAD_IN, PANEL_IN, TITLE_IN, LEGEND_LINE_IN = 0.78, 2.7, 0.32, 0.24
LEGEND_COLUMNS = 3
FEW = 6
"""Rows of a panel that leave room for a second panel beside it."""
STEP_IN, SPAN = 0.13, 0.76
"""Inches between the marks of two curves over one row, and the share of a row's place that all of them may take."""
LETTER_IN = 0.068
"""Width of a letter of a row's name."""
LARGER = {"X": 7.6, "P": 7.6, "<": 7.0, "^": 6.8, "v": 6.8}
"""Sizes of markers that cover less than others."""


class Marker(NamedTuple):
    """How a curve is drawn. Hollow markers are the papers' numbers, or a variant of a filled one."""

    colour: str
    marker: str
    hollow: bool = False
    size: float = 6.0

    def line(self) -> Line2D:
        """An empty line of markers."""
        if self.marker == "_":
            return Line2D([], [], ls="", marker="_", ms=11, mec=self.colour, mew=2.2)
        face, edge, width = ("none", self.colour, 1.2) if self.hollow else (self.colour, "white", 0.6)
        size = self.size if self.hollow else max(self.size, LARGER.get(self.marker, 0.0))
        return Line2D([], [], ls="", marker=self.marker, ms=size, mfc=face, mec=edge, mew=width)


PAPER = Marker(PAPER_COLOUR, "D", hollow=True, size=5.0)
"""The paper's numbers on its own GPU, never ours."""


def marker_of(kernel: str, hollow: bool = False) -> Marker:
    """The kernel's fixed look."""
    look = style.look(kernel)
    return Marker(look.colour, look.marker, hollow)


@dataclass(frozen=True)
class Curve:
    """One value per row, NaN where there is none."""

    label: str
    values: tuple[float, ...]
    marker: Marker

    @property
    def known(self) -> list[tuple[int, float]]:
        """Places and values of the rows that have one."""
        return [(x, value) for x, value in enumerate(self.values) if not math.isnan(value)]


@dataclass(frozen=True)
class Panel:
    """Rows with the groups that they belong to, and what is drawn over them."""

    title: str
    rows: tuple[str, ...]
    groups: tuple[str, ...]
    curves: tuple[Curve, ...]
    ylabel: str


def figure(panels: Sequence[Panel], title: str, caption: str) -> Figure:
    """Panels below each other, or two of few rows side by side, on logarithmic axes; a caption may have two lines.

    Curves without a value are left out, and of the others no mark hides another: over a row they stand side by side.
    """
    shown = list(dict.fromkeys(c.label for panel in panels for c in panel.curves if c.known))
    legend_in = 0.12 + LEGEND_LINE_IN * math.ceil(max(len(shown), 1) / LEGEND_COLUMNS)
    columns = 2 if len(panels) == 2 and all(len(panel.rows) <= FEW for panel in panels) else 1
    width = (RIGHT - LEFT) if columns == 1 else (RIGHT - LEFT - 0.08) / 2
    ticks = [_ticks_in(panel.rows, width * WIDTH_IN) for panel in panels]
    if columns == 2:
        ticks = [max(ticks), 0.0]
    heights = [TITLE_IN + PANEL_IN + tick for tick in ticks[: len(panels) if columns == 1 else 1]]
    height = HEAD_IN + sum(heights) + legend_in
    drawn = Figure(figsize=(WIDTH_IN, height))
    for place, panel in enumerate(panels):
        row, column = divmod(place, columns)
        bottom = 1 - (HEAD_IN + sum(heights[:row]) + TITLE_IN + PANEL_IN) / height
        axis = drawn.add_axes((LEFT + column * (width + 0.08), bottom, width, PANEL_IN / height))
        _panel(axis, panel, width * WIDTH_IN)
    drawn.text(0.012, 1 - 0.1 / height, title, fontsize=12, fontweight="bold", va="top")
    measured = [curve for panel in panels for curve in panel.curves if curve.marker != PAPER and curve.known]
    caption += layout.HOLES * any(len(curve.known) < len(curve.values) for curve in measured)
    drawn.text(0.012, 1 - 0.35 / height, caption, fontsize=8.5, color=style.MUTED, va="top")
    markers = {curve.label: curve.marker for panel in panels for curve in panel.curves}
    handles = [markers[label].line() for label in shown]
    if handles:
        drawn.legend(handles, shown, loc="lower center", ncols=LEGEND_COLUMNS, fontsize=8.5, borderpad=0.2)
    return drawn


def _level(rows: Sequence[str], width_in: float) -> bool:
    """Whether the rows' names have room beside each other."""
    return max((len(row) for row in rows), default=0) * LETTER_IN < width_in / (len(rows) + 0.4)


def _ticks_in(rows: Sequence[str], width_in: float) -> float:
    """Inches below an axis for the rows' names: of one line, or of the longest slanted one."""
    return 0.36 if _level(rows, width_in) else 0.22 + 0.042 * max((len(row) for row in rows), default=0)


def _offsets(count: int, rows: int, width_in: float) -> list[float]:
    """Where the marks of so many curves stand from the middle of a row, in rows."""
    step = min(STEP_IN * (rows + 0.4) / width_in, SPAN / max(count, 1))
    return [(place - (count - 1) / 2) * step for place in range(count)]


def _panel(axis: Axes, panel: Panel, width_in: float) -> None:
    values = [value for curve in panel.curves for _, value in curve.known]
    low, high = min([*values, 0.8]) / 1.25, max([*values, 2.0]) * 1.5
    axis.set_yscale("log", base=2)
    axis.set_ylim(low, high)
    axis.set_xlim(-0.7, len(panel.rows) - 0.3)
    _bands(axis, panel.groups)
    axis.grid(axis="y")
    axis.axhline(1, color=style.INK, lw=1.2)
    drawn = [curve for curve in panel.curves if curve.known]
    for curve, offset in zip(drawn, _offsets(len(drawn), len(panel.rows), width_in), strict=True):
        line = curve.marker.line()
        line.set_data([x + offset for x, _ in curve.known], [value for _, value in curve.known])
        axis.add_line(line)
    if all(curve.marker == PAPER or not curve.known for curve in panel.curves):
        axis.text(0.5, 0.5, "not recorded yet", transform=axis.transAxes, ha="center", color=style.MUTED)
    step = math.ceil((math.log2(high) - math.log2(low)) / 9)
    powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1, step)
    axis.yaxis.set_major_locator(FixedLocator([2.0**power for power in powers]))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylabel(panel.ylabel)
    axis.set_title(panel.title, pad=4)
    axis.set_xticks(range(len(panel.rows)), list(panel.rows))
    level = _level(panel.rows, width_in)
    for tick in axis.get_xticklabels():
        tick.set(fontsize=7.8, **({} if level else {"rotation": 38, "ha": "right", "rotation_mode": "anchor"}))


def _bands(axis: Axes, groups: Sequence[str]) -> None:
    """Shades every other group and names each above its rows."""
    start = 0
    ends = [i for i in range(1, len(groups) + 1) if i == len(groups) or groups[i] != groups[i - 1]]
    for place, end in enumerate(ends):
        if place % 2 == 0 and len(ends) > 1:
            axis.axvspan(start - 0.5, end - 0.5, color=style.BAND, lw=0, zorder=0)
        axis.text(
            (start + end - 1) / 2, 0.985, groups[start], transform=axis.get_xaxis_transform(),
            ha="center", va="top", fontsize=8.5, color=style.MUTED,
        )  # fmt: skip
        start = end
