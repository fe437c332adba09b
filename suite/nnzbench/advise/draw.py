"""A whole checkpoint's sums over its layers, and the crossover of one layer as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

from nnzbench.advise.answer import Answer, crossover_text, math_words
from nnzbench.advise.figures import ratio_text, us_text
from nnzbench.facts.crossover import times_as_fast
from nnzbench.matrices.formats import MatrixError
from nnzbench.report.draw.style import BLUE, INK, MUTED, VERMILLION, save, styled


@dataclass(frozen=True)
class Total:
    """A whole checkpoint at one width: every layer by the kernel of its own verdict."""

    n: int
    layers: int
    best_us: float
    dense_us: float
    best_bytes: int
    dense_bytes: int
    sparse_layers: int
    """Layers whose verdict is a kernel that leaves zeros out."""
    estimated: bool = False
    guesses: int = 0
    """Layers for which one of the two times is a guess."""

    def sentence(self) -> str:
        """The total in words."""
        about = "about " if self.estimated else ""
        best, dense = (us_text(us, self.estimated) for us in (self.best_us, self.dense_us))
        saved = ratio_text(times_as_fast(self.best_us, self.dense_us), self.estimated)
        memory = f"{100 * self.best_bytes / self.dense_bytes:.0f} % of the memory" if self.dense_bytes else "no memory"
        text = (
            f"Sparse wins on {self.sparse_layers} of {self.layers} layers at N = {self.n}: {about}{saved}x faster than "
            f"all dense ({about}{best} for {dense}) in {memory}"
        )
        return text + (f"; a guess for {self.guesses} of them" if self.guesses else "")


def totals(answers: Sequence[Answer]) -> list[Total]:
    """The sums over layers that have both a dense and another time, per width."""
    out = []
    for n in dict.fromkeys(width.n for answer in answers for width in answer.widths):
        pairs = []
        for answer in answers:
            for width in answer.widths:
                dense, chosen = width.baseline(answer.dtype), answer.verdict(width).chosen
                if width.n == n and dense is not None and chosen is not None and width.sparse(answer.dtype) is not None:
                    pairs.append((dense, chosen))
        if pairs:
            out.append(
                Total(
                    n,
                    len(pairs),
                    sum(best.us or 0.0 for _, best in pairs),
                    sum(dense.us or 0.0 for dense, _ in pairs),
                    sum(best.memory_bytes or 0 for _, best in pairs),
                    sum(dense.memory_bytes or 0 for dense, _ in pairs),
                    sum(not best.dense for _, best in pairs),
                    any(answer.estimated for answer in answers),
                    sum(bool(dense.guess or best.guess) for dense, best in pairs),
                )
            )
    return out


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
