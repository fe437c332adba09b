"""docs/papers.md: what of the papers runs here, held against what there is."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from nnzbench.kernels.registry import known
from nnzbench.papers.catalogue import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[3]
STATUSES = {"complete", "partial", "out of scope"}


def rows():
    lines = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in cells if row[0] not in ("part", "---")]


def test_every_part_is_covered_by_what_exists_or_says_why_not():
    parts = rows()
    assert all(len(row) == 4 and row[1] in STATUSES for row in parts)
    assert len({row[0] for row in parts}) == len(parts)
    for part, status, covered, remark in parts:
        names = re.findall(r"`([^`]+)`", covered)
        assert bool(names) == (status != "out of scope"), part
        assert remark or status == "complete", part
        for name in names:
            assert name in EXPERIMENTS or name in known() or (ROOT / name).is_file(), name
    assert Counter(row[1] for row in parts)["partial"] <= 8


def test_every_experiment_of_a_paper_covers_a_part():
    covered = {name for row in rows() for name in re.findall(r"`([^`]+)`", row[2])}
    assert {name for name, one in EXPERIMENTS.items() if one.paper != "nnzbench's own"} <= covered
