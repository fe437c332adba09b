"""What the source keeps to: no import circles, and no time divided by a time outside `facts/`.

Neither modules nor folders go round in circles, late imports inside functions counted like others. What pages,
index.html, `compare` and `best` show are ratios of facts.
"""

import ast
import functools
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


def folders_of(package: Path) -> dict[str, set[str]]:
    """The same between folders; a module at the package's top is one of its own."""
    known, top = modules(package), package.name

    def folder(name: str) -> str:
        above = name.rpartition(".")[0]
        return name if known[name].name == "__init__.py" or above == top else above

    found: dict[str, set[str]] = {}
    for name, others in graph_of(package).items():
        found.setdefault(folder(name), set()).update(folder(other) for other in others)
    return {name: others - {name} for name, others in found.items()}


def circle(graph: Mapping[str, set[str]]) -> str:
    """One circle in words, empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " <- ".join(error.args[1])
    return ""


def test_no_module_imports_itself_through_others():
    assert not circle(graph_of(PACKAGE))


def test_no_folder_imports_itself_through_others():
    assert not circle(folders_of(PACKAGE))


@pytest.mark.parametrize(
    ("files", "modules_too"),
    [
        ({"a": "import p.b", "b": "def f():\n    from p import a"}, True),
        ({"one.a": "from p.two import b", "one.c": "", "two.b": "def f():\n    from p.one.c import x"}, False),
    ],
)
def test_circles_behind_late_imports_are_found(files, modules_too, tmp_path):
    package = tmp_path / "p"
    for name, text in {"__init__": "", "one.__init__": "", "two.__init__": "", **files}.items():
        path = package.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert bool(circle(graph_of(package))) == modules_too
    assert circle(folders_of(package))


ROOMS = ("site", "advise", "cli", "contribute")


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
