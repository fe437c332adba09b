"""The figures of `llm_layers`: speed-up over dense fp16 against zeros, one line per number of columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from nnzbench.papers.own.llm_data import Layers, of_series
from nnzbench.report.draw import layout, style
from nnzbench.report.draw.figures import paper_line

MARKERS = "os^Dv<>phX"
LEFT, RIGHT, BETWEEN = 0.072, 0.985, 0.035
TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)


def overview(data: Layers, policies: Sequence[str], title: str, caption: str, printed: pd.DataFrame) -> Figure:
    """The mean over large layers, a panel per policy; `printed`: a paper's own means (`zeros`, `speedup`, `words`)."""
    figure = layout.headed(4.8, title, caption)
    limits = _limits([*data.means["speedup"], *printed["speedup"]])
    width = (RIGHT - LEFT - BETWEEN * (len(policies) - 1)) / max(1, len(policies))
    for place, policy in enumerate(policies):
        axis = figure.add_axes((LEFT + place * (width + BETWEEN), 0.24, width, 0.53))
        axis.set_title(f"{policy} policy")
        mine = data.means[data.means["policy"] == policy]
        _curves(axis, mine, data.columns)
        paper = paper_line()
        paper.set_data(100 * printed["zeros"], printed["speedup"])
        axis.add_line(paper)
        _scale(axis, limits, data.means["zeros"], labelled=place == 0, below=True)
    handles, labels = _legend(data.columns)
    if len(printed):
        handles, labels = [*handles, paper_line()], [*labels, str(printed["words"].iloc[0])]
    layout.legend_below(figure, handles, labels, columns=4)
    return figure


def by_layer(data: Layers, policy: str, title: str, caption: str) -> Figure:
    """A panel per layer, all on one scale."""
    rows = of_series(data.points[data.points["policy"] == policy])
    shown = [layer for layer in data.layers if layer.label in set(rows["layer"])]
    across = max(1, min(3, len(shown)))
    lines = -(-len(shown) // across)
    height = 0.85 + 2.15 * lines + 0.5
    whole = len(shown) * rows["zeros"].nunique() * len(data.columns)
    holes = layout.HOLES * (len(rows.drop_duplicates(["layer", "zeros", "n"])) < whole)
    figure = layout.headed(height, title, caption + holes)
    limits = _limits(rows["speedup"])
    width = (RIGHT - LEFT - (across - 1) * BETWEEN) / across
    for place, layer in enumerate(shown):
        line, column = divmod(place, across)
        bottom = (height - 0.85 - 0.3 - 2.15 * line - 1.55) / height
        axis = figure.add_axes((LEFT + column * (width + BETWEEN), bottom, width, 1.55 / height))
        axis.set_title(f"{layer.name}: {layer.model.partition(' (')[0]}")
        _curves(axis, rows[rows["layer"] == layer.label], data.columns)
        _scale(axis, limits, rows["zeros"], labelled=column == 0, below=place + across >= len(shown))
    layout.legend_below(figure, *_legend(data.columns), columns=8)
    return figure


def _line(columns: Sequence[int], n: int) -> Line2D:
    place = list(columns).index(n)
    shade = 0.88 * place / max(1, len(columns) - 1)
    colour = to_hex(mpl.colormaps["viridis"](shade))
    return Line2D([], [], color=colour, marker=MARKERS[place % len(MARKERS)], ms=5, mec="white", mew=0.5, lw=1.3)


def _legend(columns: Sequence[int]) -> tuple[list[Line2D], list[str]]:
    return [_line(columns, n) for n in columns], [f"N = {n}" for n in columns]


def _curves(axis: Axes, rows: pd.DataFrame, columns: Sequence[int]) -> None:
    axis.axhline(1.0, color=style.INK, lw=1.0)
    for n in columns:
        mine = rows[rows["n"] == n].sort_values("zeros")
        if len(mine):
            line = _line(columns, n)
            line.set_data(100 * mine["zeros"], mine["speedup"])
            axis.add_line(line)


def _limits(values: Iterable[float]) -> tuple[float, float]:
    known = [value for value in values if value == value]  # no NaN
    return min([0.8, *known]) / 1.1, max([1.25, *known]) * 1.1


def _scale(axis: Axes, limits: tuple[float, float], zeros: pd.Series[float], labelled: bool, below: bool) -> None:
    axis.set(yscale="log", ylim=limits, xlim=(100 * zeros.min() - 2, 100 * zeros.max() + 2))
    axis.grid(axis="y")
    axis.xaxis.set_major_locator(FixedLocator([100 * level for level in sorted(set(zeros))]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_major_locator(FixedLocator([tick for tick in TICKS if limits[0] <= tick <= limits[1]]))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_minor_formatter(NullFormatter())
    if below:
        axis.set_xlabel("zeros (%)")
    if labelled:
        axis.set_ylabel("speed-up (log)")
    else:
        axis.tick_params(labelleft=False)
