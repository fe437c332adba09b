from __future__ import annotations

import importlib
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nnzbench.papers.catalogue import EXPERIMENTS

RUNNERS = Path(__file__).resolve().parents[3] / "runners"
GPUS = [("Tesla T4", "GPU-1"), ("Tesla T4", "GPU-2"), ("NVIDIA A100", "GPU-3")]


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(RUNNERS))
    yield
    sys.modules.pop("all_gpus", None)


def test_runners_are_ways_of_running_and_no_list_of_experiments():
    assert not {path.stem for path in RUNNERS.glob("*.py")} & set(EXPERIMENTS)


def test_each_model_runs_every_experiment_once_and_gpus_of_one_model_share_them(monkeypatch):
    all_gpus = importlib.import_module("all_gpus")
    seen, both_t4 = [], threading.Barrier(2, timeout=10)

    def run_one(gpu, experiment, options):
        assert options == ["--quick"]
        seen.append((gpu, experiment))
        if experiment in ("a", "b") and gpu != "GPU-3":
            both_t4.wait()  # two processes at a time, or this fails
        return int(experiment == "c")

    monkeypatch.setattr(all_gpus, "run_one", run_one)
    statuses = all_gpus.share_out(GPUS, ["a", "b", "c"], ["--quick"])
    assert sorted(statuses) == [0, 0, 0, 0, 1, 1]
    assert sorted(name for gpu, name in seen if gpu != "GPU-3") == ["a", "b", "c"]
    assert [name for gpu, name in seen if gpu == "GPU-3"] == ["a", "b", "c"]


def test_all_gpus_splits_its_command_line_and_fails_where_one_failed(monkeypatch, capsys):
    all_gpus = importlib.import_module("all_gpus")
    calls = []
    monkeypatch.setattr(all_gpus, "visible_gpus", lambda: GPUS)
    monkeypatch.setattr(
        all_gpus, "share_out", lambda *arguments: calls.append(arguments) or [0, calls[0][1] != ["eie_table4"]]
    )
    drawn = []
    monkeypatch.setattr(
        all_gpus.subprocess, "run", lambda command: drawn.append(command[3:]) or subprocess.CompletedProcess(command, 0)
    )
    monkeypatch.setattr(sys, "argv", ["all_gpus.py", "eie_table4", "--policy", "hot"])
    assert all_gpus.main() == 0
    assert calls.pop() == (GPUS, ["eie_table4"], ["--policy", "hot"])
    monkeypatch.setattr(sys, "argv", ["all_gpus.py", "--quick"])
    assert all_gpus.main() == 1
    assert "sparsert_table1" in calls[0][1]
    assert calls[0][2] == ["--quick"]
    for options in (["--out", "there"], ["--out=there", "--quick"]):
        monkeypatch.setattr(sys, "argv", ["all_gpus.py", "eie_table4", *options])
        all_gpus.main()
    assert drawn == [["report"], ["report"], ["report", "--reports", "there"], ["report", "--reports", "there"]]
    monkeypatch.setattr(all_gpus, "visible_gpus", list)
    assert all_gpus.main() == 2
    assert "no GPU" in capsys.readouterr().err


def test_each_process_sees_its_own_gpu_and_writes_a_log(monkeypatch, tmp_path):
    all_gpus = importlib.import_module("all_gpus")
    monkeypatch.setattr(all_gpus, "ROOT", tmp_path)
    monkeypatch.setattr(all_gpus, "LOGS", tmp_path / "logs")
    program = "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES'], sys.argv[1:]); sys.exit(3)"
    monkeypatch.setattr(all_gpus, "PROGRAM", program)
    assert all_gpus.run_one("GPU-7", "nm_sparsity", ["--quick"]) == 3
    assert (tmp_path / "logs" / "nm_sparsity-GPU-7.log").read_text() == "GPU-7 ['run', 'nm_sparsity', '--quick']\n"


def test_programs_of_an_experiment_are_in_the_cache_before_it_runs(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path))
    ahead = importlib.import_module("assemble_ahead")
    given = ["nm_sparsity", "--arch", "sm_90", "--kernel", "cublas"]
    assert ahead.main(given) == 0  # a library's candidates are no programs
    assert capsys.readouterr().out.startswith("0 programs")
    (job, *_) = ahead.jobs_of("eie_table4", ["sputnik"], 1, "sm_90")
    assert (job.source, job.arch) == ("sputnik_spmm.cu", "sm_90")


def test_all_gpus_explains_itself_and_needs_a_driver(monkeypatch, capsys):
    all_gpus = importlib.import_module("all_gpus")
    monkeypatch.setattr(sys, "argv", ["all_gpus.py", "--help"])
    assert all_gpus.main() == 0
    assert "one process per GPU" in capsys.readouterr().out


def test_the_slurm_script_is_valid_bash_and_names_a_runner_that_exists():
    text = (RUNNERS / "slurm.sbatch").read_text()
    subprocess.run(["bash", "-n", str(RUNNERS / "slurm.sbatch")], check=True)
    assert all((RUNNERS / name).is_file() for name in re.findall(r"runners/([\w.]+)", text))
    assert "#SBATCH --gpus=1" in text
