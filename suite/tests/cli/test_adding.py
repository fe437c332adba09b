"""What docs/adding-a-kernel.md and adding-an-experiment.md say to write, written into a copy: checks and tests pass."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
COPIED = ("suite", "datasets", "kernels_cu", "runners", "conftest.py", "pyproject.toml", ".clang-format", ".gitignore")

LINE = "datasets/experiments.csv"
"""The one file that the docs add a line to."""
OF_DOCS = (
    "the_docs_and_the_notice_name_every_kernel_of_a_paper_or_library",
    "every_source_of_a_pattern_and_every_file_of_data_is_explained",
)
OF_TABLES = ("every_experiment_has_its_table", "the_smaller_patterns_of_every_table_can_be_made")
OF_EXPERIMENTS = (
    "every_problem_table_is_an_experiment_that_runs",
    "every_line_of_the_table_is_an_experiment_of_its_own_with_types_and_policies_that_there_are",
    "every_page_that_is_declared_is_there[tall_layers]",
    "every_problem_is_computed_by_a_kernel_that_is_named_for_it[tall_layers]",
)


def written(page):
    """Each file of a page's fenced code by its path, as the line before the code names it."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return dict(re.findall(r"(?s)`([\w/]+\.\w+)`:\n\n```\w+\n(.*?)```", text))


@pytest.fixture(scope="module")
def copy(tmp_path_factory, programs):
    """A checkout with the files of both pages; those named without a folder go where the first page says."""
    root = tmp_path_factory.mktemp("copy")
    for one in ROOT.iterdir():
        if one.name not in (*COPIED, "build", "results", "dist") and not one.name.startswith("."):
            (root / one.name).symlink_to(one)
    for name in COPIED:
        make = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        make(ROOT / name, root / name)
    kernel, experiment = written("adding-a-kernel.md"), written("adding-an-experiment.md")
    assert set(kernel) == {"scalar_spmm.cu", "scalar_spmm.py", "suite/nnzbench/kernels/scalar_spmm.py"}
    assert len(experiment) == 4
    module = "suite/nnzbench/kernels/scalar_spmm.py"
    new = {"kernels_cu/scalar_spmm.cu": kernel["scalar_spmm.cu"], module: kernel[module], **experiment}
    assert {name for name in new if (root / name).exists()} == {LINE}
    for name, text in new.items():
        with (root / name).open("a", encoding="utf-8") as file:
            file.write(text)
    kept = programs.parent / "imports"  # what is known of the package's unchanged modules
    kept.mkdir(exist_ok=True)
    (root / ".import_linter_cache").symlink_to(kept)
    (root / "cache").mkdir()
    (root / "cache" / "cpu").symlink_to(programs)
    return root, sorted(new)


def run(root, *words):
    """What a command prints there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NNZBENCH_")}
    environment = {**kept, "PYTHONPATH": str(root / "suite"), "NNZBENCH_CACHE": str(root / "cache")}
    done = subprocess.run([sys.executable, *words], cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_the_new_files_pass_every_check(copy, programs):
    root, new = copy
    if any(importlib.util.find_spec(name) is None for name in ("ruff", "mypy", "importlinter")):
        pytest.skip("the checks need the extra dev")
    python = [name for name in new if name.endswith(".py")]
    run(root, "-m", "ruff", "check", *python)
    run(root, "-m", "ruff", "format", "--check", *python)
    run(root, "-c", "from importlinter.cli import lint_imports_command as lint; lint()")
    kept = programs.parent / "mypy"  # what is told of files by their contents, wherever a copy lies
    run(root, "-m", "mypy", "--cache-dir", str(kept), "--follow-imports=silent", *python)
    if formatter := shutil.which("clang-format"):
        subprocess.run([formatter, "--dry-run", "-Werror", "kernels_cu/scalar_spmm.cu"], cwd=root, check=True)


def test_tests_that_look_at_all_kernels_and_experiments_pass(copy):
    root, _ = copy
    chosen = [f"cli/test_docs.py::test_{name}" for name in OF_DOCS]
    chosen += [f"cli/test_experiments.py::test_{name}" for name in OF_EXPERIMENTS]
    chosen += [f"data/problems/test_tables.py::test_{name}" for name in OF_TABLES]
    files = [
        f"suite/tests/{one}"
        for one in (*chosen, "core/test_roles.py::test_every_kernel_of_the_package_says_whose_it_is")
    ]
    run(root, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files)


def test_they_run_on_the_processor_and_a_new_kind_of_figure_is_drawn(copy):
    root, _ = copy
    asked = "run tall_layers --device cpu --kernel scalar_spmm --problem *1024* --candidates 1 --json"
    program = (
        "from nnzbench.report.draw import kinds, steps; from nnzbench.results.selector import CUBLAS, CUSPARSE; "
        "from nnzbench.papers.catalogue import page_of; from nnzbench.cli import main; "
        "from types import SimpleNamespace; import pandas as pd; "
        "frame = pd.DataFrame({'problem': ['a', 'b'], 'subject': 'cuSPARSE', 'policy': 'hot', 'value': [1.0, 2.0]}); "
        "steps.valued = lambda *_: frame; "
        "figure = steps.Steps('steps', 'Steps', (CUSPARSE,), CUBLAS); "
        "assert page_of('tall_layers') is not None; "
        "assert len(kinds.drawing(figure, SimpleNamespace()).axes[0].lines) == 1; "
        f"main({asked!r}.split())"
    )
    (ran,) = json.loads(run(root, "-c", program))
    assert ran["rows"] == {"ok": 1}
