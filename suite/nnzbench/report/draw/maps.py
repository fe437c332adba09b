"""The map of where sparsity pays: one panel for each size of layer, measured cells alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Rectangle

from nnzbench.kernels.registry import about
from nnzbench.report.draw.style import INK, MUTED
from nnzbench.report.page import Map, View
from nnzbench.results import nearby
from nnzbench.results.nearby import SIZES, WIDTHS, ZEROS, cells
from nnzbench.results.result_set import each
from nnzbench.results.selector import MATHS

WIDTH_IN, HEIGHT_IN, LEFT_IN, RIGHT_IN, BETWEEN_IN, HEAD_IN, PANEL_IN = 7.2, 3.9, 0.62, 0.12, 0.16, 0.9, 2.0
STEPS = (0.25, 0.5, 0.8, 1.0, 1.25, 2.0, 4.0)
"""Ratios between which a cell has one colour."""
COLOURS = ("#9a5408", "#e0943a", "#f4be80", "#fce9cc", "#dcebf4", "#a3cde3", "#5ea6d1", "#1c5f9b")
"""From dense far ahead to sparse far ahead, told apart under the common colour-vision deficiencies."""
LETTER_IN, LINE_IN = 0.09, 0.175
"""Of a label: width of a letter, height of a line."""
TICK = 9.5
LABEL: Any = {"ha": "center", "va": "center", "fontsize": 10.5}
DENSE = "dense"


class Place(NamedTuple):
    """A rectangle of cells: columns `left` to `right`, levels `low` to `high`, the ends included."""

    left: int
    right: int
    low: int
    high: int


def draw(figure: Map, view: View, title: str) -> Drawing | None:
    """The map under its title; None where the page's experiment has no cell of it."""
    found = cells(nearby.layers(view))
    found = found[(found["math"] == figure.math) & (found["policy"] == figure.policy)]
    panels = {size: found[(found["rows"] == size[0]) & (found["inner"] == size[1])] for size in SIZES}
    panels = {size: some for size, some in panels.items() if len(some)}
    if not panels:
        return None
    drawn = Drawing(figsize=(WIDTH_IN, HEIGHT_IN))
    drawn.text(0.012, 1 - 0.09 / HEIGHT_IN, title, fontsize=12, fontweight="bold", va="top")
    maths = MATHS[figure.math]
    hatched = "" if all(some["tuned"].all() for some in panels.values()) else "; hatched: not tuned"
    caption = f"Fastest sparse over fastest dense {maths} product, {figure.policy} L2. White: not measured{hatched}."
    drawn.text(0.012, 1 - 0.34 / HEIGHT_IN, caption, fontsize=TICK, color=MUTED, va="top")
    width = (WIDTH_IN - LEFT_IN - RIGHT_IN - BETWEEN_IN * (len(panels) - 1)) / len(panels)
    for at, ((rows, inner), some) in enumerate(panels.items()):
        left = (LEFT_IN + at * (width + BETWEEN_IN)) / WIDTH_IN
        axis = drawn.add_axes((left, 1 - (HEAD_IN + PANEL_IN) / HEIGHT_IN, width / WIDTH_IN, PANEL_IN / HEIGHT_IN))
        axis.set_title(f"{SIZES[rows, inner]} layer, {rows}×{inner}", fontsize=10, pad=5)
        _panel(axis, some, width)
        axis.set_yticks(range(len(ZEROS)), [f"{zeros} %" for zeros in ZEROS] if not at else [""] * len(ZEROS))
    drawn.text(0.012, 1 - (HEAD_IN - 0.07) / HEIGHT_IN, "zeros", fontsize=TICK, va="bottom", color=MUTED)
    centre = (LEFT_IN + WIDTH_IN - RIGHT_IN) / 2 / WIDTH_IN
    drawn.text(centre, 0.6 / HEIGHT_IN, "columns of the dense operand (tokens at once)", ha="center", fontsize=TICK)
    _key(drawn)
    return drawn


