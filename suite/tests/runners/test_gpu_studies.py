"""The studies behind one command line; each is tested in a file of its own, `devices` beside its page."""

import json
import sys

import pytest
from fakes import FakeDevice

RUNNER = "gpu_studies"


@pytest.mark.parametrize("study", ["blocks", "launching"])
def test_a_study_without_a_gpu_is_refused_in_a_sentence(runner, monkeypatch, capsys, tmp_path, study):
    monkeypatch.setattr("studies.open_gpu", FakeDevice)
    assert runner.main([study, "--out", str(tmp_path)]) == 2
    assert "on a GPU, and none works here" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_trace_needs_pytorch(runner, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert runner.main(["busy", "--out", str(tmp_path)]) == 2
    assert "PyTorch with CUDA" in capsys.readouterr().err


def test_each_study_says_what_it_measures(runner, capsys):
    for study in ("devices", "blocks", "busy", "launching"):
        with pytest.raises(SystemExit, match="0"):
            runner.main([study, "--help"])
        assert f"python runners/gpu_studies.py {study} " in capsys.readouterr().out


def test_kernels_of_a_trace_are_summed_in_their_order(runner, tmp_path):
    events = [
        {"cat": "kernel", "ts": 5.0, "dur": 2.0},
        {"cat": "kernel", "ts": 1.0, "dur": 3.5},
        {"cat": "gpu_memcpy", "ts": 9.0, "dur": 1.0},
        {"ph": "M"},
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    assert runner.busy.kernels_us(tmp_path / "trace.json") == [3.5, 2.0]
