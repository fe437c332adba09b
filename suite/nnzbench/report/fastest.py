"""The fastest checked row per problem, and the lines that a page in a paper's own form hands to `summary.csv`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import pandas as pd

from nnzbench.report.frames import geometric_mean
from nnzbench.report.tables import GAP, number

SUMMARY_COLUMNS = (
    "policy", "table", "row", "series", "gpu", "problem", "kernel", "variant", "math",
    "time_us", "q1_us", "q3_us", "limit_share", "baseline_us", "speedup",
)  # fmt: skip

NO_TIMES = "No row has a time, so nothing is drawn."


def fastest(
    frame: pd.DataFrame,
    policy: str,
    kernels: Collection[str],
    math_class: str,
    keep: Callable[[str], bool] = lambda variant: True,
) -> pd.DataFrame:
    """Indexed by problem: the fastest row with a checked time among variants that `keep` accepts."""
    here = (frame["policy"] == policy) & (frame["status"] == "ok") & frame["median_us"].notna()
    here &= (frame["math"] == math_class) & frame["kernel"].isin(list(kernels))
    rows = frame[here]
    kept = pd.Series([keep(str(variant)) for variant in rows["variant"]], index=rows.index, dtype=bool)
    ordered = rows[kept].sort_values(["median_us", "kernel", "variant"], kind="stable")
    return ordered.drop_duplicates("problem").set_index("problem")


def time_of(rows: pd.DataFrame, problem: str) -> float:
    """Microseconds of a problem in what `fastest` found, NaN where it has none."""
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


def missing(what: str, policy: str, labels: Iterable[str], total: int) -> str:
    """A sentence naming the rows without a checked time; empty for none."""
    lost = list(labels)
    if not lost:
        return ""
    where = "for any row" if len(lost) == total else f"for {', '.join(lost)}"
    return f"No checked time of {what} ({policy}) is recorded {where}."


def unknown_problems(frame: pd.DataFrame, known: Collection[str]) -> list[str]:
    """Sentences on recorded problems that are not in the paper's table."""
    return [
        f"`{name}` is in the records but not in the paper's table; it is not drawn."
        for name in sorted(set(frame["problem"]) - set(known))
    ]
