"""What a page says of its rows: what has no time and why, what was not tuned, at which clocks, and who recorded it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from nnzbench.facts.results import ResultSet, each
from nnzbench.facts.table import APART
from nnzbench.problems.problem import stem_of
from nnzbench.report.data import context
from nnzbench.report.text.tables import GAP, markdown

LOW = 1 - APART
"""Share of the usual clock below which a time is counted as measured at a lower one."""
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w|\.\d)")
"""A number that is no part of a name."""
_SCOPES = {"first": "only first choices tried", "some": "few candidates tried"}


def failures(frame: pd.DataFrame, names: Mapping[str, str]) -> str:
    """Markdown: rows without a time, with the problems they concern. Empty for none.

    Reasons that differ by numbers alone stand together, with the span of each number.
    """
    missing = frame[frame["status"] != "ok"]
    missing = missing.assign(alike=[_NUMBER.sub("#", str(reason)) for reason in missing["reason"]])
    rows = []
    for (kernel, variant, status, _), group in missing.groupby(["kernel", "variant", "status", "alike"], dropna=False):
        reason = _spans([str(one) for one in dict.fromkeys(group["reason"])])
        problems = list(dict.fromkeys(names.get(one, one) for one in group["problem"]))
        shown = ", ".join(problems) if len(problems) <= 6 else f"{len(problems)} problems"
        rows.append([str(kernel), f"`{variant}`" if variant else GAP, str(status), reason, shown, str(len(group))])
    return markdown(["kernel", "variant", "status", "reason", "problems", "rows"], rows, left=5) if rows else ""


def _spans(reasons: Sequence[str]) -> str:
    """The one reason that `reasons`, equal but for their numbers, are cases of: `at least 90-97 % ...`."""
    columns = zip(*(_NUMBER.findall(reason) for reason in reasons), strict=True)
    ends = [(min(numbers, key=float), max(numbers, key=float)) for numbers in columns]
    spans = iter(low if low == high else f"{low}-{high}" for low, high in ends)
    return _NUMBER.sub(lambda _: next(spans), reasons[0])


def untuned(frame: pd.DataFrame) -> str:
    """Markdown: on how many problems (all types of one together) each kernel was not tuned. Empty where all were."""
    cut = frame[(frame["cut_short"] != "") & frame["median_us"].notna()]
    counts = cut.assign(stem=cut["problem"].map(stem_of)).groupby(["cut_short", "kernel"])["stem"].nunique()
    rows = [[one.kernel, _SCOPES[one.cut_short], str(one.stem)] for one in each(counts.reset_index())]
    return markdown(["kernel", "", "problems"], sorted(rows, key=lambda row: -int(row[2])), left=2) if rows else ""


def clocks(frame: pd.DataFrame) -> str:
    """How many rows met a limit on the clock, how many of them far below the usual one; empty where none did."""
    limited = frame[frame["reason"].fillna("").str.contains("throttled", regex=False)]
    if limited.empty:
        return ""
    usual = frame["sm_clock_mhz"].median()
    low = int((limited["sm_clock_mhz"] < LOW * usual).sum())
    below = f"more than {100 * (1 - LOW):.0f} % below the usual {usual:.0f} MHz"
    return f"{len(limited):,} met a limit on the clock, {low:,} ran {below}"


def beyond(frame: pd.DataFrame) -> str:
    """How many rows take less than their roofline, and why the model allows it; empty where none does."""
    share = frame["limit_share"]
    count = int((share > 1).sum())
    if not count:
        return ""
    return (
        f"The roofline of {count:,} rows is above their time, by up to {100 * (share.max() - 1):.0f} %: its peaks are "
        "those of a large copy and a large product, and reading alone and shorter products are faster"
    )


def recordings(results: ResultSet) -> list[str]:
    """A sentence per commit that measured: rows, sessions, dates."""
    found: dict[str, list[tuple[int, str]]] = {}
    for _, count, snapshot in results.environments:
        found.setdefault(context.commit(snapshot), []).append((count, context.recorded_on(snapshot)))
    out = []
    for commit, those in found.items():
        dates = sorted({date for _, date in those if date})
        when = dates[0] if len(dates) == 1 else " to ".join((dates[0], dates[-1])) if dates else "no date"
        many = f" in {len(those)} sessions" if len(those) > 1 else ""
        out.append(f"{when}, {sum(count for count, _ in those):,} rows{many} by the code of {commit}")
    return out
