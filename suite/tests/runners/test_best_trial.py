"""The trial of `nnzbench best` against trying everything, over a fake device."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from fakes import FakeDevice, FakeKernel
from own_files import matrix, smtx

from nnzbench import paths
from nnzbench.advise.model import Sizes
from nnzbench.advise.recorded import load, trial_rows
from nnzbench.matrices import index
from nnzbench.measure.session import Session
from nnzbench.problems.tables import dlmc_selection
from nnzbench.records.folder import Results

TRIALS = Path(__file__).resolve().parents[3] / "runners" / "trials"


@pytest.fixture(scope="module")
def trial():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TRIALS))
        yield importlib.import_module("best_trial")
    for name in ("best_trial", "best_trial_cases", "best_trial_page"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def known_cases(trial):
    return importlib.import_module("best_trial_cases")


def test_matrices_are_unseen_and_spread(known_cases):
    entries = dlmc_selection()
    seen = {one.path for one in entries[::2]}
    chosen = known_cases.choose(entries, seen, 42)
    known = index.dlmc()
    assert len({one.matrix for one in chosen}) == 42
    assert not seen & {one.matrix for one in chosen}
    assert len({known[one.matrix].model for one in chosen}) == 2
    assert len({known[one.matrix].method for one in chosen}) >= 3
    assert len({known[one.matrix].target_sparsity for one in chosen}) >= 4
    assert {(one.dtype, one.n) for one in chosen} == set(known_cases.CASES)
    assert chosen == known_cases.choose(entries, seen, 42)


def test_the_cases_are_42_real_matrices_that_the_index_knows(trial):
    cases = trial.read_cases()
    assert len({one.matrix for one in cases}) == 42
    assert all(index.dlmc()[one.matrix].nnz > 0 for one in cases)


@pytest.fixture
def one(trial, known_cases, monkeypatch, tmp_path):
    """The outcome of a small matrix, in the place of a real one, on a fake device."""
    (tmp_path / "w.smtx").write_text(smtx(matrix()))
    for module in (trial, known_cases):
        monkeypatch.setattr(module, "find_real", lambda source: tmp_path / "w.smtx")
    variants = {f"v{at}": (20.0 - at, "") for at in range(8)}
    known = {"cublas": FakeKernel("cublas"), "sputnik": FakeKernel("sputnik", variants)}
    monkeypatch.setattr(trial, "baselines", lambda op: tuple(known))
    device = FakeDevice(gpu="nvidia-h200")
    session = Session(device, known, clock=device.timer.clock, _warm=True)
    with Results(tmp_path / "out" / "part-1", True, False, {}, print) as results:
        return trial.ask(trial.read_cases()[0], 0.02, session, results)


def test_a_matrix_is_asked_about_within_the_time_and_without_a_limit(one):
    assert one.best == "sputnik v7"
    assert one.best_us == pytest.approx(13.0)
    assert one.found_us > one.best_us
    assert one.tried < one.candidates == 9
    assert one.measured == pytest.approx({"cublas": 10.0, "sputnik": 13.0})


def test_what_was_measured_is_summed_up_beside_estimates_that_never_saw_it(trial, one, tmp_path):
    (tmp_path / "out" / "trial-1.jsonl").write_text(json.dumps(asdict(one)) + "\n")
    (again,) = trial.read(tmp_path / "out")
    assert again == one
    (tmp_path / "out" / "trial.jsonl").write_text(json.dumps({**asdict(one), "found": "of an earlier round"}) + "\n")
    assert trial.read(tmp_path / "out") == [one]
    (known,) = trial.with_estimates([one], [paths.reports()])
    assert set(known.estimated) == {"cublas", "sputnik"}
    assert known.estimated_beside == known.estimated  # there is no other matrix
    text = trial.summary([known])
    assert "On 1 real DLMC matrices" in text
    assert "at worst" in text
    assert "off by" in text
    assert "None" not in text


def test_rows_of_a_source_can_be_left_out_of_estimates():
    everything = load("nvidia-h200", [paths.reports()])
    hidden = "dlmc:" + next(
        row.source.removeprefix("dlmc:") for row in everything._frame.itertuples() if row.source.startswith("dlmc:")
    )
    left = load("nvidia-h200", [paths.reports()], frozenset([hidden]))
    assert len(left._frame) == (everything._frame["source"] != hidden).sum() < len(everything._frame)


def test_what_the_trial_measured_of_other_matrices_is_known_to_estimates(trial, one):
    """Fabricated times of neighbouring widths, a fifth above what the published rows say: they are believed."""
    recorded = load("nvidia-h200", [paths.reports()], frozenset([f"dlmc:{one.matrix}"]))
    entry = index.dlmc()[one.matrix]
    before = recorded.models("spmm", "f32")
    widths = (24, 28, 36, 40)
    said = before["cublas", "f32", "hot"].at([Sizes(entry.rows, entry.cols, n, entry.nnz) for n in (*widths, 32)])
    others = [replace(one, n=n, measured={"cublas": 1.2 * float(us)}) for n, us in zip(widths, said[:-1], strict=True)]
    rows = trial_rows(map(asdict, others))
    assert list(rows["n"]) == list(widths)
    here = recorded.joined(rows).models("spmm", "f32")
    found = here["cublas", "f32", "hot"].at([Sizes(entry.rows, entry.cols, 32, entry.nnz)])
    assert float(found[0]) == pytest.approx(1.2 * float(said[-1]), rel=0.07)
    assert here["ring", "f32", "hot"] is before["ring", "f32", "hot"]
    with pytest.raises(ValueError, match="is no time"):
        trial_rows([{**asdict(one), "measured": {"cublas": -1.0}}])


def test_parts_have_each_case_once_and_types_alike(trial):
    cases = trial.read_cases()
    parts = [trial.part_of(cases, part, 2) for part in (1, 2)]
    assert sorted(map(str, parts[0] + parts[1])) == sorted(map(str, cases))
    assert {(one.dtype, one.n) for one in parts[0]} == {("f32", 32), ("f16", 256)}
    assert abs(len(parts[0]) - len(parts[1])) <= 2


@pytest.fixture
def on_the_processor(trial, known_cases, one, tmp_path, monkeypatch):
    """Three cases of one matrix; the processor stands for the GPU: everything but times."""
    cases = [trial.Case(one.matrix, "f32", n) for n in (4, 5, 6)]
    monkeypatch.setattr(known_cases, "read_cases", lambda: cases)
    monkeypatch.setattr(trial, "baselines", lambda op: ("row_stream",))
    return cases, tmp_path / "run"


def test_a_run_goes_on_where_it_was_cut(trial, on_the_processor, capsys):
    cases, out = on_the_processor
    trial.run(cases[:1], 1, 1.0, 3600.0, out, "cpu")
    with (out / "trial-1.jsonl").open("a") as file:
        file.write('{"matrix": "killed here", "measured": {}')
    trial.run(cases[:2], 1, 1.0, 3600.0, out, "cpu")
    assert [(found.n, found.gpu, found.candidates) for found in trial.read(out)] == [(4, "cpu", 1), (5, "cpu", 1)]
    assert capsys.readouterr().out.count("beyond the budget") == 2
    trial.run(cases, 2, 1.0, 3600.0, out, "cpu")  # another part knows of what the first has done
    assert [found.n for found in trial.read(out)] == [4, 5, 6]
    assert len((out / "trial-2.jsonl").read_text().splitlines()) == 1


def test_a_run_ends_within_its_limit(trial, on_the_processor, capsys):
    cases, out = on_the_processor
    trial.run(cases, 1, 15.0, 20.0, out, "cpu")  # a matrix may take 15 s and as long again
    assert "3 of 3 matrices left to the next run" in capsys.readouterr().out
    assert not trial.read(out)


def test_a_matrix_that_was_cut_is_none_and_is_measured_anew(trial, one, tmp_path, monkeypatch):
    """Of its rows of the run that was cut none is taken for a row of this one."""
    known = {"cublas": FakeKernel("cublas"), "sputnik": FakeKernel("sputnik", {"v1": (9.0, ""), "v2": (8.0, "")})}
    monkeypatch.setattr(trial, "baselines", lambda op: tuple(known))
    device = FakeDevice(gpu="nvidia-h200")
    session = Session(device, known, clock=device.timer.clock, _warm=True)
    case = trial.read_cases()[0]
    with Results(tmp_path / "cut" / "part-1", True, False, {}, print) as results:
        assert trial.ask(case, 1.0, session, results, ends=session.clock() + 0.02) is None
    with Results(tmp_path / "cut" / "part-1", True, False, {}, print) as results:
        again = trial.ask(case, 1.0, session, results)
    assert again.candidates == 3
    assert set(again.measured) == {"cublas", "sputnik"}
    assert again.found == again.best == "sputnik v2"


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "x/y", "1/0"])
def test_a_part_that_is_none_is_refused(trial, monkeypatch, capsys, part):
    monkeypatch.setattr("sys.argv", ["best_trial.py", "--part", part])
    with pytest.raises(SystemExit, match="2"):
        trial.main()
    assert "give it as I/N" in capsys.readouterr().err
