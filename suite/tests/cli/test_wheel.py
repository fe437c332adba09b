"""The wheel in an environment of its own, outside the checkout: it builds, and `best`, `run` and `report` work."""

from __future__ import annotations

import importlib.util
import json
import os
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
OFFLINE = ("--no-index", "--no-deps")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("hatchling") is None or importlib.util.find_spec("pip") is None:
        pytest.skip("building the wheel here needs pip and hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([*PIP, "wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", folder, CHECKOUT], check=True)
    (built,) = folder.glob("nnzbench-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the wheel, which borrows this one's other packages."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()))  # no .pth in these counts, so no checkout
    subprocess.run([*PIP, "install", *OFFLINE, "--target", packages, wheel], check=True)
    return home / "bin" / "python"


def run(python: Path, folder: Path, *arguments: str, cache: Path | None = None) -> str:
    """What `nnzbench ARGUMENTS` prints in that folder, with nothing of this checkout in its environment."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and "NNZBENCH" not in name}
    done = subprocess.run(
        [python, "-m", "nnzbench", *arguments],
        cwd=folder,
        env={**kept, "NNZBENCH_CACHE": str(cache or folder / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_holds_one_import_name_and_every_kernel_and_stays_small(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"nnzbench"}
    sources = sorted(path.name for path in (CHECKOUT / "kernels_cu").rglob("*.cu*"))
    assert sorted(Path(name).name for name in names if "/kernels_cu/" in name and ".cu" in name) == sources
    assert wheel.stat().st_size < 12e6


def test_it_lists_problems_and_knows_no_checkout(python: Path, tmp_path: Path) -> None:
    where = subprocess.run(
        [python, "-c", "import nnzbench; print(nnzbench.__file__)"], cwd=tmp_path, capture_output=True, text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    assert Path(where.stdout).is_relative_to(python.parent.parent)
    assert len(json.loads(run(python, tmp_path, "list", "problems", "sparsert_table1", "--json"))) == 31


def test_it_estimates_from_the_records_that_it_carries(python: Path, tmp_path: Path) -> None:
    (answer,) = json.loads(run(python, tmp_path, "best", "4096x4096@0.9", "--gpu", "h200", "--n", "32", "--json"))[
        "answers"
    ]
    assert answer["where"] == "nvidia-h200"
    assert answer["widths"][0]["verdict"]["kernel"]
    rows = json.loads(run(python, tmp_path, "predict", "sparsert_table1", "--gpu", "T4", "--json"))["rows"]
    assert len(rows) > 100


def test_it_runs_on_the_processor_and_draws_what_it_ran(python: Path, tmp_path: Path, cache_dir: Path) -> None:
    chosen = ("--device", "cpu", "--quick", "--candidates", "1", "--kernel", "row_stream", "--problem", "12_*")
    (ran,) = json.loads(run(python, tmp_path, "run", "sparsert_table1", *chosen, "--json", cache=cache_dir))
    assert ran["rows"] == {"ok": 1}
    run(python, tmp_path, "report", "sparsert_table1")
    page = tmp_path / "results" / "cpu" / "sparsert_table1" / "README.md"
    assert page.is_file()
