"""One experiment's records ready to be compared: every problem with its attributes, every time with its run."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.problems import tables
from nnzbench.data.problems.experiment import POLICIES
from nnzbench.data.problems.problem import label_of, parse, stem_of
from nnzbench.results.groups import Group
from nnzbench.results.result_set import ResultSet, each, size_of
from nnzbench.results.selector import Selector, fastest_of, rows_of

ROW = (
    "problem", "policy", "source", "kernel", "variant", "math", "m", "k", "n", "nnz", "sparsity", "median_us",
    "q1_us", "q3_us", "floor_us", "gflops", "memory_bytes", "sm_clock_mhz", "run", "tuned",
)  # fmt: skip
"""What is kept of the row that stands for a side."""
UNASKED = {
    "schema", "experiment", "pattern_hash", "gpu", "reason", "samples", "prepare_ms", "compile_ms", "registers",
    "shared_bytes", "spill_bytes", "code_bytes", "untuned",
}  # fmt: skip
"""Columns of records that no comparison asks for."""


class Data:
    """What facts are computed from. Attributes of problems are columns of `problems`:

    problem, stem, label, op, m, k, n, shape, size, sparsity (counted), level (percent, as the table has it), kind (of
    source), source, dtype, model, count, batch, place (in the table), and the named groups of `attributes`, a regular
    expression of labels.
    """

    def __init__(self, results: ResultSet, attributes: str = "", policies: Sequence[str] = POLICIES) -> None:
        self.results = results
        self.frame = results.frame
        self.problems = described(results.experiment, results.frame, attributes)
        timed = self.frame.loc[self.frame["median_us"].notna(), ~self.frame.columns.isin(UNASKED)]
        # rows are picked hundreds of times, and texts taken several times faster as Python objects than as Arrow
        timed = timed.astype({name: object for name in timed if timed[name].dtype == "str"})
        self._timed = timed.copy()  # columns of one type side by side, which rows are taken from at once
        self._of_kernel = self._timed.groupby("kernel").indices
        self.policies: list[str] = [name for name in policies if (timed["policy"] == name).any()]
        self._runs = _runs(results)
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
                wanted = fastest_of(self._competing(like), on)[[*on, "variant"]]
                rows = rows.reset_index().merge(wanted, on=[*on, "variant"]).set_index("index")
            self._times[key] = self._least(rows, selector.untunable) if len(rows) else self._no_times
        return self._times[key]

    def _competing(self, selector: Selector) -> pd.DataFrame:
        """The timed rows that compete in a selector, sought among those of its kernels alone."""
        if not selector.kernels:
            return rows_of(self._timed, selector)
        at = [self._of_kernel[name] for name in {*selector.kernels} & {*self._of_kernel}]
        return rows_of(self._timed.iloc[np.sort(np.concatenate(at)) if at else []], selector)

    @functools.cached_property
    def wrong(self) -> pd.DataFrame:
        """The rows whose results are wrong: few, if any."""
        return self.frame[self.frame["status"] == "wrong"]

    @functools.cached_property
    def _no_times(self) -> pd.DataFrame:
        """The times of the many selectors in which nothing recorded competes."""
        return self._least(self._timed.iloc[:0], True)

    def _least(self, rows: pd.DataFrame, untunable: bool) -> pd.DataFrame:
        """The fastest of the rows, with what `times` adds."""
        picked = fastest_of(rows)
        stems = picked["problem"].map(stem_of)
        cut = rows[rows["cut_short"] != ""] if not untunable else rows.iloc[:0]
        short = set(zip(cut["policy"], cut["problem"].map(stem_of), strict=True))
        at = pd.Index(self.problems["problem"]).get_indexer(picked["problem"])
        return picked.assign(
            at=at,
            **{name: self.problems[name].to_numpy()[at] for name in ("label", "count")},
            stem=stems,
            run=picked["environment"].map(self._runs),
            tuned=[pair not in short for pair in zip(picked["policy"], stems, strict=True)],
        )

    def fastest(
        self,
        group: Group,
        selector: Selector,
        like: Selector | None = None,
        by: Sequence[str] = (),
        baseline: bool = False,
    ) -> dict[str, pd.DataFrame]:
        """By policy: the row of the least time of each of the group's cases (the index) and each value of `by`.

        `ROW` has its columns, but `tuned` is of all that competes; `label`, `count` and the attributes `by` are the
        problem's. `like` as in `times`; `baseline`: the problems of that side.
        """
        baseline = baseline and bool(group.baseline_like or group.baseline_cases)
        group = replace(group, statistic="geometric mean", counted=False, ideal=False, words="")
        key = (group, selector, like, tuple(by), baseline)
        if key not in self._fastest:
            rows = self.times(selector, like)
            case = self._cases(group, baseline)[rows["at"]]
            there = pd.notna(case)
            if not there.any():  # as most kernels have of most groups
                self._fastest[key] = {}
                return {}
            rows, case = rows.loc[there, [*ROW, "label", "count", "at"]], case[there]
            told = {name: self.problems[name].to_numpy()[rows["at"]] for name in by}
            rows = rows.assign(case=case, **told)
            keys = list(dict.fromkeys(["policy", "case", *by]))
            if rows.duplicated(keys).any():
                rows["tuned"] = rows.groupby(keys, dropna=False)["tuned"].transform("all")
                rows = rows.sort_values("median_us", kind="stable").drop_duplicates(keys).sort_index()
            rows = rows.set_index("case")
            self._fastest[key] = {name: rows[rows["policy"] == name] for name in sorted(set(rows["policy"]))}
        return self._fastest[key]

    def of(self, group: Group, baseline: bool = False) -> pd.DataFrame:
        """Those of `problems` that are the group's, with their `case`: `Group.problems`, made once."""
        key = (group, baseline)
        if key not in self._of:
            self._of[key] = group.problems(self.problems, baseline)
        return self._of[key]

    def _cases(self, group: Group, baseline: bool) -> NDArray[np.object_]:
        """The case of each of `problems`, NaN for those that are not the group's."""
        return self.of(group, baseline)["case"].reindex(self.problems.index).to_numpy(object)

    def cells(self, selectors: Sequence[Selector]) -> pd.DataFrame:
        """The times of all these, `subject` naming whose each is, with the problem's attributes; in table order."""
        parts = [self.times(one).assign(subject=one.label, order=at) for at, one in enumerate(selectors)]
        rows = pd.concat(parts) if parts else self.frame.iloc[:0].assign(subject="", order=0)
        told = rows.columns.intersection(self.problems.columns).drop("problem")
        rows = rows.drop(columns=told).merge(self.problems, on="problem", how="inner")
        return rows.sort_values(["place", "order"], kind="stable", ignore_index=True)


