"""Balanced Sparsity's figure 7 redrawn: which weights of one matrix stay under three kinds of pruning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nnzbench.facts.results import percent
from nnzbench.matrices import prune
from nnzbench.matrices.formats import CSR
from nnzbench.report.draw import style
from nnzbench.report.page_spec import SectionSpec, Shown, View
from nnzbench.report.text.tables import markdown, number

SIZE, WINDOW, CORNER = 1500, 64, 640
"""Rows and columns of the matrix, and of the square that is drawn, which starts at that row and column."""
SPARSITY = 0.9
RANGE = 32
"""Columns of a balance range: two in the square, as in the paper's figure."""
BLOCK = 8


@dataclass(frozen=True)
class WeightMap:
    """The square of one pruned matrix."""

    name: str
    kept: NDArray[np.bool_]
    """Which of its weights are left, shape (64, 64)."""
    sparsity: float
    """Of the whole matrix."""
    colour: str

    @property
    def per_range(self) -> NDArray[np.int64]:
        """Weights left in each range of 32 columns of each row, shape (64, 2)."""
        return np.asarray(self.kept.reshape(WINDOW, -1, RANGE).sum(axis=2), dtype=np.int64)

    @property
    def per_block(self) -> NDArray[np.int64]:
        """Weights left in each 8x8 block, shape (8, 8)."""
        cells = self.kept.reshape(WINDOW // BLOCK, BLOCK, WINDOW // BLOCK, BLOCK)
        return np.asarray(cells.sum(axis=(1, 3)), dtype=np.int64)


def weight_maps() -> list[WeightMap]:
    """The same square of one matrix of random normal weights, pruned to the same sparsity in three ways."""
    weights = np.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=np.float32)
    return [
        _map("(a) random sparsity", prune.magnitude(weights, SPARSITY), style.ORANGE),
        _map("(b) balanced sparsity", prune.balanced(weights, SPARSITY, -(-SIZE // RANGE)), style.PURPLE),
        _map("(c) block sparsity", prune.block(weights, SPARSITY, BLOCK, BLOCK), style.SKY),
    ]


def _map(name: str, pruned: CSR, colour: str) -> WeightMap:
    part = slice(CORNER, CORNER + WINDOW)
    return WeightMap(name, pruned.to_dense()[part, part] != 0, pruned.sparsity, colour)


def draw(maps: list[WeightMap]) -> Figure:
    """Three squares beside each other; the dotted line of (b) parts its two ranges."""
    figure = Figure(figsize=(10.4, 4.35))
    for place, one in enumerate(maps):
        axis = figure.add_axes((0.035 + 0.327 * place, 0.05, 0.29, 0.69))
        axis.imshow(one.kept, cmap=ListedColormap(["white", one.colour]), vmin=0, vmax=1, interpolation="nearest")
        axis.set_xticks([])
        axis.set_yticks([])
        for spine in axis.spines.values():
            spine.set_visible(True)
        if one.name.startswith("(b)"):
            axis.axvline(RANGE - 0.5, color=style.INK, ls=":", lw=1.2)
        axis.set_title(one.name, pad=4)
    figure.text(0.012, 0.975, "Which weights stay after pruning", fontsize=12, fontweight="bold", va="top")
    caption = (
        f"A {WINDOW}×{WINDOW} square of a {SIZE}×{SIZE} matrix of generated normal weights (seed 0) at "
        f"{percent(SPARSITY)} zeros; coloured weights stay.\nNothing here is measured, so it is the same on every GPU."
    )
    figure.text(0.012, 0.905, caption, fontsize=8.5, color=style.MUTED, va="top")
    return figure


def show(view: View[Any]) -> Shown:
    """The figure, and the table of what its squares hold; the page's data are not in it."""
    maps = weight_maps()
    rows = []
    for one in maps:
        ranges, blocks = one.per_range, one.per_block
        rows.append(
            [
                one.name,
                f"{number(100 * one.sparsity, 2)} %",
                str(int(one.kept.sum())),
                f"{ranges.min()} to {ranges.max()}",
                f"{blocks.min()} to {blocks.max()}",
            ]
        )
    header = ["pruning", "zeros of the matrix", "weights in the square"]
    header += [f"per row and range of {RANGE} columns", f"per {BLOCK}×{BLOCK} block"]
    text = (
        "Drawn from generated weights, not from records: the paper's trained matrix is not public. Balanced "
        "pruning leaves the same number in every range of every row and looks as random pruning does otherwise."
    )
    return Shown(draw(maps), text, (markdown(header, rows),))


SECTION: SectionSpec[Any] = SectionSpec(
    "weight_maps",
    "Weights left by random, balanced and block pruning in a 64×64 square of one matrix",
    show,
    heading="Weight maps (figure 7)",
    once=True,
)
