"""The whole way of a contribution without a GPU: steps, their time, the archive, which is taken in or refused."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import fake_records
import pytest
from draft_figures import figures_in_draft, pages_alone  # noqa: F401

from nnzbench.core import paths
from nnzbench.data.problems import tables
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.papers.predict.model import FEWEST
from nnzbench.papers.predict.records import predict
from nnzbench.results.records.beside import ENVIRONMENTS, TUNING
from nnzbench.results.records.record import RecordError, append, read_records
from nnzbench.site.contribute import kit

RUNNER = "contribute"
H200, NAME = "nvidia-h200", "NVIDIA H200"


@pytest.fixture
def contribute(runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.setattr(runner, "RESULTS", tmp_path / "build")
    for module in (runner, runner.bench):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    return runner


def test_every_step_is_an_experiment_and_its_problems_are_spread_over_its_sizes():
    assert kit.STEPS["dlmc_n512"] >= 20 > FEWEST
    for experiment, count in kit.STEPS.items():
        assert experiment in EXPERIMENTS
        names = kit.chosen(experiment, count, real=False)
        assert len(set(names)) == len(names) == count
        every = {p.name: p for p in tables.load(experiment, real=False)}
        work = [every[name].m * every[name].k * every[name].n * (1 - every[name].sparsity) for name in names]
        assert work == sorted(work)
        assert work[0] < work[-1]


def test_every_paper_that_has_times_of_its_own_has_a_step():
    stepped = {EXPERIMENTS[name].paper for name in kit.STEPS}
    assert len({one.paper for one in EXPERIMENTS.values()} - stepped) <= 2


def test_steps_share_the_time_and_the_last_ones_go_without(contribute, capsys):
    now = [0.0]
    asked: list[tuple[tuple[str, ...], float]] = []

    def run(*arguments: str, seconds: float) -> int:
        asked.append((arguments, seconds))
        now[0] += 300 if arguments[1] == "dlmc_n512" else 60
        return int(arguments[1] == "sparsert_table1")

    assert contribute.measure(10, run, lambda: now[0]) == ["sparsert_table1"]
    shares = [(arguments[1], round(left)) for arguments, left in asked]
    assert shares[:4] == [("dlmc_n512", 231), ("sparsert_table1", 47), ("sputnik_rnn", 35), ("balanced_figure4", 31)]
    assert [name for name, _ in shares] == list(kit.STEPS)[: len(shares)]
    assert asked[0][0].count("--problem") == 20
    assert "--resume" in asked[0][0]
    assert "No time is left for llm_layers." in capsys.readouterr().out


def test_a_process_past_its_time_is_ended_tidily(contribute, monkeypatch, tmp_path):
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

    monkeypatch.setattr(contribute.bench.subprocess, "Popen", Popen)
    assert contribute.bench.nnzbench("run", seconds=7.0) == 0
    assert waited == [7.0, contribute.bench.GRACE_S]
    assert (tmp_path / "kept").read_text() == "kept\n"


def test_the_archive_has_records_and_snapshots_and_no_names(tmp_path):
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


def test_an_archive_taken_in_calibrates_predictions(tmp_path):
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
        fake_records.write(folder / slug / "dlmc_n512", rows, {"gpu": {"name": name, "slug": slug}})
    kit.unpack(kit.archive(theirs, "nvidia-h100-80gb-hbm3"), reports)
    made = predict(reports, "dlmc_n512", "H100").rows
    rest = made[made["how"].str.startswith("calibrated") & (made["kernel"] == "sputnik")]
    assert len(rest) == len(every) - len(every[::4])
    assert rest["predicted_us"].to_numpy() == pytest.approx(1.3 * rest["source_us"].to_numpy(), rel=0.02)


def test_without_a_gpu_it_says_so(contribute, monkeypatch, capsys):
    monkeypatch.setattr(contribute, "visible_gpus", list)
    assert contribute.main([]) == 2
    assert "the CUDA driver finds none here" in capsys.readouterr().err


@pytest.fixture
def archive(tmp_path):
    """A function: a recorded set of an H200 packed as if the GPU had that slug and name."""
    recorded = paths.reports() / H200 / "eie_table4"
    if not recorded.is_dir():
        pytest.skip("no recorded sets beside the code")

    def packed(slug=H200, name=NAME, change=lambda gpu: None):
        folder = tmp_path / "theirs" / slug / "eie_table4"
        shutil.rmtree(tmp_path / "theirs", ignore_errors=True)
        folder.mkdir(parents=True)
        rows = [replace(row, gpu=slug) for row in read_records(recorded / "records.parquet")]
        append(folder / "records.csv", rows)
        TUNING.add(folder, *TUNING.read(recorded))
        for one in ENVIRONMENTS.read(recorded):
            snapshot = json.loads(one.text)
            snapshot["gpu"] |= {"slug": slug, "name": name}
            change(snapshot["gpu"])
            (folder / one.name).write_text(json.dumps(snapshot))
        return kit.archive(tmp_path / "theirs", slug)

    return packed


def test_an_archive_is_taken_in_and_its_pages_are_drawn(runner, archive, tmp_path, capsys, monkeypatch):
    reports, drawn = tmp_path / "reports", []
    monkeypatch.setattr("nnzbench.site.generations.page.write", drawn.append)
    words = ["--take-in", str(archive()), "--reports", str(reports)]
    with pages_alone():
        assert runner.main(words) == 0, capsys.readouterr().err
    names = {path.name for path in (reports / H200 / "eie_table4").iterdir()}
    assert names >= {"records.parquet", "tuning.parquet", "environments.parquet"}
    assert not names & {"records.csv", "tuning.csv", "environment.json"}
    assert "# " in (reports / H200 / "eie_table4" / "README.md").read_text()
    assert drawn == [reports], "the page of all GPUs"
    assert "git switch -c results-nvidia-h200" in capsys.readouterr().out
    assert runner.main(words) == 1  # once is enough
    assert "eie_table4: the published set is of the same run" in capsys.readouterr().err
    words[1] = str(archive(change=lambda gpu: gpu.update(compute_processes=3)))
    with pages_alone():
        assert runner.main(words) == 0, capsys.readouterr().err
    assert "1 of them reproduce one that was there" in capsys.readouterr().out
    assert (reports / "repeated" / H200 / "eie_table4" / "records.parquet").is_file()
    said = (reports / H200 / "eie_table4" / "README.md").read_text()
    assert re.search(r"Reproduced by another run, [-\d]+: (\d+) of \1 kernels' fastest are the same there", said)
    assert "- Division: tuned" in said
    words[1] = str(archive(change=lambda gpu: gpu.update(compute_processes=4)))
    assert runner.main(words) == 1  # and so is one that reproduces it


@pytest.mark.parametrize(
    ("slug", "name", "said"),
    [
        ("nvidia-b200", "NVIDIA B200", "is of compute capability 9.0, and NVIDIA B200 is sm_100"),
        ("nvidia-a100-sxm4-80gb", "NVIDIA A100-SXM4-80GB", "has 132 multiprocessors, and NVIDIA A100-SXM4-80GB 108"),
        ("nvidia-h100-80gb-hbm3", "NVIDIA H100 80GB HBM3", "GB of memory, and NVIDIA H100 80GB HBM3 80"),
    ],
)
def test_an_archive_of_an_h200_under_another_name_is_refused(runner, archive, tmp_path, capsys, slug, name, said):
    reports = tmp_path / "reports"
    assert runner.main(["--take-in", str(archive(slug, name)), "--reports", str(reports)]) == 1
    assert said in capsys.readouterr().err
    assert not reports.exists()


@pytest.mark.parametrize(
    ("name", "kind"), [("../out", tarfile.REGTYPE), ("/out", tarfile.REGTYPE), ("in", tarfile.SYMTYPE)]
)
def test_an_archive_writes_nothing_but_files_below_its_folder(tmp_path, name, kind):
    path, member = tmp_path / "packed.tar.gz", tarfile.TarInfo(name)
    member.type, member.linkname = kind, "../out"
    with tarfile.open(path, "w:gz") as packed:
        packed.addfile(member)
    with pytest.raises(RecordError, match=f"'{name}' is a link, or leads out of it"):
        kit.unpack(path, tmp_path / "folder")
    assert [one.name for one in tmp_path.iterdir()] == ["packed.tar.gz"]


def test_an_archive_that_was_changed_or_is_none_is_refused(runner, archive, tmp_path, capsys):
    path = archive()
    kit.unpack(path, tmp_path / "open")
    tuning = tmp_path / "open" / H200 / "eie_table4" / "tuning.csv"
    tuning.write_text(tuning.read_text().replace("cublas", "cublaslt", 1))
    with tarfile.open(path, "w:gz") as packed:
        packed.add(tmp_path / "open" / H200, H200)
    assert runner.main(["--take-in", str(path), "--reports", str(tmp_path / "reports")]) == 1
    assert "tuning.csv is not the file that the manifest names" in capsys.readouterr().err
    (tmp_path / "none.tar.gz").write_text("text")
    assert runner.main(["--take-in", str(tmp_path / "none.tar.gz"), "--reports", str(tmp_path / "reports")]) == 2
    assert "is no archive of make contribute" in capsys.readouterr().err
