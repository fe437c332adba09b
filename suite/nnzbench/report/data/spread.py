"""Whether a time's quartiles lie further apart than its mark in a figure is high."""

from __future__ import annotations

import pandas as pd

from nnzbench.problems.names import label_of
from nnzbench.report.data.frames import each
from nnzbench.report.data.series import kernel_label, standing

VISIBLE = 1.1
"""Ratio of quartiles above which their span is longer than a marker."""
NAMED = 4
"""How many such times are named; `summary.csv` and `records.csv` have the quartiles of all."""


def note(frame: pd.DataFrame) -> str:
    """One sentence that names the times whose quartiles are that far apart, the furthest first; empty for none."""
    timed = standing(frame)
    wide = timed.assign(ratio=timed["q3_us"] / timed["q1_us"])
    wide = wide[wide["ratio"] > VISIBLE].sort_values("ratio", ascending=False, kind="stable")
    if wide.empty:
        return ""
    named = [
        f"{kernel_label(row.kernel)} on {label_of(row.problem) or row.problem} ({row.policy}, {row.ratio:.2f}×)"
        for row in each(wide.head(NAMED))
    ]
    more = f" and {len(wide) - NAMED} more" if len(wide) > NAMED else ""
    return (
        f"Of {len(wide)} of {len(timed):,} times the third quartile is more than {VISIBLE:g}× the first: "
        f"{', '.join(named)}{more}."
    )
