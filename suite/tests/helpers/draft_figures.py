"""Figures in draft, where the fixture is imported, and pages alone: most tests are of the words and numbers of one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

from nnzbench.core import paths
from nnzbench.report.draw import style
from nnzbench.site import build, coverage


@contextmanager
def pages_alone() -> Iterator[None]:
    """A build draws the pages of its experiments and not what stands above them: the verdicts on claims, the rivals'
    and the coverage page, index.html. These have tests of their own, and take most of the time of a page.
    """

    def without(module: ModuleType, **others: Any) -> SimpleNamespace:
        return SimpleNamespace(**{**vars(module), "write": lambda *arguments: None, **others})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "MANY", 1000)  # other processes would draw everything
        patch.setattr(build, "claims", without(build.claims, judge=lambda records: []))
        for name in ("claims_page", "peers_page", "coverage", "html"):
            patch.setattr(build, name, without(getattr(build, name)))
        yield


_DRAWN: set[str] = set()
"""Titles of figures that this process has laid out."""


def draft(figure: Figure, path: Path) -> None:
    """Lays out and draws everything once, which finds what can't be drawn, onto nothing: pixels and paths are most of
    it, and the same figure of other records the most of the rest."""
    title = figure.texts[0].get_text() if figure.texts else str(path)
    if title not in _DRAWN:
        figure.draw_without_rendering()
        _DRAWN.add(title)
    with paths.replacing(path) as partial:  # as figures are saved: a link is not followed
        partial.write_bytes(b"")


@pytest.fixture(autouse=True, scope="module")
def texts_of_pages() -> Iterator[None]:
    """Frames hold texts as they do while `nnzbench report` draws: Python's, which take a third less time here. Of what
    a GPU's records lack two experiments are counted: all cells of the catalogue take seconds."""
    few = {name: coverage.EXPERIMENTS[name] for name in ("sparsert_table1", "sparsert_table3")}
    with pd.option_context(*build._QUICK_TEXTS), pytest.MonkeyPatch.context() as patch:
        patch.setattr(coverage, "EXPERIMENTS", few)
        yield


@pytest.fixture(autouse=True)
def figures_in_draft(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All figures, or all but those in the folders that the marker `figures` names; none where it names no folder.

    With its `kind` the files of the others are empty: pixels take twice the time of paths, and show no more.
    """
    marker = request.node.get_closest_marker("figures")
    real, folders = style.save, marker.args if marker else ()
    kind = marker.kwargs.get("kind", "") if marker else ""
    if kind:
        savefig = Figure.savefig

        def of_kind(figure: Figure, file: Path, *, format: str, **options: Any) -> None:
            savefig(figure, file, format=format, **options) if format == kind else file.write_bytes(b"")

        monkeypatch.setattr(Figure, "savefig", of_kind)
    if marker is not None and not folders:
        return

    def save(figure: Figure, path: Path) -> None:
        (real if path.parent.name in folders else draft)(figure, path)

    monkeypatch.setattr(style, "save", save)