@functools.cache
def table_rows(experiment: str) -> Mapping[str, tuple[int, tables.Row]]:
    """Place and line of the experiment's table by stem; empty where it has no table."""
    try:
        rows = tables.rows(experiment, full=True)
    except MatrixError:
        return {}
    return {stem_of(row.problem.name): (at, row) for at, row in reversed(list(enumerate(rows)))}


def described(experiment: str, rows: pd.DataFrame, attributes: str) -> pd.DataFrame:
    """Of rows with the columns of records: one per problem with all its attributes, in the table's order."""
    columns = ["problem", "op", "m", "k", "n", "shape", "sparsity", "source", "dtype", "nnz"]
    found = rows[columns].drop_duplicates("problem").reset_index(drop=True)
    known = table_rows(experiment)
    names = [parse(str(name)) for name in found["problem"]]
    found["stem"] = found["problem"].map(stem_of)
    lines = [known.get(stem) for stem in found["stem"]]
    found["label"] = [label_of(str(name)) or str(name) for name in found["problem"]]
    found["level"] = [
        float(one.level) if one else round(100 * zeros, 1) for one, zeros in zip(names, found["sparsity"], strict=True)
    ]
    found["kind"] = [one.kind if one else "" for one in names]
    found["batch"] = [one.batch if one else 0 for one in names]
    found["size"] = [size_of(row) for row in each(found)]
    found["place"] = [line[0] if line else len(known) for line in lines]
    found["model"] = [line[1].model if line else "" for line in lines]
    found["count"] = [line[1].count if line else 1 for line in lines]
    if attributes:
        matches = [re.fullmatch(attributes, label) for label in found["label"]]
        for name in re.compile(attributes).groupindex:
            found[name] = _numbers([(one[name] or "") if one else "" for one in matches])
    return found.sort_values("place", kind="stable", ignore_index=True)


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
