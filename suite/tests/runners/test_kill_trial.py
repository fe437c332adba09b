"""A few kills of `best` at fixed moments; the runner `kill_trial.py` does a hundred of all commands at random ones."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from nnzbench.records.record import read_records

pytestmark = pytest.mark.usefixtures("cache_dir")


@pytest.fixture(scope="module")
def trial():
    path = Path(__file__).resolve().parents[3] / "runners" / "trials" / "kill_trial.py"
    spec = importlib.util.spec_from_file_location("kill_trial", path)
    module = sys.modules["kill_trial"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.KERNELS, module.WIDTHS = ("row_stream",), 2
    return module


def test_killed_in_the_middle_it_keeps_its_rows_and_goes_on(trial, tmp_path):
    child = trial.start(trial.arguments("best", tmp_path))
    while trial.lines_of(tmp_path) <= 1 and child.poll() is None:  # until the first row is there
        trial.time.sleep(0.02)
    trial.os.killpg(child.pid, trial.signal.SIGKILL)
    child.communicate()
    seen = trial.lines_of(tmp_path)
    assert seen > 1
    assert trial.faults(tmp_path, seen) == []
    assert trial.finish("best", tmp_path) == []
    rows = read_records(tmp_path / "cpu" / "mine" / "records.csv")
    assert {row.status for row in rows} == {"ok"}
    assert any(".r2_" in row.problem for row in rows)
    assert len(rows) >= 2 + seen - 1


@pytest.mark.parametrize("after_s", [0.5, 1.5])
def test_killed_at_any_moment_nothing_is_half_written(trial, tmp_path, after_s):
    assert trial.kill("best", tmp_path, after_s).faults == ()


def test_what_is_lost_is_found(trial, tmp_path):
    folder = tmp_path / "cpu" / "mine"
    folder.mkdir(parents=True)
    (folder / "records.csv").write_text("schema\nx\n")
    (folder / "environment.json").write_text("{")
    (tmp_path / "index.html").write_text("<html>half")
    found = trial.faults(tmp_path, 9)
    assert len(found) == 4
    assert any("9 rows were on disk" in one for one in found)
