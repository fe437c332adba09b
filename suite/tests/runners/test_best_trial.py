"""The trial of `nnzbench best` against trying everything, over a fake device."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import asdict
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
    known = index.dlmc()
    assert len({one.matrix for one in chosen}) == 42
    assert not seen & {one.matrix for one in chosen}
    assert len({known[one.matrix].model for one in chosen}) == 2
    assert len({known[one.matrix].method for one in chosen}) >= 3
    assert len({known[one.matrix].target_sparsity for one in chosen}) >= 4
    assert {(one.dtype, one.n) for one in chosen} == set(trial.CASES)
    assert chosen == trial.choose(entries, seen, 42)


def test_the_cases_are_42_real_matrices_that_the_index_knows(trial):
    cases = trial.read_cases()
    assert len({one.matrix for one in cases}) == 42
    assert all(index.dlmc()[one.matrix].nnz > 0 for one in cases)


@pytest.fixture
def one(trial, monkeypatch, tmp_path):
    """The outcome of a small matrix, in the place of a real one, on a fake device."""
    (tmp_path / "w.smtx").write_text(smtx(matrix()))
    monkeypatch.setattr(trial, "find_real", lambda source: tmp_path / "w.smtx")
    variants = {f"v{at}": (20.0 - at, "") for at in range(8)}
    known = {"cublas": FakeKernel("cublas"), "sputnik": FakeKernel("sputnik", variants)}
    monkeypatch.setattr(trial, "rivals", lambda op: tuple(known))
    device = FakeDevice(gpu="nvidia-h200")
    session = Session(device, known, clock=device.timer.clock, _warm=True)
    with Results(tmp_path / "out" / "part-1", True, False, {}, print) as results:
        return trial.ask(trial.read_cases()[0], 0.02, session, results)


def test_a_matrix_is_asked_about_within_the_time_and_without_a_limit(one):
    assert one.best == "sputnik v7"
    assert one.best_us == pytest.approx(13.0)
    assert one.found_us > one.best_us
    assert one.tried < one.candidates
    assert one.measured == pytest.approx({"cublas": 10.0, "sputnik": 13.0})


def test_what_was_measured_is_summed_up_beside_estimates_that_never_saw_it(trial, one, tmp_path):
    (tmp_path / "out" / "trial-1.jsonl").write_text(json.dumps(asdict(one)) + "\n")
    (again,) = trial.read(tmp_path / "out")
    assert again == one
    (known,) = trial.with_estimates([one], [paths.reports()])
    assert set(known.estimated) == {"cublas", "sputnik"}
    text = trial.summary([known])
    assert "On 1 real DLMC matrices" in text
    assert "at worst" in text
    assert "off by" in text
    assert "None" not in text


def test_rows_of_a_source_can_be_left_out_of_estimates():
    everything = estimate.load("nvidia-h200", [paths.reports()])
    hidden = "dlmc:" + next(
        row.source.removeprefix("dlmc:") for row in everything._frame.itertuples() if row.source.startswith("dlmc:")
    )
    left = estimate.load("nvidia-h200", [paths.reports()], frozenset([hidden]))
    assert len(left._frame) == (everything._frame["source"] != hidden).sum() < len(everything._frame)


def test_a_run_goes_on_where_it_was_cut(trial, one, tmp_path, monkeypatch, capsys):
    """The processor stands for the GPU: everything but times."""
    cases = [trial.Case(one.matrix, "f32", 4), trial.Case(one.matrix, "f32", 5)]
    monkeypatch.setattr(trial, "read_cases", lambda: cases)
    monkeypatch.setattr(trial, "rivals", lambda op: ("row_stream",))
    out = tmp_path / "run"
    trial.run(cases[:1], 1, 1.0, 3600.0, out, "cpu")
    trial.run(cases, 1, 1.0, 3600.0, out, "cpu")
    assert [(found.n, found.gpu, found.candidates) for found in trial.read(out)] == [(4, "cpu", 1), (5, "cpu", 1)]
    assert capsys.readouterr().out.count(" s more") == 2
