"""The wheel, unpacked outside the checkout: it builds, and `best`, `run` and `report` work."""

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nnzbench.results.records.record import read_records

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("building the wheel here needs hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run(build, cwd=CHECKOUT, check=True)
    (built,) = folder.glob("nnzbench-*.whl")
    return built


@pytest.fixture(scope="module")
def packages(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs, and nothing else."""
    folder = tmp_path_factory.mktemp("packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(packages: Path, folder: Path, *arguments: str, cache: Path | None = None) -> str:
    """What `nnzbench ARGUMENTS` prints in that folder, with nothing of this checkout in its environment."""
    kept = {name: value for name, value in os.environ.items() if "NNZBENCH" not in name}
    program = f"import nnzbench; assert nnzbench.__file__.startswith({str(packages)!r}); import nnzbench.__main__"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(packages), "NNZBENCH_CACHE": str(cache or folder / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_holds_one_import_name_and_every_kernel_and_stays_small(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"nnzbench"}
    sources = sorted(path.name for path in (CHECKOUT / "kernels_cu").rglob("*.cu*"))
    assert sorted(Path(name).name for name in names if "/kernels_cu/" in name and ".cu" in name) == sources
    assert wheel.stat().st_size < 20e6  # most of it the records that estimates are made from


def test_it_estimates_from_the_records_that_it_carries(packages, tmp_path):
    asked = ("512x512@0.9", "--gpu", "h200", "--n", "32", "--kernel", "ring", "--kernel", "cublas", "--json")
    (answer,) = json.loads(run(packages, tmp_path, "best", *asked))["answers"]
    assert answer["where"] == "nvidia-h200"
    assert answer["widths"][0]["verdict"]["kernel"] == "ring"


def test_it_runs_on_the_processor_and_draws_what_it_ran(packages, tmp_path, cache_dir):
    chosen = ("--device", "cpu", "--quick", "--candidates", "1", "--kernel", "row_stream", "--problem", "12_*")
    run(packages, tmp_path, "run", "sparsert_table1", *chosen, "--report", cache=cache_dir)
    folder = tmp_path / "results" / "cpu" / "sparsert_table1"
    assert len(read_records(folder / "records.csv")) == 1
    assert (folder / "README.md").is_file()
