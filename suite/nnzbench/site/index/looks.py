"""The looks of figures for the browser: the same colour and marker per series, as CSS colours and polygons."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.markers import MarkerStyle

from nnzbench.facts.selector import Selector
from nnzbench.kernels.registry import about
from nnzbench.report.draw import style
from nnzbench.report.draw.style import BAR, INK

DARK_GROUND, DARK_INK, LIGHT_GROUND = "#12161c", "#e6eaf0", "#ffffff"
LEAST_CONTRAST = 3.0
"""What WCAG 2 asks of graphics against their ground."""
_SHADES = {"tf32": ("#6e7781", "#2f8f9d"), "f16": ("#8a5a00", "#c77d1e")}
"""Of dense libraries by arithmetic: without and with a search of algorithms."""
_STRETCH = {"f16": (1.0, 0.5), "tf32": (0.5, 1.0), "bf16": (0.8, 0.45), "i8": (0.55, 0.55)}
"""Width and height of a marker in other arithmetic than fp32: flat, narrow, small."""
_SHAPES = {
    "_": ((-0.5, -0.11), (0.5, -0.11), (0.5, 0.11), (-0.5, 0.11)),
    "o": tuple((0.5 * math.cos(i * math.pi / 12), 0.5 * math.sin(i * math.pi / 12)) for i in range(24)),
}
"""Markers that Matplotlib has no polygon of."""


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio of two colours, 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def look(one: Selector) -> dict[str, Any]:
    """`light` and `dark` colours, whether the marker is `hollow`, and its `shape` (x, y pairs in -0.75 to 0.75)."""
    if not one.kernel:  # the best of several
        return {"light": BAR, "dark": "#4a5563", "hollow": False, "shape": _shape("o", one)}
    given = style.look(one.kernel)
    colour = _SHADES[one.math][about(one.kernel).searched] if one.dense and one.math in _SHADES else given.colour
    dark = colour if contrast(colour, DARK_GROUND) >= LEAST_CONTRAST else DARK_INK
    return {"light": colour, "dark": dark, "hollow": one.default, "shape": _shape(given.marker, one)}


def _shape(marker: str, one: Selector) -> list[list[float]]:
    """One page shows a kernel's fp32 beside its fp16, which figures of one type need not."""
    stretched = not one.dense or one.math not in _SHADES  # those are told by their colour
    wide, high = _STRETCH.get(one.math, (1.0, 1.0)) if stretched else (1.0, 1.0)
    points: Any = _SHAPES.get(marker)
    if points is None:
        drawn = MarkerStyle(marker)
        polygon = np.asarray(drawn.get_path().transformed(drawn.get_transform()).to_polygons()[0])
        points = [(float(x), -float(y)) for x, y in polygon[:-1]]  # y grows downwards in a browser
    return [[round(x * wide, 3) + 0.0, round(y * high, 3) + 0.0] for x, y in points]


def _luminance(colour: str) -> float:
    parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


THEME = {"ink": INK, "ground": LIGHT_GROUND, "dark_ink": DARK_INK, "dark_ground": DARK_GROUND}
"""The colours that looks are chosen against."""
