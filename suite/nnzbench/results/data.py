"""One experiment's records ready to be compared: every problem with its attributes, every time with its run."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from nnzbench.data.problems.experiment import POLICIES
from nnzbench.data.problems.problem import Problem
from nnzbench.results.groups import Group
from nnzbench.results.records.describe import of_problem
from nnzbench.results.records.selection import least
from nnzbench.results.result_set import ResultSet, each, named, size_of
from nnzbench.results.selector import Selector, ranked, rows_of

ROW = [
    "problem", "policy", "source", "m", "k", "sparsity", "median_us", "q1_us", "q3_us", "floor_us", "gflops",
    "sm_clock_mhz", "run", "tuned", "label", "count", "at",
]  # fmt: skip
"""What is kept of the row that stands for a side."""
PROBLEM = [
    "problem", "stem", "label", "level", "kind", "batch", "model", "count", "place", "op", "m", "k", "n", "shape",
    "sparsity", "source", "dtype", "nnz",
]  # fmt: skip
"""What records say of a problem, and a comparison asks for."""
UNASKED = {
    "schema", "experiment", "pattern_hash", "gpu", "reason", "samples", "prepare_ms", "compile_ms", "registers",
    "shared_bytes", "spill_bytes", "code_bytes", "level", "kind", "batch", "model", "place", "step", "pattern",
    "layout", "choice", "weights", "work", "part", "settled", "captured", "search", "metric", "case", "untuned",
}  # fmt: skip
"""Columns of records that no comparison asks for, or asks `problems` for."""
_COMPETING = ["status", "math", "kernel", "role", "source", "variant", "problem", "policy", "dtype", "stem"]


class Data:
    """What facts are computed from. Attributes of problems are columns of `problems`:

    `PROBLEM`, size, sparsity (counted), level (percent, as the table has it, else as counted; `asked` where there is
    one alone), and the named groups of `attributes`, a regular expression of labels.
    """

    def __init__(self, results: ResultSet, attributes: str = "", policies: Sequence[str] = POLICIES) -> None:
        self.results = results
        self.frame = results.frame
        self.problems = described(results.frame, attributes)
        timed = self.frame.loc[self.frame["median_us"].notna(), ~self.frame.columns.isin(UNASKED)]
        timed = timed.reset_index(drop=True).assign(
            at=lambda rows: pd.Index(self.problems["problem"]).get_indexer(rows["problem"]),
            run=timed["environment"].map(_runs(results)).to_numpy(object),
            tuned=True,
        )
        # rows are taken hundreds of times: columns of one type side by side, and texts as Python objects
        self._timed = timed.astype({name: object for name in timed if timed[name].dtype == "str"}).copy()
        # and sought more often, by few columns, whose texts are numbered
        sought = timed[_COMPETING].astype("category").assign(**timed[["median_us", "superseded"]])
        sought = sought.assign(cut=timed["cut_short"] != "", unit=sought.groupby(["policy", "stem"]).ngroup())
        self._sought = ranked(sought.assign(selected=timed["selected"]))
        self._of_kernel = self._sought.groupby("kernel").indices
        self.policies: list[str] = [name for name in policies if (timed["policy"] == name).any()]
        self._times: dict[tuple[Selector, Selector | None], pd.DataFrame] = {}
        self._of: dict[tuple[Group, bool], pd.DataFrame] = {}
        self._fastest: dict[tuple[object, ...], dict[str, pd.DataFrame]] = {}

    def times(self, selector: Selector, like: Selector | None = None) -> pd.DataFrame:
        """One row per policy and problem with a time: problem, policy, stem, kernel, variant, median_us, q1_us, q3_us,
        limit_us, limit_share, gflops, flops, bytes, memory_bytes, floor_us, source, run (a text), tuned, at (in
        `problems`).

        `like`: only rows whose variant is that selector's fastest on the problem.
        """
        key = (selector, like)
        if key not in self._times:
            rows = self._competing(selector)
            if like is not None:
                on = ["problem", "policy", "dtype"]
                wanted = least(self._competing(like), on)
                alike = [pd.MultiIndex.from_frame(some[[*on, "variant"]].astype(object)) for some in (rows, wanted)]
                rows = rows[alike[0].isin(alike[1])]
            found = least(rows, ["problem", "policy"])
            times = self._timed.iloc[found.index]
            if not selector.untunable and rows["cut"].any():
                times = times.assign(tuned=~found["unit"].isin(rows.loc[rows["cut"], "unit"]))
            self._times[key] = times
        return self._times[key]

    def _competing(self, selector: Selector) -> pd.DataFrame:
        """What is sought of the timed rows that compete in a selector, among those of its kernels alone."""
        if not selector.kernels:
            return rows_of(self._sought, selector)
        at = [self._of_kernel[name] for name in {*selector.kernels} & {*self._of_kernel}]
        return rows_of(self._sought.iloc[np.sort(np.concatenate(at))], selector) if at else self._sought.iloc[:0]

    @functools.cached_property
    def wrong(self) -> pd.DataFrame:
        """The rows whose results are wrong: few, if any."""
        return self.frame[self.frame["status"] == "wrong"]

    def fastest(
        self,
        group: Group,
        selector: Selector,
        like: Selector | None = None,
        by: Sequence[str] = (),
        baseline: bool = False,
    ) -> dict[str, pd.DataFrame]:
        """By policy: the row of the least time of each of the group's cases (the index) and each value of `by`.

        `ROW` has its columns, but `tuned` is of all that competes; the attributes `by` are the problem's. `like` as in
        `times`; `baseline`: the problems of that side.
        """
        baseline = baseline and bool(group.baseline_like or group.baseline_cases)
        group = replace(group, statistic="geometric mean", counted=False, ideal=False, words="")
        key = (group, selector, like, tuple(by), baseline)
        if key not in self._fastest:
            rows = self.times(selector, like)
            case = self.of(group, baseline)["case"].reindex(rows["at"]).to_numpy(object)
            there = pd.notna(case)
            if not there.any():  # as most kernels have of most groups
                self._fastest[key] = {}
                return {}
            rows, case = rows.loc[there, ROW], case[there]
            told = {name: self.problems[name].to_numpy()[rows["at"]] for name in by}
            rows = least_tuned(rows.assign(case=case, **told), list(dict.fromkeys(["policy", "case", *by])))
            rows = rows.set_index("case")
            self._fastest[key] = {name: rows[rows["policy"] == name] for name in sorted(set(rows["policy"]))}
        return self._fastest[key]

    def of(self, group: Group, baseline: bool = False) -> pd.DataFrame:
        """Those of `problems` that are the group's, with their `case`: `Group.problems`, made once."""
        key = (group, baseline)
        if key not in self._of:
            self._of[key] = group.problems(self.problems, baseline)
        return self._of[key]

    def cells(self, selectors: Sequence[Selector]) -> pd.DataFrame:
        """The times of all these, `subject` naming whose each is, with the problem's attributes; in table order."""
        parts = [self.times(one).assign(subject=one.label, order=at) for at, one in enumerate(selectors)]
        rows = pd.concat(parts) if parts else self.frame.iloc[:0].assign(subject="", order=0)
        told = rows.columns.intersection(self.problems.columns).drop("problem")
        rows = rows.drop(columns=told).merge(self.problems, on="problem", how="inner")
        return rows.sort_values(["place", "order"], kind="stable", ignore_index=True)


