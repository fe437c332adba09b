from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from nnzbench.report.draw import style


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """Every figure saved, by its stem."""
    saved: dict[str, Figure] = {}
    monkeypatch.setattr(style, "save", lambda figure, path: saved.update({path.stem: figure}))
    return saved
