"""The whole way of a contribution, without a GPU: packed, taken in with its pages drawn, or refused."""

import importlib.util
import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from nnzbench import paths
from nnzbench.contribute import kit
from nnzbench.records.record import append, read_records

H200, NAME = "nvidia-h200", "NVIDIA H200"
RUNNERS = Path(__file__).resolve().parents[3] / "runners"


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location("take_in", RUNNERS / "take_in.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def archive(tmp_path):
    """A function: a recorded set of an H200 packed as if the GPU had that slug and name."""
    recorded = paths.reports() / H200 / "eie_table4"
    if not recorded.is_dir():
        pytest.skip("no recorded sets beside the code")

    def packed(slug=H200, name=NAME, change=lambda gpu: None):
        folder = tmp_path / "theirs" / slug / "eie_table4"
        folder.mkdir(parents=True)
        rows = [replace(row, gpu=slug) for row in read_records(recorded / "records.parquet")]
        append(folder / "records.csv", rows)
        shutil.copy(recorded / "tuning.csv", folder)
        for file in recorded.glob("environment*.json"):
            snapshot = json.loads(file.read_text())
            snapshot["gpu"] |= {"slug": slug, "name": name}
            change(snapshot["gpu"])
            (folder / file.name).write_text(json.dumps(snapshot))
        return kit.archive(tmp_path / "theirs", slug)

    return packed


def test_an_archive_is_taken_in_and_its_pages_are_drawn(runner, archive, tmp_path, capsys):
    reports = tmp_path / "reports"
    assert runner.main([str(archive()), "--reports", str(reports)]) == 0, capsys.readouterr().err
    assert (reports / H200 / "eie_table4" / "records.parquet").is_file()
    assert "# " in (reports / H200 / "eie_table4" / "README.md").read_text()
    assert "NVIDIA H200" in (reports / "generations" / "README.md").read_text()
    assert "git switch -c results-nvidia-h200" in capsys.readouterr().out
    assert runner.main([str(tmp_path / "theirs" / f"{H200}.tar.gz"), "--reports", str(reports)]) == 1  # once is enough


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
    assert runner.main([str(archive(slug, name)), "--reports", str(reports)]) == 1
    assert said in capsys.readouterr().err
    assert not reports.exists()


def test_an_archive_that_was_changed_or_is_none_is_refused(runner, archive, tmp_path, capsys):
    path = archive()
    with tarfile.open(path) as packed:
        packed.extractall(tmp_path / "open", filter="data")
    tuning = tmp_path / "open" / H200 / "eie_table4" / "tuning.csv"
    tuning.write_text(tuning.read_text().replace("cublas", "cublaslt", 1))
    with tarfile.open(path, "w:gz") as packed:
        packed.add(tmp_path / "open" / H200, H200)
    assert runner.main([str(path), "--reports", str(tmp_path / "reports")]) == 1
    assert "tuning.csv is not the file that the manifest names" in capsys.readouterr().err
    (tmp_path / "none.tar.gz").write_text("text")
    assert runner.main([str(tmp_path / "none.tar.gz"), "--reports", str(tmp_path / "reports")]) == 2
    assert "is no archive of make contribute" in capsys.readouterr().err