def least_tuned(times: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """The least time of each, tuned where all of its times are."""
    if not times.duplicated(by).any():
        return times
    return least(times.assign(tuned=times.groupby(by, dropna=False)["tuned"].transform("all")), by)


def planned(problems: Iterable[Problem], attributes: str = "") -> pd.DataFrame:
    """`described` of problems that need no record: none are counted."""
    names = ("m", "k", "n", "shape", "sparsity", "source", "dtype")
    rows = [
        {"problem": one.name, "op": one.recorded_op, "nnz": 0, **{name: getattr(one, name) for name in names}}
        | of_problem(one)
        for one in problems
    ]
    return described(named(pd.DataFrame(rows, columns=[name for name in PROBLEM if name != "stem"])), attributes)


def described(rows: pd.DataFrame, attributes: str) -> pd.DataFrame:
    """Of rows with the columns `PROBLEM`: one per problem with all its attributes, in the table's order."""
    found = rows[PROBLEM].drop_duplicates("problem").sort_values("place", kind="stable", ignore_index=True)
    counted = (100 * found["sparsity"]).round(1)
    found = found.assign(
        asked=found["level"], level=found["level"].fillna(counted), size=list(map(size_of, each(found)))
    )
    if attributes:
        matches = [re.fullmatch(attributes, label) for label in found["label"]]
        for name in re.compile(attributes).groupindex:
            found[name] = _numbers([(one[name] or "") if one else "" for one in matches])
    return found


def _numbers(values: Sequence[str]) -> Any:
    """Numbers where all that are not empty are, and there are some."""
    if not any(values):
        return values
    try:
        return [float(value) if value else np.nan for value in values]
    except ValueError:
        return values


def _runs(results: ResultSet) -> dict[str, str]:
    """By name of environment: commit and GPU, alike for the sessions of one run; the name where the GPU is not told."""
    found = {}
    for name, _, content in results.environments:
        source = content.get("source")
        commit = str(source.get("commit", "")) if isinstance(source, dict) else ""
        found[name] = f"{commit} {content.get('worker', name)}"
    return found
