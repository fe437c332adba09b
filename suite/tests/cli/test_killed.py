"""A run that is killed or told to end loses no row that it recorded, leaves no half-written file, and goes on."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from commands import invoke

from nnzbench.bench.sweep import Choice, plan_work
from nnzbench.cli import INTERRUPTED
from nnzbench.kernels.registry import kernels
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.results.records.folder import drop_cut_off_line
from nnzbench.results.records.record import read_records

pytestmark = pytest.mark.usefixtures("cache_dir")


RUN = ("run", "awkward_sizes", "--device", "cpu", "--kernel", "row_stream", "--dtype", "f32", "--candidates", "1")


def test_a_killed_run_keeps_its_rows_and_ends_with_each_once(tmp_path):
    records = tmp_path / "cpu" / "awkward_sizes" / "records.csv"

    def lines() -> int:
        return records.read_bytes().count(b"\n") if records.exists() else 0

    words, seen = [*RUN, "--resume", "--out", str(tmp_path)], 1
    for sign in (signal.SIGKILL, signal.SIGTERM):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        child = subprocess.Popen([sys.executable, "-m", "nnzbench", *words], start_new_session=True, **quiet)
        while lines() <= seen and child.poll() is None:  # until it has recorded another row
            time.sleep(0.01)
        seen = lines()
        if child.poll() is None:
            os.killpg(child.pid, sign)
        _, said = child.communicate()
        if sign == signal.SIGTERM and child.returncode:  # else it was done before
            assert child.returncode == INTERRUPTED
            assert "--resume goes on" in said
        drop_cut_off_line(records)
        taken_back = sign == signal.SIGTERM  # by an append that is interrupted before it ends
        assert len(read_records(records)) >= seen - 1 - taken_back
        for path in records.parent.glob("*.json"):
            json.loads(path.read_text(encoding="utf-8"))
    assert invoke(*words).exit_code == 0
    rows = read_records(records)
    assert len(rows) == len({row.key for row in rows})
    work = plan_work(EXPERIMENTS["awkward_sizes"], kernels(), Choice(kernels=("row_stream",), dtypes=("f32",)))
    assert {(row.problem, row.dtype) for row in rows} == {(problem.name, problem.dtype) for problem, _ in work}
