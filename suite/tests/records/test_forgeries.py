"""400 forged sets: a published set with one seeded lie each. All are refused, or told as odd; none is a traceback.

40 of them are tried here, as many as `NNZBENCH_HOSTILE` says where it is set (`NNZBENCH_HOSTILE=400`).
"""

from __future__ import annotations

import copy
import csv
import dataclasses
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nnzbench import paths
from nnzbench.contribute.validate import validate
from nnzbench.records.record import COLUMNS, Record, read_records, to_row
from nnzbench.records.selection import select

COUNT = max(40, int(os.environ.get("NNZBENCH_HOSTILE") or 0))
GPU, EXPERIMENT, PROBLEMS = "nvidia-h200", "sputnik_figure7", 12
TIMES = ("median_us", "q1_us", "q3_us")
LIMITS = ("limit_us", "floor_us")
MARKUP = (
    "<script>x</script>",
    "](javascript:x)",
    "=1+1",
    "a|b",
    "`x`",
    "\u202e",
    "\x1b[0m",
    "y" * 500,
    "../x",
    "&#60;b",
)


@dataclasses.dataclass
class Set:
    """A set to be forged."""

    rows: list[Record]
    snapshots: dict[str, dict[str, Any]]
    tuning: list[dict[str, str]]

    def timed(self) -> list[int]:
        return [at for at, row in enumerate(self.rows) if row.median_us is not None]

    def scale(self, places: list[int], by: float, *names: str) -> None:
        for at in places:
            given = {name: getattr(self.rows[at], name) for name in names}
            new: dict[str, Any] = {name: float(f"{value * by:.6g}") for name, value in given.items() if value}
            self.rows[at] = dataclasses.replace(self.rows[at], **new)

    def change(self, at: int, **new: Any) -> None:
        self.rows[at] = dataclasses.replace(self.rows[at], **new)

    def peaks(self) -> list[dict[str, float]]:
        return [one["peaks"] for one in self.snapshots.values()]


Lie = Callable[[Set, random.Random], None]


def everything_divided(forged: Set, rng: random.Random) -> None:
    by = rng.uniform(5, 200)
    forged.scale(list(range(len(forged.rows))), 1 / by, *TIMES, *LIMITS)
    for peaks in forged.peaks():
        peaks.update({name: value / by for name, value in peaks.items() if "floor" in name})
        if rng.random() < 0.5:
            peaks.update({name: value * by for name, value in peaks.items() if name.endswith(("gbs", "tflops"))})


def peaks_raised(forged: Set, rng: random.Random) -> None:
    name = rng.choice(["copy_gbs", "fp32_tflops", "f16_tflops", "tf32_tflops", "l2_gbs"])
    for peaks in forged.peaks():
        peaks[name] *= 10 ** rng.uniform(1, 6)


def limits_at_the_floor(forged: Set, rng: random.Random) -> None:
    for at in forged.timed():
        forged.change(at, limit_us=forged.rows[at].floor_us)


def clocks(forged: Set, rng: random.Random) -> None:
    by = rng.uniform(1.5, 2.4)
    forged.scale(forged.timed(), by, "sm_clock_mhz")
    for one in forged.snapshots.values():
        if rng.random() < 0.5:
            one["gpu"].update(sm_clock_max_mhz=1980 * by)


def chip(forged: Set, rng: random.Random) -> None:
    for one in forged.snapshots.values():
        one["gpu"]["sms"] = rng.randint(140, 10_000)


def rows_twice(forged: Set, rng: random.Random) -> None:
    forged.rows += rng.sample(forged.rows, rng.randint(1, 30))


def hot_above_cold(forged: Set, rng: random.Random) -> None:
    forged.scale([at for at in forged.timed() if forged.rows[at].policy == "hot"], rng.uniform(10, 40), *TIMES)


def median_outside(forged: Set, rng: random.Random) -> None:
    at = rng.choice(forged.timed())
    forged.scale([at], *rng.choice([(0.5, "q3_us"), (2.0, "q1_us")]))


