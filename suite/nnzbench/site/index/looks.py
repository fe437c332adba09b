"""The looks of figures for the browser: the same colour and marker per series, as CSS colours and polygons."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.markers import MarkerStyle

from nnzbench.report.data.series import BEST, Series
from nnzbench.report.draw.figures import series_line
from nnzbench.report.draw.style import BAR, INK

DARK_GROUND, DARK_INK, LIGHT_GROUND = "#12161c", "#e6eaf0", "#ffffff"
LEAST_CONTRAST = 3.0
"""What WCAG 2 asks of graphics against their ground."""
DASH = ((-0.5, -0.11), (0.5, -0.11), (0.5, 0.11), (-0.5, 0.11))
_STRETCH = {"f16": (1.0, 0.5), "tf32": (0.5, 1.0), "bf16": (0.8, 0.45), "i8": (0.55, 0.55)}
"""Width and height of a sparse kernel's marker in other arithmetic than fp32: flat, narrow, small."""
CIRCLE = tuple((0.5 * math.cos(i * math.pi / 12), 0.5 * math.sin(i * math.pi / 12)) for i in range(24))


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio of two colours, 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def series_look(series: Series) -> dict[str, Any]:
    """`light` and `dark` colours, whether the marker is `hollow`, and its `shape` (x, y pairs in -0.5 to 0.5)."""
    if series == BEST:
        return {"light": BAR, "dark": "#4a5563", "hollow": False, "shape": _rounded(CIRCLE)}
    line = series_line(series)
    colour = str(line.get_markeredgecolor() if _edge_is_look(series) else line.get_markerfacecolor())
    dark = colour if contrast(colour, DARK_GROUND) >= LEAST_CONTRAST else DARK_INK
    shape = _narrowed(_shape(str(line.get_marker())), series)
    return {"light": colour, "dark": dark, "hollow": series.default, "shape": shape}


def _narrowed(shape: list[list[float]], series: Series) -> list[list[float]]:
    """The marker by arithmetic: one page shows a kernel's fp32 beside its fp16, which figures of one type need not."""
    if series.dense and series.math != "i8":  # their colours tell the arithmetic
        return shape
    wide, high = _STRETCH.get(series.math, (1.0, 1.0))
    return _rounded((x * wide, y * high) for x, y in shape)


def _edge_is_look(series: Series) -> bool:
    """Dashes and hollow markers are told by their edge, filled ones have a white one."""
    return series.default or series_line(series).get_marker() == "_"


def _shape(marker: str) -> list[list[float]]:
    if marker == "_":
        return _rounded(DASH)
    if marker == "o":
        return _rounded(CIRCLE)
    style = MarkerStyle(marker)
    points = np.asarray(style.get_path().transformed(style.get_transform()).to_polygons()[0])
    return _rounded((float(x), -float(y)) for x, y in points[:-1])  # y grows downwards in a browser


def _rounded(points: Any) -> list[list[float]]:
    return [[round(x, 3) + 0.0, round(y, 3) + 0.0] for x, y in points]


def _luminance(colour: str) -> float:
    parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


THEME = {"ink": INK, "ground": LIGHT_GROUND, "dark_ink": DARK_INK, "dark_ground": DARK_GROUND}
"""The colours that looks are chosen against."""
