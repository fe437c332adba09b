"""Where title, caption and legend of a figure stand, and how its file is called."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath

from nnzbench.report.draw.style import MUTED

WIDTH_IN = 10.4
LINE = 160
"""Letters that a line of a caption has room for."""
HINTED = 1.05
"""How much wider letters are drawn in pixels than their outlines are, at most."""
HOLES = " No mark where there is no time: see what is missing."
"""What a caption says of the holes in its figure."""
HOLES_OF_BARS = " No bar where there is no time: see what is missing."


def stem(name: str, policy: str) -> str:
    """File stem of a policy's figure: the hot policy, which the papers report, has the plain name."""
    return name if policy == "hot" else f"{name}_{policy}"


def headed(height: float, title: str, caption: str) -> Figure:
    """A figure `height` inches high with its title and a caption of at most two lines in the top 0.8 inches."""
    figure = Figure(figsize=(WIDTH_IN, height))
    figure.text(0.012, 1 - 0.1 / height, title, fontsize=12, fontweight="bold", va="top")
    figure.text(0.012, 1 - 0.36 / height, caption, fontsize=8.5, color=MUTED, va="top")
    return figure


def legend_below(figure: Figure, handles: Sequence[Artist], labels: Sequence[str], columns: int = 4) -> None:
    """One legend for the whole figure, under all axes."""
    figure.legend(list(handles), list(labels), loc="lower center", ncols=columns, fontsize=8.5)


def retitle(figure: Figure, title: str, found: str, policy: str) -> None:
    """Puts what was found in place of the title, and the title in the caption in place of the policy's meaning.

    The figure's first two texts are its title and its caption, which keep their words where nothing was found. A title
    too long for the figure gets smaller letters.
    """
    if len(figure.texts) < 2:
        return
    if found:
        _swap(figure, title, found, policy)
    heading = figure.texts[0]
    room = 72 * figure.get_size_inches()[0] * (1 - 2 * heading.get_position()[0])
    size = float(heading.get_fontsize())
    width = TextPath((0, 0), heading.get_text(), size=size, prop=heading.get_fontproperties()).get_extents().width
    heading.set_fontsize(size * min(1.0, room / max(HINTED * width, 1.0)))


def _swap(figure: Figure, title: str, found: str, policy: str) -> None:
    caption = figure.texts[1].get_text()
    figure.texts[0].set_text(found)
    if policy and policy in caption:
        figure.texts[1].set_text(caption.replace(policy, f"{title}.", 1))
    else:
        figure.texts[1].set_text(f"{title}. {caption}" if len(title + caption) < LINE else f"{title}.\n{caption}")
