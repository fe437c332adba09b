"""The trial of `nnzbench best` against trying everything, over a fake device."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from fakes import FakeDevice, FakeKernel
from own_files import matrix, smtx

from nnzbench import paths
from nnzbench.advise import estimate
from nnzbench.matrices import index
from nnzbench.measure.session import Session
from nnzbench.problems.tables import dlmc_selection
from nnzbench.records.folder import Results


@pytest.fixture(scope="module")
def trial():
    path = Path(__file__).resolve().parents[3] / "runners" / "best_trial.py"
    spec = importlib.util.spec_from_file_location("best_trial", path)
    module = sys.modules["best_trial"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_matrices_are_unseen_and_spread(trial):
    entries = dlmc_selection()
    seen = {one.path for one in entries[::2]}
    chosen = trial.choose(entries, seen, 42)
    assert len({one.path for one in chosen}) == 42
    assert not seen & {one.path for one in chosen}
    assert len({one.model for one in chosen}) == 2
    assert len({one.method for one in chosen}) >= 3
    assert len({one.target_sparsity for one in chosen}) >= 4
    assert chosen == trial.choose(entries, seen, 42)


def test_a_matrix_is_asked_about_within_the_time_and_without_a_limit(trial, monkeypatch, tmp_path):
    entry = next(iter(index.dlmc().values()))
    (tmp_path / "w.smtx").write_text(smtx(matrix()))
    monkeypatch.setattr(trial, "find_real", lambda source: tmp_path / "w.smtx")
    variants = {f"v{at}": (20.0 - at, "") for at in range(8)}
    known = {"cublas": FakeKernel("cublas"), "sputnik": FakeKernel("sputnik", variants)}
    monkeypatch.setattr(trial, "rivals", lambda op: tuple(known))
    device = FakeDevice()
    session = Session(device, known, clock=device.timer.clock, _warm=True)
    recorded = estimate.load("nvidia-h200", [paths.reports()])
    with Results(tmp_path / "out", True, False, {}, print) as results:
        one = trial.ask(entry, "f32", 32, 0.02, session, results, recorded)
    assert one.best == "sputnik v7"
    assert one.best_us == pytest.approx(13.0)
    assert one.found_us > one.best_us
    assert "cublas" in one.estimates
    text = trial.summary([one])
    assert "at worst" in text
    assert "Estimates without the GPU are off by" in text
