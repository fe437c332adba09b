"""The crossover of a layer as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

from nnzbench.advise.answer import Answer, crossover_text, math_words
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.report.draw.style import BLUE, INK, MUTED, VERMILLION, save, styled

MOST = 8
"""Layers drawn into one figure."""
ENDINGS = frozenset({".png", ".svg", ".pdf"})
"""What a file's name may end in; another dot is part of a layer's name."""


def stem_of(file: Path) -> Path:
    """The name without the ending of a figure: `layer.q_proj` keeps its dot."""
    return file.with_suffix("") if file.suffix.lower() in ENDINGS else file


def plot(answers: Sequence[Answer], stem: Path) -> list[Path]:
    """Writes `stem.png` and `stem.svg`. Raises `MatrixError` where no answer has times of both sides."""
    shown = [answer for answer in answers if answer.curve][:MOST]
    if not shown:
        raise MatrixError(f"{stem}: nothing to plot, as no layer has both a dense and a sparse time.")
    with styled():
        figure = Figure(figsize=(7.2, 3.4 * len(shown)), layout="constrained")
        for axis, answer in zip(figure.subplots(len(shown), squeeze=False)[:, 0], shown, strict=True):
            _draw(axis, answer)
        png, svg = (stem.with_name(f"{stem.name}{ending}") for ending in (".png", ".svg"))
        for path in (png, svg):
            save(figure, path)
    return [png, svg]


def title(answer: Answer) -> str:
    """What the figure shows, in words."""
    name, found = f"{answer.label}, {100 * answer.sparsity:.1f} % zeros", crossover_text(answer)
    return f"{name}: {found}" if found else name


def _draw(axis: Axes, answer: Answer) -> None:
    widths = [n for n, _, _ in answer.curve]
    style = "--" if answer.estimated else "-"
    axis.plot(widths, [dense for _, dense, _ in answer.curve], style, color=VERMILLION, marker="s", ms=4, label="dense")
    axis.plot(widths, [sparse for _, _, sparse in answer.curve], style, color=BLUE, marker="o", ms=4, label="sparse")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.xaxis.set_minor_locator(NullLocator())
    if answer.crossover and answer.crossover.n is not None:
        axis.axvline(answer.crossover.n, color=MUTED, lw=1)
    axis.set_title(title(answer), color=INK)
    axis.set_xlabel(
        f"N, columns of the dense operand; {answer.where}, {math_words(answer.dtype)}, the fastest kernel of each side"
    )
    how = "estimated" if answer.estimated else "measured"
    axis.set_ylabel(f"microseconds, hot, {how}")
    axis.grid(True)
    axis.legend()
