from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

from nnzbench.papers.catalogue import EXPERIMENTS

RUNNERS = Path(__file__).resolve().parents[3] / "runners"


def test_runners_are_ways_of_running_and_no_list_of_experiments():
    assert not {path.stem for path in RUNNERS.rglob("*.py")} & set(EXPERIMENTS)


def test_a_newcomer_is_told_of_every_script_which_it_is():
    scripts = [path for path in RUNNERS.rglob("*.py") if '__name__ == "__main__"' in path.read_text(encoding="utf-8")]
    named = re.findall(r"(?m)^\| `(\S+)` \|", (RUNNERS / "README.md").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(path.relative_to(RUNNERS).as_posix() for path in scripts)


def test_kernels_of_a_trace_are_summed_in_their_order(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(RUNNERS))
    runner = importlib.import_module("network_busy")
    events = [
        {"cat": "kernel", "ts": 5.0, "dur": 2.0},
        {"cat": "kernel", "ts": 1.0, "dur": 3.5},
        {"cat": "gpu_memcpy", "ts": 9.0, "dur": 1.0},
        {"ph": "M"},
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    assert runner.kernels_us(tmp_path / "trace.json") == [3.5, 2.0]
