"""The recorded experiments of one GPU as claims need them: timed rows, and the problems that there should be."""

from __future__ import annotations

import copy
import functools
import re
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from nnzbench import paths
from nnzbench.facts.results import GPU_DEVICES, load
from nnzbench.problems import tables
from nnzbench.problems.names import stem_of
from nnzbench.problems.problem import Problem
from nnzbench.records.files import has_records
from nnzbench.records.record import RecordError
from nnzbench.report.data.series import Series, pick, rows_of

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
    median_us: float
    floor_us: float
    gflops: float
    memory_bytes: float
    """Device memory that the candidate took at most; NaN where it was not measured."""
    cut: bool = False
    """Whether tuning may bring a faster one: a kernel that competes for the time was not tuned on the problem."""


_RECORDED = tuple(name for name in Row._fields if name != "cut")
_NEEDED = (*_RECORDED, "status", "math", "role", "selected", "cut_short")
"""What a row must tell and what `pick` asks."""
_REPEATED = ("kernel", "variant", "status", "math", "role", "cut_short")
"""Columns of few words, which are compared some hundred times."""


class Records:
    """Reads each experiment once. One that breaks the schema counts as not recorded, and `gap` says so."""

    def __init__(self, reports: Path, gpu: str) -> None:
        self.gpu = gpu
        self._folder = reports / gpu
        self._read: dict[str, dict[str, pd.DataFrame]] = {}
        self._refused: set[str] = set()
        self._times: dict[tuple[frozenset[str] | None, str, str, Series, str], dict[str, Row]] = {}
        self._roles: frozenset[str] | None = None

    def published(self) -> Records:
        """The same records without this project's own designs and users' kernels: all that may judge a claim."""
        view = copy.copy(self)
        view._roles = JUDGES
        return view

    def times(self, experiment: str, policy: str, series: Series, cases: str) -> dict[str, Row]:
        """The row that `pick` finds for each case: what the groups of pattern `cases` hold at the start of a stem."""
        key = (self._roles, experiment, policy, series, cases)
        if key not in self._times:
            frame = self._experiment(experiment).get(policy)
            self._times[key] = {} if frame is None else _picked(frame, self._roles, series, cases)
        return self._times[key]

    def expected(self, experiment: str, math_class: str, cases: str) -> frozenset[str]:
        """Cases of the problems of the experiment's table in the dtype that goes with an arithmetic class."""
        return _cases(experiment, math_class if math_class in ("f16", "i8") else "f32", cases)

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

    def _experiment(self, experiment: str) -> dict[str, pd.DataFrame]:
        if experiment not in self._read:
            try:
                self._read[experiment] = _timed(self._folder / experiment)
            except RecordError:
                self._read[experiment] = {}
                self._refused.add(experiment)
        return self._read[experiment]


def case_by(cases: str, name: str) -> str | None:
    """The case that a problem's stem belongs to, None where the pattern is not at its start."""
    found = re.match(cases, name)
    return None if found is None else " ".join(found.groups())


def _picked(frame: pd.DataFrame, roles: frozenset[str] | None, series: Series, cases: str) -> dict[str, Row]:
    """`pick` by case, of rows of the given roles."""
    rows = rows_of(frame, series)  # few of many, and `pick` finds the same among them
    if roles is not None:
        rows = rows[rows["role"].isin(roles)]
    named = rows["stem"].map({name: case_by(cases, name) for name in rows["stem"].unique()})
    rows = rows.assign(case=named)[named.notna()]
    cut = frozenset() if series.untunable else frozenset(rows.loc[rows["cut_short"] != "", "case"])
    fastest = pick(rows, series, by=("case",)).to_dict("records")
    return {str(row["case"]): Row(**{name: row[name] for name in _RECORDED}, cut=row["case"] in cut) for row in fastest}


def _timed(folder: Path) -> dict[str, pd.DataFrame]:
    """By policy; empty without records of a GPU."""
    if not has_records(folder):
        return {}
    results = load(folder)
    if results.device not in GPU_DEVICES:
        return {}
    timed = results.frame[(results.frame["status"] == "ok") & results.frame["median_us"].notna()]
    timed = timed.assign(stem=[stem_of(name) for name in timed["problem"]])[["policy", *_NEEDED]]
    timed = timed.astype(dict.fromkeys(_REPEATED, "category"))
    return {str(policy): rows for policy, rows in timed.groupby("policy", sort=False)}


@functools.cache
def _problems(experiment: str) -> tuple[Problem, ...]:
    return tuple(tables.load(experiment, False))


@functools.cache
def _cases(experiment: str, dtype: str, cases: str) -> frozenset[str]:
    found = (case_by(cases, stem_of(p.name)) for p in _problems(experiment) if p.dtype == dtype)
    return frozenset(case for case in found if case is not None)


@functools.cache
def _counts(experiment: str) -> dict[str, int]:
    return {stem_of(row.problem.name): row.count for row in tables.rows(experiment)}
