"""The recorded experiments of one GPU as claims need them: timed rows, and the problems that there should be."""

from __future__ import annotations

import copy
import functools
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from nnzbench import paths, tables
from nnzbench.problem import Problem
from nnzbench.problem_names import stem_of
from nnzbench.record import RecordError
from nnzbench.report.frames import GPU_DEVICES, load
from nnzbench.roles import OURS

JUDGES = frozenset({"paper", "library"})
"""Roles whose rows judge claims: a paper's method as published, and the libraries that papers compare with."""


class Row(NamedTuple):
    """A checked, timed row."""

    stem: str
    kernel: str
    variant: str
    source: str
    sparsity: float
    m: int
    k: int
    n: int
    nnz: int
    role: str
    median_us: float
    floor_us: float
    gflops: float
    memory_bytes: float
    """Device memory that the candidate took at most; NaN where it was not measured."""


class Records:
    """Reads each experiment once. One that breaks the schema counts as not recorded, and `gap` says so."""

    def __init__(self, reports: Path, gpu: str) -> None:
        self.gpu = gpu
        self._folder = reports / gpu
        self._read: dict[str, dict[tuple[str, str], list[Row]]] = {}
        self._refused: set[str] = set()
        self._roles: frozenset[str] | None = None

    def published(self) -> Records:
        """The same records without this project's own designs and users' kernels: all that may judge a claim."""
        view = copy.copy(self)
        view._roles = JUDGES
        return view

    def rows(self, experiment: str, policy: str, math_class: str, kernels: Collection[str]) -> list[Row]:
        """Rows of these kernels, of every kernel written here for none."""
        found = self._experiment(experiment).get((policy, math_class), [])
        if self._roles is not None:
            found = [row for row in found if row.role in self._roles]
        return [row for row in found if (row.kernel in kernels if kernels else row.role in OURS)]

    def expected(self, experiment: str, math_class: str) -> frozenset[str]:
        """Stems of the problems of the experiment's table in the dtype that goes with an arithmetic class."""
        return _stems(experiment, "f16" if math_class == "f16" else "f32")

    def count(self, experiment: str, name: str) -> int:
        """How often a problem, by its stem, counts: times that its model has it, or matrices that it stands for."""
        return _counts(experiment).get(name, 1)

    def gap(self, experiment: str, what: str, policy: str) -> str:
        """Why there is no number: nothing recorded, or no problem with all the times."""
        recorded = self._experiment(experiment)
        if experiment in self._refused:
            return f"The records of {experiment} are refused; `nnzbench report {experiment}` says why."
        if not recorded:
            return f"{experiment} is not recorded on this GPU yet."
        return f"No problem of {experiment} has a checked {policy} time of {what}."

    def fp32_peak(self) -> float:
        """TFLOP/s of the data sheet, 0 where it is unknown."""
        sheet = pd.read_csv(paths.datasets() / "gpus.csv").set_index("slug")["fp32_tflops"]
        return float(sheet.get(self.gpu, 0.0))

    def _experiment(self, experiment: str) -> dict[tuple[str, str], list[Row]]:
        if experiment not in self._read:
            try:
                self._read[experiment] = _rows(self._folder / experiment)
            except RecordError:
                self._read[experiment] = {}
                self._refused.add(experiment)
        return self._read[experiment]


def _rows(folder: Path) -> dict[tuple[str, str], list[Row]]:
    """By policy and arithmetic class; empty without records of a GPU."""
    if not (folder / "records.csv").is_file():
        return {}
    results = load(folder)
    found: dict[tuple[str, str], list[Row]] = {}
    if results.device in GPU_DEVICES:
        timed = results.frame[(results.frame["status"] == "ok") & results.frame["median_us"].notna()]
        for row in timed.assign(stem=[stem_of(name) for name in timed["problem"]]).to_dict("records"):
            kept = Row(**{name: row[name] for name in Row._fields})
            found.setdefault((row["policy"], row["math"]), []).append(kept)
    return found


@functools.cache
def _problems(experiment: str) -> tuple[Problem, ...]:
    return tuple(tables.load(experiment, False))


@functools.cache
def _stems(experiment: str, dtype: str) -> frozenset[str]:
    return frozenset(stem_of(p.name) for p in _problems(experiment) if p.dtype == dtype)


@functools.cache
def _counts(experiment: str) -> dict[str, int]:
    return {stem_of(row.problem.name): row.count for row in tables.rows(experiment)}
