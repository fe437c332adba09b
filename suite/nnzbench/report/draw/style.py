"""How figures look: one colour and marker per kernel everywhere, light background, bytes that do not change."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from nnzbench.core import paths

# Okabe and Ito's palette, told apart under the common colour-vision deficiencies; its yellow darker, for white paper.
PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#A89600", "#0072B2", "#D55E00", "#CC79A7")
ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE = PALETTE
INK, MUTED, BAND, BAR = "#1f2328", "#6e7781", "#f3f5f7", "#d5dae0"

# Paul Tol's muted scheme, told apart under the common colour-vision deficiencies, and none of the kernels' colours.
GPU_COLOURS = (
    "#332288", "#CC6677", "#117733", "#882255", "#44AA99", "#999933", "#AA4499", "#88CCEE", "#B08D00", "#661100",
    "#888888",
)  # fmt: skip


class Look(NamedTuple):
    """Colour (`#rrggbb`) and marker (Matplotlib's letter)."""

    colour: str
    marker: str


LOOKS = {
    "sputnik": Look(BLUE, "o"),
    "sputnik_sddmm": Look(BLUE, "h"),
    "sparse_softmax": Look(BLUE, "p"),
    "sparsert": Look(VERMILLION, "s"),
    "merge_spmm": Look(ORANGE, "D"),
    "aspt": Look(YELLOW, "D"),
    "aspt_sddmm": Look(YELLOW, "D"),
    "sparsert_conv": Look(VERMILLION, "s"),
    "sparsert_paper": Look(VERMILLION, "D"),
    "sparsert_conv_paper": Look(VERMILLION, "D"),
    "sparsert_unbalanced": Look(SKY, "v"),
    "sparsert_fixed": Look(ORANGE, "P"),
    "sparsert_rolled": Look(PURPLE, "X"),
    "sparsert_pattern": Look(GREEN, "p"),
    "row_stream": Look(GREEN, "^"),
    "panel": Look(PURPLE, "d"),  # superseded by `ring`: its recorded rows are drawn as before
    "flash_llm": Look(ORANGE, "X"),
    "ring": Look(SKY, "p"),
    "spinfer": Look(GREEN, "P"),
    "tensor_spmm": Look(VERMILLION, "h"),
    "tensor_spmm_tf32": Look(YELLOW, "h"),
    "delta_spmv": Look(SKY, "h"),
    "macko": Look(PURPLE, "X"),
    "venom": Look(YELLOW, "X"),
    "ring_sddmm": Look(SKY, "D"),
    "balanced": Look(PURPLE, "P"),
    "eie": Look(ORANGE, "h"),
    "direct_conv": Look(GREEN, "X"),
    "cusparse": Look(ORANGE, "v"),
    "cusparselt": Look(ORANGE, "<"),
    "cublas": Look(INK, "_"),
    "cublaslt": Look(SKY, "_"),
    "cudnn": Look(INK, "_"),
    "cublas_bias_relu": Look(INK, "_"),
    "dense_attention": Look(INK, "_"),
    "cudnn_attention": Look(INK, "_"),
    "sparse_transformer": Look(BLUE, "o"),
    "dense_transformer": Look(INK, "_"),
    "sparse_mobilenet": Look(BLUE, "o"),
    "dense_mobilenet": Look(INK, "_"),
    "depthwise_conv": Look(GREEN, "*"),
    "row_stream_bias_relu": Look(PURPLE, "d"),
    "sparse_attention": Look(SKY, ">"),
    "sputnik_ablation": Look(VERMILLION, "H"),
    "sputnik_bias_relu": Look(GREEN, "*"),
    "sputnik_sddmm_ablation": Look(YELLOW, "8"),
    "sputnik_transposed": Look(PURPLE, "d"),
    "untuned": Look(YELLOW, "8"),
}
"""By kernel, in the order of legends; one that is not here gets a look from its name (`look`)."""
_SPARE = (Look(PURPLE, "d"), Look(GREEN, "*"), Look(YELLOW, "8"), Look(SKY, ">"), Look(VERMILLION, "H"))


def look(kernel: str) -> Look:
    """The kernel's look; one that has none in `LOOKS` gets a look from its name, the same in every figure."""
    return LOOKS.get(kernel) or _SPARE[zlib.crc32(kernel.encode()) % len(_SPARE)]


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
    "axes.titley": 1.0,  # searched for, it has all labels laid out once more
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
        if form == "svg":
            partial.write_text(smaller(partial.read_text(encoding="utf-8")), encoding="utf-8")


def smaller(svg: str) -> str:
    """The same picture in four fifths of the letters: without indentation, empty metadata and ids that nothing refers
    to; coordinates in hundredths of a point; the style of many marks said once. What a text says is left alone."""
    named = set(re.findall(r"#([\w.-]+)", svg))

    def tag(found: re.Match[str]) -> str:
        plain = re.sub(r' id="([^"]*)"', lambda one: one[0] if one[1] in named else "", found[0]).replace(" \n", "\n")
        return re.sub(r"\d+\.\d{3,}", lambda one: f"{float(one[0]):.2f}".rstrip("0").rstrip("."), plain)

    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<[^>]*>", tag, re.sub(r">\s*\n\s*<", ">\n<", svg))
    return _MARKS.sub(lambda found: f"<g{found[1]}>\n{found[0].replace(found[1], '')}\n</g>", svg)


_MARKS = re.compile(r'<use [^>]*?( style="[^"]*")/>(?:\n<use [^>]*?\1/>){9,}')
"""Ten marks or more, one after another, that look alike."""