def copied_to_problems(forged: Set, rng: random.Random) -> None:
    places = forged.timed()
    for at in rng.sample(places, len(places) // 2):
        source = forged.rows[rng.choice(places)]
        forged.change(at, **{name: getattr(source, name) for name in TIMES})


def work(forged: Set, rng: random.Random) -> None:
    forged.scale(forged.timed(), rng.uniform(2, 50), "flops")


def counts(forged: Set, rng: random.Random) -> None:
    for at in forged.timed():
        forged.change(at, nnz=forged.rows[at].nnz // 2)


def pattern(forged: Set, rng: random.Random) -> None:
    wanted = rng.choice(forged.timed())
    name = forged.rows[wanted].problem
    for at, row in enumerate(forged.rows):
        if row.problem == name:
            forged.change(at, pattern=f"{rng.getrandbits(64):016x}" if row.pattern else "")


def error(forged: Set, rng: random.Random) -> None:
    forged.change(rng.choice(forged.timed()), relative_error=rng.uniform(0.05, 1e6))


def below_the_floor(forged: Set, rng: random.Random) -> None:
    forged.scale([rng.choice(forged.timed())], rng.uniform(0.0001, 0.01), *TIMES)


def selection(forged: Set, rng: random.Random) -> None:
    wanted = rng.choice([at for at in forged.timed() if forged.rows[at].selected])
    forged.change(wanted, selected=False)
    forged.rows = [Loose(**vars(row)) for row in forged.rows]  # as it says, and not as times do


class Loose(Record):
    """A row that is not marked anew."""


def texts(forged: Set, rng: random.Random) -> None:
    column = rng.choice(
        ["problem", "source", "variant", "kernel", "gpu", "reason", "arch", "policy", "dtype", "pattern"]
    )
    forged.change(rng.choice(forged.timed()), **{column: rng.choice(MARKUP)})


def tuned(forged: Set, rng: random.Random) -> None:
    line = rng.choice(forged.tuning)
    line.update(rng.choice([{"seconds": "-1"}, {"seconds": "nan"}, {"kernel": MARKUP[0]}, {"untuned": MARKUP[1]}]))


def snapshot(forged: Set, rng: random.Random) -> None:
    one = rng.choice(list(forged.snapshots.values()))
    wrong: list[dict[str, Any]] = [
        {"source": {}}, {"source": {"commit": "HEAD"}}, {"gpu": []}, {"gpu": {"name": "NVIDIA T4"}}, {"peaks": {}},
        {"peaks": {"copy_gbs": float("nan")}}, {"host": {"a": {"b": {"c": {"d": {"e": 1}}}}}}, {"schema": 7},
        {"software": {"x": MARKUP[0]}}, {"host": {"hostname": "n1"}},
        {"host": {"x": "/".join(("", "home", "ada", "run"))}},
    ]  # fmt: skip
    one.update(rng.choice(wrong))


def another_gpu(forged: Set, rng: random.Random) -> None:
    for at in range(len(forged.rows)):
        forged.change(at, gpu="nvidia-b200")


def a_copy_with_a_factor(forged: Set, rng: random.Random) -> None:
    forged.scale(forged.timed(), rng.uniform(1.05, 3), *TIMES)


def one_kernel_favoured(forged: Set, rng: random.Random) -> None:
    by = rng.uniform(1.4, 2.5)
    for at in forged.timed():
        noise = rng.gauss(1, 0.01)
        forged.scale([at], (1 / by if forged.rows[at].kernel == "sputnik" else 1) * noise, *TIMES)


REFUSED: tuple[Lie, ...] = (
    everything_divided, peaks_raised, limits_at_the_floor, clocks, chip, rows_twice, hot_above_cold, median_outside,
    copied_to_problems, work, counts, pattern, error, below_the_floor, selection, texts, tuned, snapshot, another_gpu,
)  # fmt: skip
ODD: tuple[Lie, ...] = (a_copy_with_a_factor, one_kernel_favoured)
"""What no rule forbids: only other records tell."""
LIES = (*REFUSED, *ODD)


@pytest.fixture(scope="module")
def real() -> Set:
    folder = paths.reports() / GPU / EXPERIMENT
    if not folder.is_dir():
        pytest.skip("the published records are not here")
    every = read_records(folder / "records.parquet")
    names = sorted({row.problem for row in every if row.median_us is not None})[-PROBLEMS:]
    rows = [row for row in every if row.problem in names]
    files = {row.environment for row in rows}
    with (folder / "tuning.csv").open(newline="") as file:
        tuning = [line for line in csv.DictReader(file) if line["problem"] in names]
    return Set(rows, {name: json.loads((folder / name).read_text()) for name in sorted(files)}, tuning)


def written(forged: Set, root: Path) -> Path:
    folder = root / GPU / EXPERIMENT
    folder.mkdir(parents=True)
    rows = forged.rows if any(isinstance(row, Loose) for row in forged.rows) else select(forged.rows)
    with (folder / "records.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *map(to_row, rows)])
    for name, one in forged.snapshots.items():
        (folder / name).write_text(json.dumps(one))
    with (folder / "tuning.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(forged.tuning[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(forged.tuning)
    return folder


def test_the_set_that_is_forged_is_fit(real: Set, tmp_path: Path) -> None:
    found = validate(written(real, tmp_path))
    assert [one.sentence for one in found if one.fault] == []
    assert any("closer than two runs are" in one.sentence for one in found), "it is a copy of what is published"


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_forged_set_is_refused_or_told_as_odd(real: Set, tmp_path: Path, lie: Lie) -> None:
    at = LIES.index(lie)
    for seed in range(at, COUNT, len(LIES)):
        rng = random.Random(seed)
        forged = copy.deepcopy(real)
        lie(forged, rng)
        folder = written(forged, tmp_path / str(seed))
        started = time.process_time()
        found = validate(folder)
        assert time.process_time() - started < 10.0
        assert all(one.sentence.isprintable() and len(one.sentence) < 1000 for one in found)
        if lie in REFUSED:
            assert any(one.fault for one in found), seed
        else:
            told = "closer than two runs are" if lie is a_copy_with_a_factor else "the times of `sputnik` are "
            assert any(told in one.sentence for one in found), (seed, found)
        shutil.rmtree(tmp_path / str(seed))
