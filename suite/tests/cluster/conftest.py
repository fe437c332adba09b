from __future__ import annotations

from types import SimpleNamespace

import pytest
from fake_cluster import Ticking

from nnzbench.cluster import scheduler, worker


@pytest.fixture
def clock(monkeypatch, tmp_path):
    made = Ticking()
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scheduler, "POLL_S", 0.0)
    monkeypatch.setattr(scheduler, "MEET_S", 0.0)
    for module in (scheduler, worker):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=made))
    return made
