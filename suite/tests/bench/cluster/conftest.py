from __future__ import annotations

from types import SimpleNamespace

import pytest
from fake_cluster import Ticking

from nnzbench.bench.cluster import run, worker


@pytest.fixture
def clock(monkeypatch, tmp_path):
    made = Ticking()
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(run, "POLL_S", 0.0)
    monkeypatch.setattr(run, "MEET_S", 0.0)
    monkeypatch.setattr(worker.tempfile, "gettempdir", lambda: str(tmp_path))
    for module in (run, worker):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=made))
    return made
