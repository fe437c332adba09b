from __future__ import annotations

from types import SimpleNamespace

import pytest
from fake_cluster import Ticking

from nnzbench.cluster import crew, worker


@pytest.fixture
def clock(monkeypatch, tmp_path):
    made = Ticking()
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(crew, "POLL_S", 0.0)
    monkeypatch.setattr(crew, "MEET_S", 0.0)
    for module in (crew, worker):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=made))
    return made
