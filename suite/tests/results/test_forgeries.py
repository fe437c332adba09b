"""Lies that only a data sheet or other published records tell; `test_forged_records.py` has the others."""

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_records
import pytest

from nnzbench.core import paths
from nnzbench.results.records.beside import ENVIRONMENTS
from nnzbench.results.records.record import Record, read_records
from nnzbench.site.contribute.validate import validate

GPU, EXPERIMENT, PROBLEMS = "nvidia-h200", "sputnik_figure7", 12
TIMES = ("median_us", "q1_us", "q3_us")


@pytest.fixture(scope="module")
def real() -> tuple[list[Record], dict[str, dict[str, Any]]]:
    """Rows of a few problems, and the snapshots that they name."""
    folder = paths.reports() / GPU / EXPERIMENT
    if not folder.is_dir():
        pytest.skip("the published records are not here")
    every = read_records(folder / "records.parquet")
    names = sorted({row.problem for row in every if row.median_us is not None})[-PROBLEMS:]
    rows = [row for row in every if row.problem in names]
    named = {row.environment for row in rows}
    return rows, {one.name: json.loads(one.text) for one in ENVIRONMENTS.read(folder) if one.name in named}


def found(root: Path, rows: list[Record], snapshots: dict[str, dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Faults and notes on such a set."""
    folder = fake_records.write(root / GPU / EXPERIMENT, rows)
    for name, one in snapshots.items():
        (folder / name).write_text(json.dumps(one))
    told = validate(folder)
    return [one.sentence for one in told if one.fault], [one.sentence for one in told if not one.fault]


def scaled(rows: list[Record], by: Callable[[Record], float]) -> list[Record]:
    """Times of another length."""
    return [
        dataclasses.replace(row, **{name: float(f"{getattr(row, name) * by(row):.6g}") for name in TIMES})
        if row.median_us is not None
        else row
        for row in rows
    ]


@pytest.mark.parametrize(
    ("table", "change", "sentence"),
    [
        ("gpu", {"sms": 200}, "has sms 200, and no such GPU has more than 132"),
        ("gpu", {"sm_clock_max_mhz": 9000}, "has sm_clock_max_mhz 9000, and no such GPU has more than "),
        ("peaks", {"copy_gbs": 10_000.0}, "has copy_gbs 10000, and no such GPU does more than "),
    ],
)
def test_a_snapshot_says_no_more_than_the_data_sheet(real, tmp_path, table, change, sentence):
    rows, snapshots = real
    changed = {name: {**one, table: {**one[table], **change}} for name, one in snapshots.items()}
    faults, _ = found(tmp_path, rows, changed)
    assert any(sentence in fault for fault in faults), faults


def test_many_candidates_that_are_slower_with_a_warm_cache_are_refused(real, tmp_path):
    rows, snapshots = real
    faults, _ = found(tmp_path, scaled(rows, lambda row: 4.0 if row.policy == "hot" else 1.0), snapshots)
    assert any("candidates are slower hot than cold" in fault for fault in faults), faults


def test_times_are_told_as_odd_beside_those_that_are_published(real, tmp_path):
    """A copy, a copy with a factor, and one whose own kernel is favoured: no rule forbids them."""
    rows, snapshots = real
    noise = random.Random(1)
    for at, (by, told) in enumerate(
        (
            (lambda row: 1.0, "closer than two runs are"),
            (lambda row: 1.7, "closer than two runs are"),
            (lambda row: noise.gauss(0.5 if row.kernel == "sputnik" else 1.0, 0.01), "the times of `sputnik` are "),
        )
    ):
        faults, notes = found(tmp_path / str(at), scaled(rows, by), snapshots)
        assert any(told in note for note in notes), notes
        assert at or not faults
