"""Figures in draft, where the fixture is imported: most tests of pages are of words, tables and numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from nnzbench import paths
from nnzbench.report.draw import style


def _draft(figure: Figure, stem: Path) -> None:
    """Lays out and draws everything, which finds what can't be drawn, onto nothing: pixels and paths are most of it."""
    figure.draw_without_rendering()
    for kind in (".png", ".svg"):
        with paths.replacing(stem.with_suffix(kind)) as partial:  # as figures are saved: a link is not followed
            partial.write_bytes(b"")


@pytest.fixture(autouse=True)
def figures_in_draft(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All figures, or all but those in the folders that the marker `figures` names; none where it names no folder."""
    marker = request.node.get_closest_marker("figures")
    if marker is not None and not marker.args:
        return
    real, folders = style.save, marker.args if marker else ()

    def save(figure: Figure, stem: Path) -> None:
        (real if stem.parent.name in folders else _draft)(figure, stem)

    monkeypatch.setattr(style, "save", save)