def _panel(axis: Axes, some: pd.DataFrame, width: float) -> None:
    ratio = np.full((len(ZEROS), len(WIDTHS)), np.nan)
    winner = np.full(ratio.shape, "", object)
    for one in each(some):
        up, across = ZEROS.index(one.level), WIDTHS.index(one.columns)
        ratio[up, across] = one.ratio
        winner[up, across] = about(one.kernel).label if one.ratio >= 1 else DENSE
        axis.add_patch(_square(across, up, COLOURS[np.digitize(one.ratio, STEPS)], "" if one.tuned else "////"))
    for ends in _boundary(ratio):
        axis.plot(*zip(*ends, strict=True), color=INK, lw=2.4, solid_capstyle="round")
    axis.set_xlim(-0.5, len(WIDTHS) - 0.5)
    axis.set_ylim(-0.5, len(ZEROS) - 0.5)
    axis.set_xticks(range(0, len(WIDTHS), 2), WIDTHS[::2])
    axis.tick_params(labelsize=TICK, pad=4, length=0)
    axis.spines[:].set_visible(False)
    cell = width / len(WIDTHS), PANEL_IN / len(ZEROS)
    dark = (ratio < STEPS[0]) | (ratio >= STEPS[-1])
    for name in dict.fromkeys(one for one in winner.flat if one):
        most = np.nanmax(np.where(winner == name, ratio, np.nan))
        words = (name, "is faster" if name == DENSE else f"up to {most:.1f}×")
        texts = (("\n".join(words), 0), (" ".join(words), 90), (name, 0), (name, 90))
        for (text, turned), (ink, kept) in itertools.product(texts, ((INK, ~dark), ("white", dark))):
            if found := _room((winner == name) & kept, text, turned, cell):
                lines = text.split("\n")
                for at, line in enumerate(lines):  # each centred by itself, as fonts differ from viewer to viewer
                    y = (found.low + found.high) / 2 + ((len(lines) - 1) / 2 - at) * LINE_IN / cell[1]
                    axis.text((found.left + found.right) / 2, y, line, color=ink, rotation=turned, **LABEL)
                break


def _square(across: int, up: int, colour: str, hatch: str = "") -> Rectangle:
    return Rectangle((across - 0.5, up - 0.5), 1, 1, fc=colour, hatch=hatch, ec="white", lw=0.25)


def _room(mask: Any, text: str, turned: float, size: tuple[float, float]) -> Place | None:
    """The largest rectangle of cells, each of that size, that holds the text."""
    lines = text.split("\n")
    needed = LETTER_IN * max(map(len, lines)), LINE_IN * len(lines)
    across, up = needed[::-1] if turned else needed
    fitting = [
        ((one.right - one.left + 1) * (one.high - one.low + 1), one)
        for one in _rectangles(mask)
        if (one.right - one.left + 1) * size[0] >= across and (one.high - one.low + 1) * size[1] >= up
    ]
    return max(fitting, key=lambda one: one[0])[1] if fitting else None


def _rectangles(mask: Any) -> Iterator[Place]:
    """Every rectangle of cells that are all in the mask."""
    levels, columns = mask.shape
    for low, left in itertools.product(range(levels), range(columns)):
        for high, right in itertools.product(range(low, levels), range(left, columns)):
            if mask[low : high + 1, left : right + 1].all():
                yield Place(left, right, low, high)


def _boundary(ratio: Any) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Both ends of each edge between measured cells on either side of 1x."""
    faster = np.where(np.isnan(ratio), np.nan, ratio >= 1)
    for (y, x), one in np.ndenumerate(faster):
        if x + 1 < faster.shape[1] and {one, faster[y, x + 1]} == {0.0, 1.0}:
            yield (x + 0.5, y - 0.5), (x + 0.5, y + 0.5)
        if y + 1 < faster.shape[0] and {one, faster[y + 1, x]} == {0.0, 1.0}:
            yield (x - 0.5, y + 0.5), (x + 0.5, y + 0.5)


def _key(drawn: Drawing) -> None:
    """The colours with the ratios between them."""
    axis = drawn.add_axes((0.2, 0.26 / HEIGHT_IN, 0.6, 0.15 / HEIGHT_IN))
    for at, colour in enumerate(COLOURS):
        axis.add_patch(_square(at, 0, colour))
    axis.axvline(STEPS.index(1.0) + 0.5, color=INK, lw=2.2)
    axis.set_xlim(-0.5, len(COLOURS) - 0.5)
    axis.set_ylim(-0.5, 0.5)
    axis.set_xticks([at + 0.5 for at in range(len(STEPS))], [f"{step:g}×" for step in STEPS], fontsize=TICK)
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
    axis.text(-0.7, 0, "dense faster", ha="right", va="center", fontsize=TICK)
    axis.text(len(COLOURS) - 0.3, 0, "sparse faster", ha="left", va="center", fontsize=TICK)
