"""A figure from its declaration: dots, bars, lines, the map, or a page's own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from nnzbench.report.draw import canvas, maps, style
from nnzbench.report.draw.canvas import AXIS, Look, grid, looks, policy_text, printed_line, rows_at, scale
from nnzbench.report.page import Bars, Dots, Drawn, Figure, Lines, Map, Plot, View
from nnzbench.report.tables import HEADS, head_of, order_of, shown, valued
from nnzbench.results.groups import ALL

ROW_IN, BAR_IN, LINES_IN = 0.21, 0.105, 2.1
MANY = 40
"""Problems of a panel above which they are drawn in order of their ratios, without names."""
LETTER_IN = 0.073
"""Width of a letter of a label."""


def save(figure: Figure, view: View) -> bool:
    """Writes `<name>.svg` beside the records; False, and no file, for nothing to show."""
    path = view.results.folder / f"{figure.name}.svg"
    with style.styled():
        drawn = drawing(figure, view)
        if drawn is None:
            path.unlink(missing_ok=True)
            return False
        style.save(drawn, path)
    return True


@functools.singledispatch
def drawing(figure: Figure, view: View) -> Drawing | None:
    """The figure of this kind; None for nothing to show."""
    raise TypeError(f"{figure!r} is no figure")


@drawing.register
def _drawn(figure: Drawn, view: View) -> Drawing | None:
    return figure.draw(view, _heading(figure, view))


@drawing.register
def _map(figure: Map, view: View) -> Drawing | None:
    return maps.draw(figure, view, _heading(figure, view))


class _Shown:
    """What a figure draws: the values of its series, panel by panel, and a paper's own numbers beside them."""

    def __init__(self, figure: Plot, view: View, lines: str = "") -> None:
        self.figure, self.view = figure, view
        by = tuple(dict.fromkeys(one for one in (figure.x, figure.panels, lines) if one and one != "subject"))
        self.values = valued(view, figure.series, figure.value, figure.baseline, figure.group, by)
        printed = figure.printed.make(view) if figure.printed and len(self.values) else None
        self.printed = pd.DataFrame(columns=[figure.x, "value"]) if printed is None else printed
        self.every = [*self.values["value"], *self.printed["value"]]
        self.panels = self.order(figure.panels) if figure.panels else [None]
        self.look = looks([one for one in figure.series if one.label in set(self.values["subject"])])

    def order(self, attribute: str, panel: Any = None) -> list[Hashable]:
        """Values of an attribute, in all panels or in one, in the order to show them."""
        return order_of(self.view, attribute, self.at(panel), self.figure.series)

    def at(self, panel: Any, **wanted: Any) -> pd.DataFrame:
        return rows_at(self._in(self.values, panel), **wanted)

    def printed_at(self, panel: Any) -> pd.DataFrame:
        return self._in(self.printed, panel)

    def _in(self, values: pd.DataFrame, panel: Any) -> pd.DataFrame:
        panels = self.figure.panels
        return values if panel is None or panels not in values else values[values[panels] == panel]

    def title(self, panel: Any, policy: str) -> str:
        return policy_text(policy) if panel is None else f"{head_of(self.figure.panels, panel)}, {policy_text(policy)}"

    def legend(self, of_series: dict[str, Any]) -> dict[str, Any]:
        """With the paper's marks, where it has some."""
        return of_series | ({self.figure.printed.label: printed_line()} if self.figure.printed else {})


Mark = Callable[[Axes, int, Look, list[int], list[float]], None]
"""Draws the values of a series, which is one of several, beside the names at these heights."""


def _by_name(seen: _Shown, height: Callable[[int], float], legend: dict[str, Any], caption: str, mark: Mark) -> Drawing:
    """Names from top to bottom, so that they stand level; a panel of so many names has that `height`."""
    figure = seen.figure
    names = {panel: seen.order(figure.x, panel) for panel in seen.panels}

    def draw(axis: Axes, panel: Any, policy: Any) -> None:
        place = {name: -at for at, name in enumerate(names[panel])}
        scale(axis, figure.value, "x", seen.every)
        for at, (label, one) in enumerate(seen.look.items()):
            found = seen.at(panel, policy=policy, subject=label)
            mark(axis, at, one, [place[name] for name in found[figure.x]], list(found["value"]))
        if figure.printed:
            found = seen.printed_at(panel)
            found = found[found[figure.x].isin(place)]
            axis.add_line(printed_line(found["value"], [place[name] for name in found[figure.x]]))
        for at in range(0, len(place), 2):  # every other row is shaded
            axis.axhspan(-at - 0.5, -at + 0.5, color=style.BAND, lw=0, zorder=0)
        axis.set_ylim(-len(place) + 0.4, 0.6)
        axis.set_yticks([*place.values()], [shown(name) for name in place], fontsize=8)
        axis.set_xlabel(AXIS[figure.value], fontsize=8.5)
        axis.set_title(seen.title(panel, policy), pad=4)

    left = max(canvas.LEFT_IN, 0.25 + LETTER_IN * max(len(shown(name)) for some in names.values() for name in some))
    heights, heading = [height(len(some)) for some in names.values()], _heading(figure, seen.view)
    return grid(seen.panels, seen.view.policies, heights, heading, caption, legend, draw, left, share="y")


