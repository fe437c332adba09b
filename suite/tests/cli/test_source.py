"""What the source keeps to: no import circles, and no time divided by a time outside `results/`.

Modules do not go round in circles, late imports inside functions counted like others; that rooms do not is for the
import linter to say. What pages, index.html, `compare` and `best` show are ratios of facts.
"""

import ast
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "nnzbench"


def modules(package: Path) -> dict[str, Path]:
    """Every module of a package by its full name, packages by the name of their folder."""
    names = {path: ".".join(path.relative_to(package.parent).with_suffix("").parts) for path in package.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def imported(path: Path, known: Mapping[str, object]) -> Iterator[str]:
    """The known modules that a file imports, at its top or anywhere else in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are absolute"
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in known else node.module for name in names if {name, node.module} & set(known))


@functools.cache
def graph_of(package: Path) -> dict[str, set[str]]:
    known = modules(package)
    return {name: set(imported(path, known)) - {name} for name, path in known.items()}


def circle(graph: Mapping[str, set[str]]) -> str:
    """One circle in words, empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " <- ".join(error.args[1])
    return ""


def test_no_module_imports_itself_through_others():
    assert not circle(graph_of(PACKAGE))


def test_circles_behind_late_imports_are_found(tmp_path):
    package = tmp_path / "p"
    package.mkdir()
    for name, text in {"__init__": "", "a": "import p.b", "b": "def f():\n    from p import a"}.items():
        (package / f"{name}.py").write_text(text)
    assert circle(graph_of(package))


ROOMS = ("site", "advise", "cli")


def is_time(node: ast.AST) -> bool:
    """Whether an expression names a kernel's µs: `us`, `..._us`, as a name, an attribute or a column.

    `floor_us`, an empty kernel's, is none: what share of a time it takes compares no kernels.
    """
    words = [
        getattr(one, "id", None) or getattr(one, "attr", None) or getattr(one, "value", "") for one in ast.walk(node)
    ]
    return any(
        isinstance(word, str) and word != "floor_us" and (word == "us" or word.endswith("_us")) for word in words
    )


def divided(text: str) -> list[int]:
    """Lines on which a time is divided by a time."""
    found = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)]
    return [one.lineno for one in found if is_time(one.left) and is_time(one.right)]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_divides_no_times(room):
    found = {path.name: lines for path in (PACKAGE / room).rglob("*.py") if (lines := divided(path.read_text("utf-8")))}
    assert not found


def test_a_division_is_seen():
    assert divided('a["dense_us"] / row.median_us\nus / 1e3\nflops / us') == [1]


def test_the_files_of_a_clone_stay_small():
    """What someone drops beside the sources is easily committed with them, and stays in the history."""
    root, git = PACKAGE.parents[1], shutil.which("git")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=root, capture_output=True, check=False) if git else None
    if listed is None or listed.returncode or not listed.stdout:
        pytest.skip("no checkout of git")
    files = (root / os.fsdecode(name) for name in listed.stdout.split(b"\0"))
    sizes = {file: file.lstat().st_size for file in files if file.is_file()}
    assert [name for name, size in sizes.items() if size > 2_500_000] == []
    assert sum(sizes.values()) <= 36_000_000
