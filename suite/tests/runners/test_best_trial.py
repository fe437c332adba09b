"""The trial of `nnzbench best` against trying everything, over a fake device."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from fake_records import by_law
from fakes import FakeDevice, FakeKernel
from own_files import matrix, smtx

from nnzbench.advise.recorded import trial_rows
from nnzbench.bench.session import Session
from nnzbench.data.matrices import index
from nnzbench.results.records.folder import Results
from nnzbench.results.records.record import append

RUNNER = "best_trial"


@pytest.fixture
def trial(runner, monkeypatch, tmp_path):
    """The runner; a small matrix is in the place of every real one."""
    (tmp_path / "w.smtx").write_text(smtx(matrix()))
    monkeypatch.setattr(runner, "find_real", lambda source: tmp_path / "w.smtx")
    return runner


@pytest.fixture
def ask(trial, monkeypatch, tmp_path):
    """Asks about the first case on a fake device."""
    variants = {f"v{at}": (20.0 - at, "") for at in range(8)}
    weights = {"weights": np.zeros(2000, np.int8)}
    known = {"cublas": FakeKernel("cublas", **weights), "sputnik": FakeKernel("sputnik", variants, **weights)}
    monkeypatch.setattr(trial, "baselines", lambda op: tuple(known))
    device = FakeDevice(gpu="nvidia-h200")
    session = Session(device, known, clock=device.timer.clock, _warm=True)

    def asked(*times, ends=math.inf):
        with Results(tmp_path / "out", True, False, {}, print) as results:
            return trial.ask(trial.read_cases()[0], times, session, results, None, session.clock() + ends)

    return asked


def test_the_cases_are_real_matrices_that_the_index_knows_and_random_ones(trial):
    cases = trial.read_cases()
    real, random = ([one for one in cases if one.real is kind] for kind in (True, False))
    assert (len({one.matrix for one in real}), len({one.matrix for one in random})) == (42, 20)
    assert all(index.dlmc()[one.matrix].nnz > 0 for one in real)


def test_a_random_matrix_is_asked_about_as_best_takes_it_and_no_estimate_is_made_of_it(trial, ask):
    layer = trial.layer_of(trial.Case("12x8@0.75", "f16", 2))
    assert (layer.matrix.m, layer.matrix.k, layer.matrix.nnz, layer.dtype) == (12, 8, 24, "f16")
    real = ask(0.02)
    one = replace(real, matrix="12x8@0.75")
    assert trial_rows([asdict(one)]).empty
    (again,) = trial.with_estimates([one], [trial.paths.reports()])
    assert again == one
    assert "| layers of language models | 0.02 | 1 |" in trial.summary([one, real])


def test_a_matrix_is_asked_about_within_the_time_and_without_a_limit(ask):
    one = ask(0.005, 0.1)
    assert one.best == "sputnik v7"
    assert one.best_us == pytest.approx(13.0)
    assert one.sooner_us["0.005"] > one.found_us > one.best_us
    assert one.losses() == pytest.approx({0.005: one.sooner_us["0.005"] / 13 - 1, 0.1: one.found_us / 13 - 1})
    assert one.tried < one.candidates == 9
    assert one.measured == pytest.approx({"cublas": 10.0, "sputnik": 13.0})


def test_a_matrix_that_was_cut_is_none_and_is_measured_anew(ask):
    """Of its rows of the run that was cut none is taken for a row of this one."""
    assert ask(1.0, ends=0.02) is None
    again = ask(1.0)
    assert again.candidates == 9
    assert again.found == again.best == "sputnik v7"


def test_what_was_measured_is_summed_up_beside_estimates_that_never_saw_it(trial, ask, tmp_path, monkeypatch):
    one = ask(0.02)
    monkeypatch.setattr(trial, "find_real", lambda source: None)  # which needs the matrices no more
    older = {**asdict(one), "found": "of an earlier round"}
    lines = (json.dumps(older), json.dumps(asdict(one)), '{"matrix": "killed here", "measured": {}')
    (tmp_path / trial.LINES).write_text("\n".join(lines))
    assert trial.read(tmp_path) == [one]
    laws = {("cublas", "f32_x"): lambda m, k, n, nnz: 5.0, ("sputnik", "v"): lambda m, k, n, nnz: 2 + 1e-6 * nnz * n}
    append(tmp_path / "nvidia-h200/sputnik_rnn/records.csv", by_law(laws, "sputnik_rnn", *[(8, 16, 64)] * 3))
    (known,) = trial.with_estimates([one], [tmp_path])
    assert set(known.estimated) == {"cublas", "sputnik"}
    assert known.estimated_beside == known.estimated  # there is no other matrix
    found = trial.errors([known])
    assert found["deciding"].all()
    assert found["without"].to_numpy() == pytest.approx(
        [abs(known.estimated[name] / known.measured[name] - 1) for name in found["kernel"]]
    )
    text = trial.summary([known])
    assert "over 1 real DLMC matrices" in text
    loss = f"{100 * (one.found_us / one.best_us - 1):.1f} %"
    assert f"| real DLMC matrices | 0.02 | 1 | {loss} | {loss} | 0 |" in text
    assert "nan" not in text


def test_a_run_goes_on_where_it_was_cut_and_ends_within_its_limit(trial, tmp_path, monkeypatch, capsys):
    """The processor stands for the GPU: everything but times."""
    cases = [trial.Case(trial.read_cases()[0].matrix, "f32", n) for n in (4, 5)]
    monkeypatch.setattr(trial, "read_cases", lambda: cases)
    monkeypatch.setattr(trial, "baselines", lambda op: ("row_stream",))
    out = tmp_path / "run"
    trial.run(cases, [15.0], 10.0, out, "cpu")  # a matrix may take 15 s and more
    assert "2 of 2 matrices left to the next run" in capsys.readouterr().out
    trial.run(cases[:1], [1.0], 3600.0, out, "cpu")
    with (out / trial.LINES).open("a") as file:
        file.write('{"matrix": "killed here", "measured": {}')
    trial.run(cases, [1.0], 3600.0, out, "cpu")
    assert [(found.n, found.gpu, found.candidates) for found in trial.read(out)] == [(4, "cpu", 1), (5, "cpu", 1)]
    assert capsys.readouterr().out.count("beyond the budget") == 2


def test_without_the_matrices_it_says_so(trial, monkeypatch, capsys):
    monkeypatch.setattr(trial, "find_real", lambda source: None)
    monkeypatch.setattr("sys.argv", ["best_trial.py"])
    with pytest.raises(SystemExit, match="2"):
        trial.main()
    assert "is not on disk: run `nnzbench fetch dlmc`" in capsys.readouterr().err
