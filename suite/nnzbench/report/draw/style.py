"""How figures look: one colour and marker per kernel everywhere, light background, bytes that do not change."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from nnzbench import paths
from nnzbench.report.draw.colours import LOOKS, Look

# Okabe and Ito's palette, told apart under the common colour-vision deficiencies; its yellow darker, for white paper.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#A89600", "#0072B2", "#D55E00", "#CC79A7"
INK, MUTED, BAND, BAR = "#1f2328", "#6e7781", "#f3f5f7", "#d5dae0"

PALETTE = {
    "black": BLACK, "orange": ORANGE, "sky": SKY, "green": GREEN, "yellow": YELLOW, "blue": BLUE,
    "vermillion": VERMILLION, "purple": PURPLE, "ink": INK,
}  # fmt: skip
"""Colours by the names that looks give."""
# Paul Tol's muted scheme, told apart under the common colour-vision deficiencies, and none of the kernels' colours.
GPU_COLOURS = (
    "#332288", "#CC6677", "#117733", "#882255", "#44AA99", "#999933", "#AA4499", "#88CCEE", "#B08D00", "#661100",
    "#888888",
)  # fmt: skip
_SPARE = (Look(PURPLE, "d"), Look(GREEN, "*"), Look(YELLOW, "8"), Look(SKY, ">"), Look(VERMILLION, "H"))


def look(kernel: str) -> Look:
    """The kernel's look, in `#rrggbb`; one that has none in `LOOKS` gets a look from its name, in every figure."""
    given = LOOKS.get(kernel)
    if given is None:
        return _SPARE[zlib.crc32(kernel.encode()) % len(_SPARE)]
    return Look(PALETTE.get(given.colour, given.colour), given.marker)


_RC: Any = {
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.dpi": 100,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 9,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#e4e7eb",
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "legend.frameon": False,
    "svg.hashsalt": "nnzbench",
    "svg.fonttype": "none",
    "text.parse_math": False,
}


@contextmanager
def styled() -> Iterator[None]:
    """Draws with this style whatever the user's matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC)
        yield


def save(figure: Figure, path: Path) -> None:
    """Writes an SVG (or a PNG, by its ending) without dates or program versions, so that equal figures are equal bytes.

    Text of an SVG stays text.
    """
    form = path.suffix[1:]
    metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    with paths.replacing(path) as partial:
        figure.savefig(partial, format=form, dpi=150, metadata=metadata)
