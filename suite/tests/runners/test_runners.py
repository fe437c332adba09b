from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from nnzbench.papers.catalogue import EXPERIMENTS

RUNNERS = Path(__file__).resolve().parents[3] / "runners"


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(RUNNERS))
    yield
    sys.modules.pop("assemble_ahead", None)


def test_runners_are_ways_of_running_and_no_list_of_experiments():
    assert not {path.stem for path in RUNNERS.glob("*.py")} & set(EXPERIMENTS)


def test_programs_of_an_experiment_are_in_the_cache_before_it_runs(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path))
    ahead = importlib.import_module("assemble_ahead")
    given = ["nm_sparsity", "--arch", "sm_90", "--kernel", "cublas"]
    assert ahead.main(given) == 0  # a library's candidates are no programs
    assert capsys.readouterr().out.startswith("0 programs")
    job = next(ahead.jobs_of("eie_table4", ["sputnik"], 1, "sm_90"))
    assert (job.source, job.arch) == ("sputnik_spmm.cu", "sm_90")


def test_kernels_of_a_trace_are_summed_in_their_order(tmp_path):
    runner = importlib.import_module("network_busy")
    events = [
        {"cat": "kernel", "ts": 5.0, "dur": 2.0},
        {"cat": "kernel", "ts": 1.0, "dur": 3.5},
        {"cat": "gpu_memcpy", "ts": 9.0, "dur": 1.0},
        {"ph": "M"},
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    assert runner.kernels_us(tmp_path / "trace.json") == [3.5, 2.0]
