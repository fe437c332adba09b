"""A figure from its declaration: each kind is drawn by a module of its own."""

from __future__ import annotations

import functools

from matplotlib.figure import Figure as Drawing

from nnzbench.report.draw import style
from nnzbench.report.page import Drawn, Figure
from nnzbench.report.view import View


@functools.singledispatch
def drawing(figure: Figure, view: View) -> Drawing | None:
    """The figure of this kind; None for nothing to show."""
    return None


@drawing.register
def _(figure: Drawn, view: View) -> Drawing | None:
    return figure.draw(view, f"{figure.title} on {view.gpu}")


def save(figure: Figure, view: View) -> bool:
    """Writes `<name>.svg` beside the records; False, and no file, for nothing to show."""
    path = view.results.folder / f"{figure.name}.svg"
    with style.styled():
        drawn = drawing(figure, view)
        if drawn is None:
            path.unlink(missing_ok=True)
            return False
        style.save(drawn, path)
    return True
