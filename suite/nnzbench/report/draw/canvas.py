"""What all kinds of figures share: a grid of panels under a title, one legend below, the look of each series."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from nnzbench.facts.selector import Selector
from nnzbench.report.draw import style
from nnzbench.report.draw.style import INK, MUTED

WIDTH_IN, LEFT_IN, RIGHT_IN, HEAD_IN, GAP_IN, FOOT_IN = 10.4, 0.75, 0.12, 0.72, 0.34, 0.5
LEGEND_LINE_IN = 0.23
LETTERS = 150
"""Of a caption's line."""
AXIS = {
    "ratio": "times as fast (log)",
    "time": "µs (log)",
    "rate": "useful TFLOP/s",
    "roofline": "% of the roofline",
    "memory": "MB (log)",
}
PRINTED = "#8250df"
"""Of a paper's own numbers."""
_DENSE = {"f32": "#000000", "tf32": "#2f8f9d", "f16": "#c77d1e", "bf16": "#8a5a00", "i8": "#666666", "f8": "#7a1fa2"}
_SPARE = tuple(zip(style.GPU_COLOURS, "ovs^D<>PXdh", strict=True))


@dataclass(frozen=True)
class Look:
    """How one series is drawn."""

    colour: str
    marker: str
    hollow: bool = False

    def line(self, joined: bool = False, **extra: Any) -> Line2D:
        """An empty line in this look."""
        face = "white" if self.hollow else self.colour
        line = Line2D([], [], color=self.colour, marker=self.marker, ms=5.5, mfc=face, mec=self.colour, mew=1.0, lw=1.6)
        line.set(ls="-" if joined else "", **extra)
        return line


def looks(series: Sequence[Selector]) -> dict[str, Look]:
    """A look for each series by its label; no two are alike."""
    found: dict[str, Look] = {}
    spare = iter(_SPARE)
    for one in series:
        look = _own_look(one)
        while look in found.values():
            look = Look(*next(spare))
        found[one.label] = look
    return found


def _own_look(one: Selector) -> Look:
    if one.dense:
        return Look(_DENSE.get(one.math, INK), "s", hollow=len(one.kernels) == 1)
    if one.kernel:
        given = style.look(one.kernel)
        return Look(given.colour, given.marker, hollow=bool(one.variants) or one.math != "f32")
    return Look(INK if one.math == "f32" else "#57606a", "*")


def policy_text(policy: str) -> str:
    """Of a panel's title."""
    return f"{policy} L2" if policy in ("hot", "cold") else policy


def grid(
    rows: Sequence[Any],
    columns: Sequence[Any],
    heights: Sequence[float],
    title: str,
    caption: str,
    legend: Mapping[str, Any],
    draw: Callable[[Axes, Any, Any], None],
    left: float = LEFT_IN,
    share: str = "",
) -> Drawing:
    """A panel for each row and column, drawn by `draw`; `heights` in inches, `left` room for the first one's labels.

    `share`: `y` where labels on the left are those of the whole row.
    """
    lines = textwrap.wrap(caption, LETTERS)
    head = HEAD_IN + 0.16 * (len(lines) - 1)
    per_line = max(1, min(len(legend), int(150 / max((len(one) + 6 for one in legend), default=10))))
    foot = LEGEND_LINE_IN * math.ceil(len(legend) / per_line) + 0.08
    height = head + sum(heights) + len(rows) * (GAP_IN + FOOT_IN) + foot
    figure = Drawing(figsize=(WIDTH_IN, height))
    figure.text(0.01, 1 - 0.1 / height, title, fontsize=12, fontweight="bold", va="top")
    figure.text(0.01, 1 - 0.37 / height, "\n".join(lines), fontsize=8.5, color=MUTED, va="top")
    between = 0.18 if share == "y" else LEFT_IN
    width = (WIDTH_IN - left - RIGHT_IN - between * (len(columns) - 1)) / len(columns)
    top = head
    for at, row in enumerate(rows):
        top += GAP_IN
        for place, column in enumerate(columns):
            start = left + place * (width + between)
            bottom = 1 - (top + heights[at]) / height
            axis = figure.add_axes((start / WIDTH_IN, bottom, width / WIDTH_IN, heights[at] / height))
            draw(axis, row, column)
            if share == "y" and place:
                axis.set_yticklabels([])
        top += heights[at] + FOOT_IN
    if legend:
        figure.legend(list(legend.values()), list(legend), loc="lower center", ncols=per_line, fontsize=8.5)
    return figure


def scale(axis: Axes, value: str, along: str, values: Iterable[float]) -> None:
    """Sets limits and ticks of the axis along which values lie; a line at 1x for ratios."""
    known = [one for one in values if one == one and one > 0]
    one_axis = axis.xaxis if along == "x" else axis.yaxis
    limits = axis.set_xlim if along == "x" else axis.set_ylim
    set_scale = axis.set_xscale if along == "x" else axis.set_yscale
    axis.grid(axis=along)  # type: ignore[arg-type]
    if value in ("rate", "roofline"):
        limits(0, max(known, default=1.0) * 1.06)
        return
    base = 2 if value == "ratio" else 10
    low, high = min([*known, *([0.8] if value == "ratio" else [])], default=1.0), max(known, default=2.0)
    low, high = low / 1.15, max(high, 1.25 if value == "ratio" else high) * 1.15
    set_scale("log", base=base)
    limits(low, high)
    first, last = math.ceil(math.log(low, base)), math.floor(math.log(high, base))
    step = max(1, math.ceil((last - first + 1) / 9))
    ticks = [float(base) ** power for power in range(first, last + 1, step)]
    if value != "ratio" and len(ticks) < 3:
        ticks = [
            tick * part for tick in (*ticks, base ** (first - 1.0)) for part in (1, 2, 5) if low <= tick * part <= high
        ]
    one_axis.set_major_locator(FixedLocator(ticks))
    one_axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}{'×' if value == 'ratio' else ''}"))
    one_axis.set_minor_locator(NullLocator())
    if value == "ratio":
        (axis.axvline if along == "x" else axis.axhline)(1, color=INK, lw=1.1, zorder=1.5)


def printed_line() -> Line2D:
    """Hollow diamonds are a paper's numbers on its own GPU, never ours."""
    return Line2D([], [], ls="", marker="D", ms=4.8, mfc="none", mec=PRINTED, mew=1.1)


def rows_at(values: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """The rows whose columns have these values; `None` asks for nothing."""
    for name, value in wanted.items():
        values = values if value is None else values[values[name] == value]
    return values
