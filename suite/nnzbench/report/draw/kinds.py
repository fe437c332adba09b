"""A figure from its declaration: dots, bars, lines, the map, or a page's own."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
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
from nnzbench.report.draw.canvas import AXIS, grid, looks, policy_text, printed_line, rows_at, scale
from nnzbench.report.page import Bars, Dots, Drawn, Figure, Lines, Map, View
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


@drawing.register
def _dots(figure: Dots, view: View) -> Drawing | None:
    """Problems from top to bottom, so that their names stand level; many problems as curves of sorted ratios."""
    by = tuple(dict.fromkeys(one for one in (figure.x, figure.panels) if one and one != "subject"))
    values = valued(view, figure.series, "ratio", figure.baseline, figure.group, by)
    if values.empty:
        return None
    printed = figure.printed.make(view) if figure.printed else None
    panels = order_of(view, figure.panels, values, figure.series) if figure.panels else [None]
    look = looks([one for one in figure.series if one.label in set(values["subject"])])
    names = {panel: _names(view, figure, values, panel) for panel in panels}
    most = max(len(found) for found in names.values())
    every = [*values["value"], *(printed["value"] if printed is not None else [])]

    def sorted_curves(axis: Axes, panel: Any, policy: Any) -> None:
        for label, one in look.items():
            found = rows_at(_in(values, figure.panels, panel), policy=policy, subject=label)["value"].sort_values()
            if len(found):
                share = 100 * (np.arange(len(found)) + 0.5) / len(found)
                axis.plot(share, found, color=one.colour, lw=1.8, ls="--" if one.hollow else "-")
        scale(axis, "ratio", "y", every)
        axis.set_xlabel("% of the problems, in order of the ratio", fontsize=8.5)
        axis.set_title(_title(figure.panels, panel, policy), pad=4)

    def rows(axis: Axes, panel: Any, policy: Any) -> None:
        place = {name: -at for at, name in enumerate(names[panel])}
        here = _in(values, figure.panels, panel)
        for at, (label, one) in enumerate(look.items()):
            found = rows_at(here, policy=policy, subject=label)
            aside = 0.5 * (0.5 - (at + 0.5) / len(look))  # so that none hides another
            ys = [place[name] + aside for name in found[figure.x]]
            axis.add_line(_at(one.line(zorder=3), list(found["value"]), ys))
        if printed is not None:
            found = _in(printed, figure.panels, panel)
            found = found[found[figure.x].isin(place)]
            axis.add_line(_at(printed_line(), list(found["value"]), [place[name] for name in found[figure.x]]))
        _named_rows(axis, list(place), "ratio", every)
        axis.set_title(_title(figure.panels, panel, policy), pad=4)

    legend: dict[str, Any] = {label: one.line(joined=most > MANY) for label, one in look.items()}
    if printed is not None and figure.printed is not None and most <= MANY:
        legend[figure.printed.label] = printed_line()
    caption = f"Times as fast as {figure.baseline.label}{_of(figure)}; beyond the line at 1× the kernel is faster."
    if most > MANY:
        return grid(
            panels, view.policies, [LINES_IN] * len(panels), _heading(figure, view), caption, legend, sorted_curves
        )
    heights = [ROW_IN * max(len(names[panel]), 3) + 0.12 for panel in panels]
    left = _left(name for found in names.values() for name in found)
    return grid(panels, view.policies, heights, _heading(figure, view), caption, legend, rows, left, share="y")


@drawing.register
def _bars(figure: Bars, view: View) -> Drawing | None:
    by = tuple(dict.fromkeys(one for one in (figure.x, figure.panels) if one and one != "subject"))
    values = valued(view, figure.series, figure.value, figure.baseline, figure.group, by)
    if values.empty:
        return None
    printed = figure.printed.make(view) if figure.printed else None
    panels = order_of(view, figure.panels, values, figure.series) if figure.panels else [None]
    series = [one for one in figure.series if one.label in set(values["subject"])]
    look = looks(series)
    names = {panel: _names(view, figure, values, panel) for panel in panels}
    every = [*values["value"], *(printed["value"] if printed is not None else [])]
    many = 1 if figure.x == "subject" else len(series)

    def draw(axis: Axes, panel: Any, policy: Any) -> None:
        here = rows_at(_in(values, figure.panels, panel), policy=policy)
        place = {name: -at for at, name in enumerate(names[panel])}
        base = 1.0 if figure.value == "ratio" else 0.0
        scale(axis, figure.value, "x", every)
        start = axis.get_xlim()[0] if figure.value in ("time", "memory") else base
        for at, (label, one) in enumerate(look.items()):
            found = here[here["subject"] == label]
            ys = [place[name] - (0 if many == 1 else 0.8 * ((at + 0.5) / many - 0.5)) for name in found[figure.x]]
            face = "white" if one.hollow else one.colour
            widths = [value - start for value in found["value"]]
            axis.barh(ys, widths, 0.8 / many * 0.9, left=start, facecolor=face, edgecolor=one.colour, lw=0.9)
        if printed is not None:
            found = _in(printed, figure.panels, panel)
            found = found[found[figure.x].isin(place)]
            axis.add_line(_at(printed_line(), list(found["value"]), [place[name] for name in found[figure.x]]))
        _named_rows(axis, list(place), "", [])
        axis.set_xlabel(AXIS[figure.value], fontsize=8.5)
        axis.set_title(_title(figure.panels, panel, policy), pad=4)

    legend: dict[str, Any] = {
        label: Patch(facecolor="white" if one.hollow else one.colour, edgecolor=one.colour)
        for label, one in look.items()
    }
    if printed is not None and figure.printed is not None:
        legend[figure.printed.label] = printed_line()
    heights = [max((BAR_IN * many + 0.07) * len(names[panel]), 0.5) + 0.1 for panel in panels]
    left = _left(name for found in names.values() for name in found)
    caption = _caption(figure, view)
    return grid(panels, view.policies, heights, _heading(figure, view), caption, legend, draw, left, share="y")


@drawing.register
def _lines(figure: Lines, view: View) -> Drawing | None:
    by = tuple(dict.fromkeys(one for one in (figure.x, figure.panels, figure.lines) if one))
    values = valued(view, figure.series, figure.value, figure.baseline, figure.group, by)
    if values.empty:
        return None
    printed = figure.printed.make(view) if figure.printed else None
    every = [*values["value"], *(printed["value"] if printed is not None else [])]
    curves = order_of(view, figure.lines or "subject", values, figure.series)
    look: dict[Any, canvas.Look] = {**looks(figure.series)} if not figure.lines else _ladder(curves)
    panels = order_of(view, figure.panels, values, figure.series) if figure.panels else [None]
    rows, columns = (panels, view.policies) if len(panels) > 3 else (view.policies, panels)
    if len(panels) == 1:
        rows, columns = panels, view.policies

    def draw(axis: Axes, row: Any, column: Any) -> None:
        panel, policy = (row, column) if rows is panels else (column, row)
        here = rows_at(_in(values, figure.panels, panel), policy=policy)
        for curve in curves:
            found = here[here[figure.lines or "subject"] == curve].sort_values(figure.x)
            line = _at(look[curve].line(joined=True), list(found[figure.x]), list(found["value"]))
            axis.add_line(line)
        if printed is not None:
            found = _in(printed, figure.panels, panel)
            axis.add_line(_at(printed_line(), list(found[figure.x]), list(found["value"])))
        scale(axis, figure.value, "y", every)
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
        axis.set_title(_title(figure.panels, panel, policy), pad=4)

    legend: dict[str, Any] = {
        head_of(figure.lines, curve) if figure.lines else str(curve): look[curve].line(joined=True) for curve in curves
    }
    if printed is not None and figure.printed is not None:
        legend[figure.printed.label] = printed_line()
    return grid(rows, columns, [LINES_IN] * len(rows), _heading(figure, view), _caption(figure, view), legend, draw)


def _names(view: View, figure: Dots | Bars, values: pd.DataFrame, panel: Any) -> list[Hashable]:
    return order_of(view, figure.x, _in(values, figure.panels, panel), figure.series)


def _in(values: pd.DataFrame, attribute: str, panel: Any) -> pd.DataFrame:
    return values[values[attribute] == panel] if attribute and attribute in values else values


def _named_rows(axis: Axes, names: Sequence[Hashable], value: str, values: Sequence[float]) -> None:
    """Names from top to bottom, with every other row shaded."""
    for at in range(0, len(names), 2):
        axis.axhspan(-at - 0.5, -at + 0.5, color=style.BAND, lw=0, zorder=0)
    axis.set_ylim(-len(names) + 0.4, 0.6)
    axis.set_yticks([-at for at in range(len(names))], [shown(name) for name in names], fontsize=8)
    if value:
        scale(axis, value, "x", values)
        axis.set_xlabel(AXIS[value], fontsize=8.5)


def _at(line: Any, xs: Sequence[Any], ys: Sequence[Any]) -> Any:
    line.set_data(xs, ys)
    return line


def _ladder(values: Sequence[Hashable]) -> dict[Any, canvas.Look]:
    """Looks for the values of an attribute: numbers from dark to light, in their order."""
    looks = {value: canvas.Look(*one) for value, one in zip(values, canvas._SPARE * 2, strict=False)}
    if all(isinstance(one, int | float) for one in values):
        shades = colormaps["viridis"](np.linspace(0, 0.85, len(values)))
        looks = {at: replace(one, colour=to_hex(shade)) for (at, one), shade in zip(looks.items(), shades, strict=True)}
    return looks


def _left(names: Any) -> float:
    return max(canvas.LEFT_IN, 0.25 + LETTER_IN * max((len(shown(name)) for name in names), default=0))


def _title(attribute: str, panel: Any, policy: str) -> str:
    return policy_text(policy) if panel is None else f"{head_of(attribute, panel)}, {policy_text(policy)}"


def _heading(figure: Figure, view: View) -> str:
    return f"{figure.title} ({view.gpu})" if view.gpu else figure.title


def _of(figure: Dots | Bars | Lines) -> str:
    return "" if figure.group == ALL else f"; {figure.group.label}"


def _caption(figure: Bars | Lines, view: View) -> str:
    what = {
        "ratio": f"Times as fast as {figure.baseline.label if figure.baseline else ''}",
        "time": "Median time, µs",
        "rate": "Useful TFLOP/s: 2 operations per nonzero and column over the time",
        "roofline": "Percent of the time that this GPU's measured peaks allow",
        "memory": "Device memory that the kernel takes at most, MB",
    }[figure.value]
    return f"{what}{_of(figure)}. Geometric means where several problems fall together."
