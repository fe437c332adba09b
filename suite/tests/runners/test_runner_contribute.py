"""`make contribute` without a GPU: its steps, its time, and the archive that it leaves."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import ModuleType

import fake_records
import pytest

from nnzbench.contribute import kit
from nnzbench.papers.catalogue import EXPERIMENTS, PAPERS
from nnzbench.predict.model import FEWEST
from nnzbench.predict.records import predict
from nnzbench.problems import tables
from nnzbench.records.record import RecordError
from nnzbench.records.selection import select
from nnzbench.site.generations import page as generations

RUNNERS = Path(__file__).resolve().parents[3] / "runners"


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(RUNNERS))
    spec = importlib.util.spec_from_file_location("contribute_runner", RUNNERS / "contribute.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "build")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def test_every_step_is_an_experiment_and_its_problems_are_spread_over_its_sizes() -> None:
    assert kit.STEPS["dlmc_n512"] >= 20 > FEWEST
    for experiment, count in kit.STEPS.items():
        assert experiment in EXPERIMENTS
        names = kit.chosen(experiment, count, real=False)
        assert len(set(names)) == len(names) == count
        every = {p.name: p for p in tables.load(experiment, real=False)}
        work = [every[name].m * every[name].k * every[name].n * (1 - every[name].sparsity) for name in names]
        assert work == sorted(work)
        assert work[0] < work[-1]


def test_every_paper_that_has_times_of_its_own_has_a_step() -> None:
    stepped = {EXPERIMENTS[name].paper for name in kit.STEPS}
    assert len(stepped) >= len(PAPERS)


def test_steps_share_the_time_and_the_last_ones_go_without(
    runner: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    asked: list[tuple[list[str], float]] = []

    def run(arguments: list[str], seconds: float) -> int:
        asked.append((arguments, seconds))
        now[0] += 300 if arguments[1] == "dlmc_n512" else 60
        return int(arguments[1] == "sparsert_table1")

    assert runner.measure(10, run, lambda: now[0]) == ["sparsert_table1"]
    shares = [(arguments[1], round(left)) for arguments, left in asked]
    assert shares[:4] == [
        ("dlmc_n512", 231),
        ("sparsert_table1", 47),
        ("sputnik_rnn", 35),
        ("balanced_figure4", 31),
    ]
    assert [name for name, _ in shares] == list(kit.STEPS)[: len(shares)]
    assert asked[0][0].count("--problem") == 20
    assert "--resume" in asked[0][0]
    assert "No time is left for llm_layers." in capsys.readouterr().out


def test_a_process_past_its_time_is_ended_tidily(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script, ready = tmp_path / "python", tmp_path / "ready"
    script.write_text("#!/bin/sh\ntrap 'echo kept > kept; exit 130' TERM\n: > ready\nwhile :; do sleep 0.05; done\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    waited: list[float | None] = []

    class Popen(subprocess.Popen[bytes]):
        """Its time is over as soon as it is ready to be told so, however long it takes to start."""

        def wait(self, timeout: float | None = None) -> int:
            waited.append(timeout)
            if len(waited) > 1:
                return super().wait(timeout)
            while not ready.exists():
                assert self.poll() is None
                time.sleep(0.01)
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)

    monkeypatch.setattr(runner.subprocess, "Popen", Popen)
    assert runner.run(["run"], 7.0) == 0
    assert waited == [7.0, runner.GRACE_S]
    assert (tmp_path / "kept").read_text() == "kept\n"


def test_the_archive_has_records_and_snapshots_and_no_names(tmp_path: Path) -> None:
    folder = fake_records.write(tmp_path / "nvidia-b100" / "sparsert_table1", [fake_records.record(gpu="nvidia-b100")])
    (folder / "README.md").write_text("drawn")
    (folder / ".lock").touch()
    assert kit.gpus(tmp_path) == ["nvidia-b100"]
    path = kit.archive(tmp_path, "nvidia-b100")
    with tarfile.open(path) as packed:
        members = packed.getmembers()
        names = ("manifest.json", "sparsert_table1/environment.json", "sparsert_table1/records.csv")
        assert [one.name for one in members] == [f"nvidia-b100/{name}" for name in names]
        assert {(one.uid, one.uname, one.mtime) for one in members} == {(0, "", 0)}
        snapshot = packed.extractfile(members[1])
        assert snapshot is not None
        assert json.load(snapshot)["gpu"]["name"] == "NVIDIA H200"
    with pytest.raises(RecordError, match="holds no rows of a GPU"):
        kit.gpus(tmp_path / "nothing")


def test_an_archive_taken_in_is_among_the_generations_and_calibrates_predictions(tmp_path: Path) -> None:
    reports, theirs = tmp_path / "reports", tmp_path / "theirs"
    every = tables.load("dlmc_n512", real=False)
    for folder, slug, name, times, problems in (
        (reports, "nvidia-h200", "NVIDIA H200", 1.0, every),
        (theirs, "nvidia-h100-80gb-hbm3", "NVIDIA H100 80GB HBM3", 1.3, every[::4]),
    ):
        rows = []
        for at, one in enumerate(problems):
            sizes = {"m": one.m, "k": one.k, "n": one.n, "nnz": round((1 - one.sparsity) * one.m * one.k)}
            told = {"experiment": "dlmc_n512", "problem": one.name, "dtype": "f16", "gpu": slug, **sizes}
            for kernel, us in (("sputnik", 10.0 + every.index(one)), ("cublas", 8.0)):
                time = dict.fromkeys(("median_us", "q1_us", "q3_us"), us * times)
                rows.append(fake_records.record(kernel=kernel, variant=f"f16_heuristic_{at}", **told, **time))
        fake_records.write(folder / slug / "dlmc_n512", select(rows), {"gpu": {"name": name, "slug": slug}})
    with tarfile.open(kit.archive(theirs, "nvidia-h100-80gb-hbm3")) as packed:
        packed.extractall(reports, filter="data")
    made = predict(reports, "dlmc_n512", "H100").rows
    rest = made[made["how"].str.startswith("calibrated") & (made["kernel"] == "sputnik")]
    assert len(rest) == len(every) - len(every[::4])
    assert rest["predicted_us"].to_numpy() == pytest.approx(1.3 * rest["source_us"].to_numpy(), rel=0.02)
    page = generations.write(reports)
    assert page is not None
    assert "| NVIDIA H100 80GB HBM3 | measured, hot, 21 of 84 |" in page.read_text()


def test_without_a_gpu_it_says_so(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "visible_gpus", list)
    assert runner.main([]) == 2
    assert "the CUDA driver finds none here" in capsys.readouterr().err