@drawing.register
def _dots(figure: Dots, view: View) -> Drawing | None:
    """Many problems as curves of sorted ratios."""
    seen = _Shown(figure, view)
    if seen.values.empty:
        return None
    many = max(len(seen.order(figure.x, panel)) for panel in seen.panels) > MANY
    lines = {label: one.line(joined=many) for label, one in seen.look.items()}
    over = f"Times as fast as {figure.baseline.label if figure.baseline else ''}{_of(figure)}"
    caption = f"{over}; beyond the line at 1× the kernel is faster."

    def curves(axis: Axes, panel: Any, policy: Any) -> None:
        for label, one in seen.look.items():
            found = seen.at(panel, policy=policy, subject=label)["value"].sort_values()
            if len(found):
                share = 100 * (np.arange(len(found)) + 0.5) / len(found)
                axis.plot(share, found, color=one.colour, lw=1.8, ls="--" if one.hollow else "-")
        scale(axis, "ratio", "y", seen.every)
        axis.set_xlabel("% of the problems, in order of the ratio", fontsize=8.5)
        axis.set_title(seen.title(panel, policy), pad=4)

    def markers(axis: Axes, at: int, one: Look, ys: list[int], values: list[float]) -> None:
        aside = 0.5 * (0.5 - (at + 0.5) / len(seen.look))  # so that none hides another
        axis.add_line(one.line(values, [y + aside for y in ys], zorder=3))

    if many:
        heights = [LINES_IN] * len(seen.panels)
        return grid(seen.panels, view.policies, heights, _heading(figure, view), caption, lines, curves)
    return _by_name(seen, lambda count: ROW_IN * max(count, 3) + 0.12, seen.legend(lines), caption, markers)


@drawing.register
def _bars(figure: Bars, view: View) -> Drawing | None:
    seen = _Shown(figure, view)
    if seen.values.empty:
        return None
    many = 1 if figure.x == "subject" else len(seen.look)

    def bars(axis: Axes, at: int, one: Look, ys: list[int], values: list[float]) -> None:
        base = 1.0 if figure.value == "ratio" else 0.0
        start = axis.get_xlim()[0] if figure.value in ("time", "memory") else base
        aside = 0 if many == 1 else 0.8 * ((at + 0.5) / many - 0.5)
        face = "white" if one.hollow else one.colour
        ends, widths = [y - aside for y in ys], [value - start for value in values]
        axis.barh(ends, widths, 0.8 / many * 0.9, left=start, facecolor=face, edgecolor=one.colour, lw=0.9)

    legend: dict[str, Any] = {
        label: Patch(facecolor="white" if one.hollow else one.colour, edgecolor=one.colour)
        for label, one in seen.look.items()
    }
    row_in = BAR_IN * many + 0.07
    return _by_name(seen, lambda count: max(row_in * count, 0.5) + 0.1, seen.legend(legend), _caption(figure), bars)


@drawing.register
def _lines(figure: Lines, view: View) -> Drawing | None:
    seen = _Shown(figure, view, figure.lines)
    if seen.values.empty:
        return None
    by = figure.lines or "subject"
    curves = seen.order(by)
    look: dict[Any, Look] = {**looks(figure.series)} if not figure.lines else _ladder(curves)
    panels = seen.panels
    rows, columns = (panels, view.policies) if len(panels) == 1 or len(panels) > 3 else (view.policies, panels)

    def draw(axis: Axes, row: Any, column: Any) -> None:
        panel, policy = (row, column) if rows is panels else (column, row)
        here = seen.at(panel, policy=policy)
        for curve in curves:
            found = here[here[by] == curve].sort_values(figure.x)
            axis.add_line(look[curve].line(found[figure.x], found["value"], joined=True))
        if figure.printed:
            found = seen.printed_at(panel)
            axis.add_line(printed_line(found[figure.x], found["value"]))
        scale(axis, figure.value, "y", seen.every)
        xs = sorted(set(here[figure.x]))
        if figure.log_x:
            axis.set_xscale("log", base=2)
            axis.set_xticks(xs if len(xs) <= 12 else xs[:: len(xs) // 8], minor=False)
            axis.xaxis.set_major_formatter(lambda tick, _: f"{tick:g}")
            axis.xaxis.set_minor_locator(NullLocator())
        elif len(xs) <= 8:
            axis.set_xticks(xs)
        axis.margins(x=0.04)
        axis.autoscale_view(scaley=False)
        axis.set_xlabel(HEADS.get(figure.x, figure.x), fontsize=8.5)
        axis.set_ylabel(AXIS[figure.value], fontsize=8.5)
        axis.set_title(seen.title(panel, policy), pad=4)

    legend: dict[str, Any] = {
        head_of(figure.lines, curve) if figure.lines else str(curve): look[curve].line(joined=True) for curve in curves
    }
    heights, heading = [LINES_IN] * len(rows), _heading(figure, view)
    return grid(rows, columns, heights, heading, _caption(figure), seen.legend(legend), draw)


def _ladder(values: Sequence[Hashable]) -> dict[Any, Look]:
    """Looks for the values of an attribute: numbers from dark to light, in their order."""
    looks = {value: Look(*one) for value, one in zip(values, canvas._SPARE * 2, strict=False)}
    if all(isinstance(one, int | float) for one in values):
        shades = colormaps["viridis"](np.linspace(0, 0.85, len(values)))
        looks = {at: replace(one, colour=to_hex(shade)) for (at, one), shade in zip(looks.items(), shades, strict=True)}
    return looks


def _heading(figure: Figure, view: View) -> str:
    return f"{figure.title} ({view.gpu})" if view.gpu else figure.title


def _of(figure: Plot) -> str:
    return "" if figure.group == ALL else f"; {figure.group.label}"


def _caption(figure: Plot) -> str:
    what = {
        "ratio": f"Times as fast as {figure.baseline.label if figure.baseline else ''}",
        "time": "Median time, µs",
        "rate": "Useful TFLOP/s: 2 operations per nonzero and column over the time",
        "roofline": "Percent of the time that this GPU's measured peaks allow",
        "memory": "Device memory that the kernel takes at most, MB",
    }[figure.value]
    return f"{what}{_of(figure)}. Geometric means where several problems fall together."
