from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
from fake_records import record

from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.records.record import append

RUNNERS = Path(__file__).resolve().parents[3] / "runners"


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    for folder in (RUNNERS, RUNNERS / "trials"):
        monkeypatch.syspath_prepend(str(folder))
    yield
    for name in ("assemble_ahead", "replay_best"):
        sys.modules.pop(name, None)


def test_runners_are_ways_of_running_and_no_list_of_experiments():
    assert not {path.stem for path in RUNNERS.rglob("*.py")} & set(EXPERIMENTS)


def test_a_newcomer_is_told_of_every_script_which_it_is():
    scripts = [path for path in RUNNERS.rglob("*.py") if '__name__ == "__main__"' in path.read_text(encoding="utf-8")]
    named = re.findall(r"(?m)^\| `(\S+)` \|", (RUNNERS / "README.md").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(path.relative_to(RUNNERS).as_posix() for path in scripts)


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


def test_a_search_is_replayed_over_what_was_recorded(tmp_path, monkeypatch, capsys):
    """The fastest kernel compiles for 30 s: within 15 s the next best is found, and TF32 is no answer in fp32."""
    replay = importlib.import_module("replay_best")
    timed = {
        "cublas": {"f32_rowmajor": (9.0, 0.0)},
        "row_stream": {"a": (4.0, 100.0), "b": (3.0, 100.0)},
        "tensor_spmm_tf32": {"n32": (1.0, 100.0)},
        "sparsert": {"r8": (2.0, 30_000.0)},
    }
    rows = [
        record(kernel=kernel, variant=variant, median_us=us, compile_ms=ms, nnz=90_000, policy=policy)
        for kernel, variants in timed.items()
        for variant, (us, ms) in variants.items()
        for policy in ("hot", "cold")
    ]
    append(tmp_path / "records.csv", rows)
    monkeypatch.setattr("sys.argv", ["replay_best.py", str(tmp_path / "records.csv"), "--fewest", "1"])
    replay.main()
    told = capsys.readouterr().out
    assert "row_stream b, 3.00 µs" in told
    assert "| sparsert r8, 2.00 µs at 3" in told
    assert "4 of 5" in told
    assert "Geometric mean 1.500, worst 1.500." in told
    monkeypatch.setattr(
        "sys.argv", ["replay_best.py", str(tmp_path / "records.csv"), "--seconds", "60", "--fewest", "1"]
    )
    replay.main()
    assert "Geometric mean 1.000, worst 1.000." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"), [("x,y\n1,2\n", "can't be read as records"), ("policy\n", "no problem has")]
)
def test_what_can_not_be_replayed_is_one_sentence(tmp_path, monkeypatch, text, words):
    replay = importlib.import_module("replay_best")
    (tmp_path / "records.csv").write_text(text)
    monkeypatch.setattr("sys.argv", ["replay_best.py", str(tmp_path / "records.csv")])
    with pytest.raises(SystemExit, match=words):
        replay.main()
