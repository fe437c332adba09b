"""What a page in a paper's own form makes of picked rows: the lines of `summary.csv`, means, and what is missing."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from nnzbench.facts.results import geometric_mean
from nnzbench.kernels.registry import kernels
from nnzbench.report.data.series import Series
from nnzbench.report.text.tables import GAP, number

SUMMARY_COLUMNS = (
    "policy", "table", "row", "series", "gpu", "problem", "kernel", "variant", "math",
    "time_us", "q1_us", "q3_us", "limit_share", "baseline_us", "speedup",
)  # fmt: skip

NO_TIMES = "No row has a time, so nothing is drawn."


def time_of(rows: pd.DataFrame, problem: str) -> float:
    """Microseconds of a problem in picked rows, NaN where it has none."""
    return float(dict(zip(rows.index, rows["median_us"], strict=True)).get(problem, math.nan))


def measured(rows: pd.DataFrame, problem: str, **words: Any) -> dict[str, Any] | None:
    """The line of `summary.csv` for one recorded time; `words` are its policy, table, row, series and gpu."""
    if problem not in rows.index:
        return None
    row = rows.loc[problem]
    columns = ("kernel", "variant", "math", "q1_us", "q3_us", "limit_share")
    return {**words, "problem": problem, "time_us": row["median_us"], **{name: row[name] for name in columns}}


def summary(lines: Iterable[Mapping[str, Any] | None]) -> pd.DataFrame:
    """The lines that there are, as a frame with the columns of every such page."""
    frame = pd.DataFrame([line for line in lines if line is not None], columns=list(SUMMARY_COLUMNS))
    unknown = frame["speedup"].isna() & frame["baseline_us"].notna()
    frame.loc[unknown, "speedup"] = frame["baseline_us"] / frame["time_us"]
    return frame


def mean_cell(values: Iterable[float], digits: int = 2) -> str:
    """The geometric mean in bold, with `n of m` where some values are missing."""
    every = list(values)
    known = [value for value in every if not math.isnan(value)]
    if not known:
        return GAP
    partial = "" if len(known) == len(every) else f" ({len(known)} of {len(every)})"
    return f"**{number(geometric_mean(known), digits)}**{partial}"


class Lost(NamedTuple):
    """What has no checked time in some rows of a table under one policy."""

    what: str
    policy: str
    rows: tuple[str, ...]
    total: int
    """Rows that should have one."""
    why: str = ""
    """The reason for all of these, without a full stop; empty where it is not known."""


def by_reason(
    frame: pd.DataFrame, policy: str, series: Series, what: str, without: Mapping[str, str], total: int
) -> list[Lost]:
    """What a series lacks under a policy, apart for each reason that the records tell.

    `without` has the rows of the table, by the problems that they are of.
    """
    reasons: dict[str, list[str]] = {}
    for problem, row in without.items():
        reasons.setdefault(_why(frame[frame["problem"] == problem], policy, series), []).append(row)
    return [Lost(what, policy, tuple(rows), total, why) for why, rows in reasons.items()]


def _why(recorded: pd.DataFrame, policy: str, series: Series) -> str:
    """Why none of the rows recorded of a problem is a time of the series; empty where they do not tell."""
    if recorded.empty or not series.kernels:
        return ""
    names, op = " and ".join(f"`{name}`" for name in series.kernels), str(recorded["op"].iloc[0])
    here = kernels()
    if all(name in here and op not in here[name].ops for name in series.kernels):
        return f"{names} {'does' if len(series.kernels) == 1 else 'do'} not compute {op}"
    tried = recorded[(recorded["policy"] == policy) & (recorded["math"] == series.math)]
    tried = tried[tried["kernel"].isin(series.kernels)]
    if (tried["cut_short"] == "first").any():
        return f"the run's time was over there after the first choices of {names}, before such variants"
    return ""


def missing(found: Iterable[Lost]) -> list[str]:
    """Sentences naming what is missing where; what is missing in the same rows under the same policies is one."""
    policies: dict[tuple[str, tuple[str, ...], int, str], list[str]] = {}
    for lost in found:
        if lost.rows:
            policies.setdefault((lost.what, lost.rows, lost.total, lost.why), []).append(lost.policy)
    together: dict[tuple[tuple[str, ...], int, tuple[str, ...], str], list[str]] = {}
    for (what, rows, total, why), names in policies.items():
        together.setdefault((rows, total, tuple(names), why), []).append(what)
    sentences = []
    for (rows, total, under, why), whats in together.items():
        where = "for any row" if len(rows) == total else f"for {', '.join(rows)}"
        reason = f": {why}" if why else ""
        sentences.append(f"No checked time of {'; '.join(whats)} ({', '.join(under)}) is recorded {where}{reason}.")
    return sentences


def unknown_problems(frame: pd.DataFrame, known: Collection[str]) -> list[str]:
    """Sentences on recorded problems that are not in the paper's table."""
    return [
        f"`{name}` is in the records but not in the paper's table; it is not drawn."
        for name in sorted(set(frame["problem"]) - set(known))
    ]
