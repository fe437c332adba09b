"""The result sets in reports/ keep the rules that readers rely on; docs/contributing-results.md sends people here."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest
from fake_records import failed, record, write

from nnzbench import paths
from nnzbench.record import Record, read_records, replace_all
from nnzbench.selection import select

PER_PROBLEM = ("op", "m", "k", "n", "shape", "sparsity", "nnz", "pattern", "source")
"""What all rows of one problem have in common."""


def faults(reports: Path, path: Path) -> list[str]:
    """What is wrong with one records file below `reports`, one sentence each. Raises `RecordError` for the schema."""
    gpu, experiment, *below = path.relative_to(reports).parent.parts
    rows = read_records(path)
    found = [] if rows else ["it has no rows"]
    if below not in ([], ["standin"]):
        found.append("it lies too deep: <gpu>/<experiment>/ or <gpu>/<experiment>/standin/")
    found += [f"a row is of experiment {row.experiment}" for row in rows if row.experiment != experiment][:1]
    found += [f"a row is of GPU {row.gpu}" for row in rows if row.gpu != gpu][:1]
    found += ["a row is from the processor" for row in rows if row.device == "cpu"][:1]
    found += [f"{key} is there {count} times" for key, count in Counter(row.key for row in rows).items() if count > 1]
    found += [f"problem {name} is not one problem" for name in sorted(_ambiguous(rows))]
    if below == ["standin"]:
        real = sorted({row.source for row in rows if row.source.startswith(("dlmc:", "weights:"))})
        found += [f"{source} is real" for source in real]
    if [row.selected for row in select(rows)] != [row.selected for row in rows]:
        found.append("`selected` does not mark the fastest correct rows")
    for name in sorted({row.environment for row in rows}):
        snapshot = path.parent / name
        if not name or not snapshot.is_file():
            found.append(f"the snapshot '{name}' is missing")
        elif not isinstance(json.loads(snapshot.read_text(encoding="utf-8")).get("gpu"), dict):
            found.append(f"the snapshot '{name}' does not describe the GPU")
    return found


def _ambiguous(rows: list[Record]) -> set[str]:
    """Problems whose rows differ in what they are; rows whose operands could not be made know less and don't count."""
    seen: dict[str, tuple[object, ...]] = {}
    made = [row for row in rows if row.pattern]
    facts = [(row.problem, tuple(getattr(row, name) for name in PER_PROBLEM)) for row in made]
    return {problem for problem, fact in facts if seen.setdefault(problem, fact) != fact}


RECORDED = sorted(paths.reports().glob("*/*/**/records.csv"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: str(path.relative_to(paths.reports()).parent))
def test_a_recorded_result_set_keeps_the_rules(path):
    assert faults(paths.reports(), path) == []


@pytest.fixture
def recorded(tmp_path):
    """A good result set, its rows and its records file."""
    rows = select(
        [record(variant="a"), record(variant="b", median_us=3.0), failed(record(variant="c"), "wrong", "far")]
    )
    return tmp_path, rows, write(tmp_path / "nvidia-h200" / "sparsert_table1", rows) / "records.csv"


def test_a_good_set_has_no_faults(recorded):
    reports, _, path = recorded
    assert faults(reports, path) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"gpu": "tesla-t4"}, "GPU tesla-t4"),
        ({"experiment": "other"}, "experiment other"),
        ({"device": "cpu"}, "from the processor"),
        ({"m": 65}, "problem p is not one problem"),
        ({"pattern": "feedbeef"}, "problem p is not one problem"),
        ({"variant": "b"}, "is there 2 times"),
        ({"selected": True}, "does not mark"),
        ({"environment": "environment-9.json"}, "'environment-9.json' is missing"),
    ],
)
def test_each_fault_is_found(recorded, change, sentence):
    reports, rows, path = recorded
    replace_all(path, [dataclasses.replace(rows[0], **change), *rows[1:]])
    assert any(sentence in fault for fault in faults(reports, path))


def test_real_patterns_do_not_pass_as_stand_ins_and_nothing_lies_deeper(recorded):
    reports, rows, path = recorded
    below = write(path.parent / "standin", rows) / "records.csv"
    assert faults(reports, below) == ["dlmc:rn50/x is real"]
    deeper = write(path.parent / "old" / "run", rows) / "records.csv"
    assert any("too deep" in fault for fault in faults(reports, deeper))
