"""docs/architecture.md and papers.md against the tree: floors, paths that a page names, and what of the papers runs."""

import re
from collections import Counter
from pathlib import Path

import pytest

from nnzbench.kernels.registry import known
from nnzbench.papers.catalogue import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "suite" / "nnzbench"
MAP = ROOT / "docs" / "architecture.md"
ROOMS = [path for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"]
STATUSES = ("complete", "partial", "missing", "out of scope")
"""Of a part of a paper."""
MADE = {"results", "build", "reports/index.html"}
"""What commands make in the checkout, and is not in git."""


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def rooms_of(cell: str) -> list[str]:
    return re.findall(r"`(\w+)(?:/|\.py)`", cell)


def floors() -> list[tuple[int, list[str], str]]:
    """Number, rooms and text of each line of the map."""
    rows = re.findall(r"(?m)^\| (\d+) \| ([^|]+) \| ([^|]+) \|$", text_of(MAP))
    return [(int(number), rooms_of(cell), text) for number, cell, text in rows]


def test_the_floors_are_the_layers_that_imports_keep_to():
    contract = re.search(r"(?s)\nlayers = \[\n(.*?)\n\]", text_of(ROOT / "pyproject.toml"))
    layers = [sorted(re.split(r" [|:] ", layer)) for layer in re.findall(r'"(.+)"', contract[1])]
    assert [sorted(rooms) for _, rooms, _ in floors()] == layers
    assert [number for number, _, _ in floors()] == list(range(len(layers), 0, -1))


def test_every_module_that_the_map_names_is_in_its_room():
    for _, rooms, text in floors():
        folders = [PACKAGE / room for room in rooms if (PACKAGE / room).is_dir()]
        for name in re.findall(r"`([\w/]+(?:/|\.py))`", text):
            assert any((folder / name).exists() for folder in folders), f"{', '.join(rooms)}: {name}"
        for room in folders:  # where the rooms within are listed, all are
            inner = {path.name for path in room.iterdir() if (path / "__init__.py").exists()}
            named = {name.rstrip("/") for names in re.findall(r"`([^`]+)`", text) for name in names.split()}
            assert not inner & named or inner <= named, f"{room.name}: {sorted(inner - named)}"


def pattern_of(name: str) -> str:
    return re.sub(r"<\w+>", "*", name).rstrip("/")


@pytest.mark.parametrize("page", [ROOT / "README.md", *ROOT.glob("d*/*.md")], ids=lambda page: page.name)
def test_paths_that_a_page_names_exist(page):
    """A name whose first folder is there; others are of archives, other repositories or what a command makes."""
    bases = [ROOT, ROOT / "suite", PACKAGE, *ROOMS, page.parent]
    text = re.sub(r"(?s)(?:`[\w/]+\.\w+`:\n\n)?```.*?```", "", text_of(page))  # nor what a reader is to write
    for name in re.findall(r"`([\w<>*.-]+(?:/[a-zA-Z_<*.][\w<>*.-]*)+/?)`", text):
        first = name.partition("/")[0]
        there = [base for base in bases if not MADE & {first, name} and (base / first).is_dir()]
        assert not there or any(any(base.glob(pattern_of(name))) for base in there), f"{page.name}: {name}"


def parts_of_papers() -> list[list[str]]:
    lines = text_of(ROOT / "docs" / "papers.md").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in cells if row[0] not in ("part", "---")]


def test_every_part_of_a_paper_is_covered_by_what_exists_or_says_why_not():
    parts = parts_of_papers()
    assert all(len(row) == 4 and row[1] in STATUSES for row in parts)
    assert len({row[0] for row in parts}) == len(parts)
    for part, status, covered, remark in parts:
        names = re.findall(r"`([^`]+)`", covered)
        assert bool(names) == (status in ("complete", "partial")), part
        assert remark or status in ("complete", "missing"), part
        for name in names:
            assert name in EXPERIMENTS or name in known() or (ROOT / name).is_file(), name
    told = re.search(r"(?s)\*\*Of (\d+) parts (.*?)\*\*", text_of(ROOT / "docs" / "papers.md"))
    counts = Counter(row[1] for row in parts)
    assert [int(told[1]), *map(int, re.findall(r"\d+", told[2]))] == [len(parts), *(counts[one] for one in STATUSES)]


def test_every_experiment_of_a_paper_covers_a_part():
    covered = {name for row in parts_of_papers() for name in re.findall(r"`([^`]+)`", row[2])}
    assert {name for name, one in EXPERIMENTS.items() if one.paper != "nnzbench's own"} <= covered
