"""What all kinds of figures share: a grid of panels under a title, one legend below, the look of each series."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from nnzbench.report.draw import style
from nnzbench.report.draw.style import INK, MUTED
from nnzbench.results.selector import Selector

WIDTH_IN, LEFT_IN, RIGHT_IN, HEAD_IN, GAP_IN, FOOT_IN = 8.2, 0.7, 0.12, 0.34, 0.3, 0.24
"""Of a figure: narrow enough that its letters are read where a page shows it 850 pixels wide."""
LABEL_IN, CAPTION_IN, LETTER_IN = 0.2, 0.16, 0.08
LEGEND_LINE_IN = 0.23
LETTERS, TITLE_LETTERS = 118, 80
"""Of a line of the caption and the legend, and of the title."""
AXIS = {
    "ratio": "times as fast (log)",
    "time": "µs (log)",
    "rate": "useful TFLOP/s",
    "roofline": "% of the roofline",
    "memory": "MB (log)",
}
PRINTED = "#8250df"
"""Of a paper's own numbers."""
_DENSE = {"f32": "#7d8590", "tf32": "#2f8f9d", "f16": "#c77d1e", "bf16": "#8a5a00", "i8": "#444c56", "f8": "#7a1fa2"}
_BEST = {"f32": INK, "tf32": "#117733", "f16": "#882255", "bf16": "#661100"}
"""Of the fastest of several kernels, by arithmetic."""
_SPARE = tuple(zip((*style.GPU_COLOURS[1:], style.GPU_COLOURS[0]), "vs^D<>PXdho", strict=True))


@dataclass(frozen=True)
class Look:
    """How one series is drawn."""

    colour: str
    marker: str
    hollow: bool = False

    def line(self, xs: Any = (), ys: Any = (), joined: bool = False, **extra: Any) -> Line2D:
        """A line in this look; without points for a legend."""
        face = "white" if self.hollow else self.colour
        line = Line2D(xs, ys, color=self.colour, marker=self.marker, ms=5.5, mfc=face, mec=self.colour, mew=1.0, lw=1.6)
        line.set(ls="-" if joined else "", **extra)
        return line


def looks(series: Sequence[Selector]) -> dict[str, Look]:
    """A look for each series by its label: no two are alike, and two kernels never have one colour."""
    found: dict[str, Look] = {}
    colours: dict[tuple[str, ...], str] = {}
    for one in series:
        own, whose = _own_look(one), one.kernels if one.kernel and not one.dense else (*one.kernels, one.math)
        own = replace(own, colour=colours.get(whose, own.colour))
        spare = (Look(*look, hollow=own.hollow) for look in _SPARE)
        taken = {colour for other, colour in colours.items() if other != whose}
        look = next(
            look
            for look in (own, replace(own, hollow=not own.hollow), *spare)
            if look not in found.values() and look.colour not in taken
        )
        found[one.label] = look
        colours.setdefault(whose, look.colour)
    return found


def _own_look(one: Selector) -> Look:
    if one.dense:
        return Look(_DENSE.get(one.math, INK), "s", hollow=len(one.kernels) == 1)
    if one.kernel:
        given = style.look(one.kernel)
        return Look(given.colour, given.marker, hollow=bool(one.variants) or one.math != "f32")
    return Look(_BEST.get(one.math, INK), "*")


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
    wide: float = WIDTH_IN,
) -> Drawing:
    """A panel for each row and column, drawn by `draw`; `heights` in inches, `left` room for the first one's labels.

    What an axis shows is told once, left of a row and below a column; `share`: `y` where so are the ticks on the left.
    """
    left = min(left, wide * 2 / 3)  # a recorded name may be of any length
    letters, title_letters = (int(most * wide / WIDTH_IN) for most in (LETTERS, TITLE_LETTERS))
    titles, lines = textwrap.wrap(title, title_letters), textwrap.wrap(caption, letters)
    below = HEAD_IN + 0.2 * (len(titles) - 1)
    head = below + CAPTION_IN * len(lines)
    per_line = max(1, min(len(legend), int(letters / max((len(one) + 6 for one in legend), default=10))))
    foot = LEGEND_LINE_IN * math.ceil(len(legend) / per_line) + 0.08
    height = head + sum(heights) + len(rows) * (GAP_IN + FOOT_IN) + LABEL_IN + foot
    figure = Drawing(figsize=(wide, height))
    figure.text(0.01, 1 - 0.08 / height, "\n".join(titles), fontsize=11.5, fontweight="bold", va="top")
    figure.text(0.01, 1 - below / height, "\n".join(lines), fontsize=8.5, color=MUTED, va="top")
    between = 0.18 if share == "y" else 0.55
    width = (wide - left - RIGHT_IN - between * (len(columns) - 1)) / len(columns)
    top = head
    for at, row in enumerate(rows):
        top += GAP_IN
        for place, column in enumerate(columns):
            start = left + place * (width + between)
            bottom = 1 - (top + heights[at]) / height
            axis = figure.add_axes((start / wide, bottom, width / wide, heights[at] / height))
            draw(axis, row, column)
            named = axis.get_title("left")
            axis.set_title(named, fontsize=min(9.5, 9.5 * width / (LETTER_IN * max(len(named), 1))), pad=4)
            if place:
                axis.set_ylabel("")
            if share == "y" and place:
                axis.set_yticklabels([])
            if at + 1 < len(rows):
                axis.set_xlabel("")
        top += heights[at] + FOOT_IN
    if legend:
        figure.legend(list(legend.values()), list(legend), loc="lower center", ncols=per_line, fontsize=8.5)
    return figure


def names_down(axis: Axes, names: Sequence[str]) -> None:
    """Names from top to bottom, at 0, 1, ...; every other one is shaded."""
    for y in range(0, len(names), 2):
        axis.axhspan(y - 0.5, y + 0.5, color=style.BAND, lw=0, zorder=0)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_yticks(range(len(names)), names, fontsize=8.5)


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
    step = max(1, math.ceil((last - first + 1) / 7))
    ticks = [float(base) ** power for power in range(first, last + 1) if power % step == 0]
    if value == "ratio" and last - first < 2:
        ticks = [tick for half in range(2 * first - 1, 2 * last + 2) if low <= (tick := 2.0 ** (half / 2)) <= high]
    elif len(ticks) < 3:
        ticks = [
            tick * part for tick in (*ticks, base ** (first - 1.0)) for part in (1, 2, 5) if low <= tick * part <= high
        ]
    one_axis.set_major_locator(FixedLocator(ticks))
    one_axis.set_major_formatter(FuncFormatter(lambda tick, _: _times(tick) if value == "ratio" else f"{tick:g}"))
    one_axis.set_minor_locator(NullLocator())
    if value == "ratio":
        (axis.axvline if along == "x" else axis.axhline)(1, color=INK, lw=1.1, zorder=1.5)


def _times(tick: float) -> str:
    """`2×`, `1.4×`, and below a half `1/8×`."""
    return f"1/{1 / tick:g}×" if tick < 0.5 and (1 / tick).is_integer() else f"{tick:.2g}×"


def printed_line(xs: Any = (), ys: Any = ()) -> Line2D:
    """Hollow diamonds are a paper's numbers on its own GPU, never ours."""
    return Line2D(xs, ys, ls="", marker="D", ms=4.8, mfc="none", mec=PRINTED, mew=1.1)


def rows_at(values: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """The rows whose columns have these values; `None` asks for nothing."""
    for name, value in wanted.items():
        values = values if value is None else values[values[name] == value]
    return values
