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
    if request.node.get_closest_marker("figures") is None:
        monkeypatch.setattr(style, "save", _draft)
