"""Whether a time's quartiles lie further apart than its mark in a figure is high."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from nnzbench.facts.results import each
from nnzbench.problems.names import label_of, parse
from nnzbench.report.data.series import MATH_LABELS, kernel_label

VISIBLE = 1.1
"""Ratio of quartiles above which their span is longer than a marker."""
NAMED = 4
"""How many such times are named; `summary.csv` and the records have the quartiles of all."""


def note(times: pd.DataFrame, names: Mapping[str, str] | None = None) -> str:
    """One sentence that names the times whose quartiles are that far apart, the furthest first; empty for none.

    `times` are the recorded rows that a figure draws, `names` what it calls their problems. Several times of a kernel
    on what has one name there are named once.
    """
    wide = times.assign(ratio=times["q3_us"] / times["q1_us"])
    wide = wide[wide["ratio"] > VISIBLE].sort_values("ratio", ascending=False, kind="stable")
    if wide.empty:
        return ""
    called = {**_recorded(times["problem"]), **(names or {})}
    groups: dict[tuple[str, str], list[float]] = {}
    for row in each(wide):
        groups.setdefault((_named(row, called[row.problem]), row.policy), []).append(row.ratio)
    named = [
        f"{what} ({policy}, {f'{len(ratios)} times, up to ' * (len(ratios) > 1)}{ratios[0]:.2f}×)"
        for (what, policy), ratios in list(groups.items())[:NAMED]
    ]
    left = sum(len(ratios) for ratios in list(groups.values())[NAMED:])
    return (
        f"Of {len(wide)} of {len(times):,} times the third quartile is more than {VISIBLE:g}× the first: "
        f"{', '.join(named)}{f' and {left} more' * bool(left)}."
    )


def _named(row: Any, problem: str) -> str:
    """Kernel and problem, with the arithmetic where it is not that of most figures and the problem does not say it."""
    words = MATH_LABELS[row.math]
    math = "" if row.math == "f32" or words in problem else f" {words}"
    return f"{kernel_label(row.kernel)}{math} on {problem}"


def _recorded(problems: Iterable[str]) -> dict[str, str]:
    """Labels, with what tells several problems of one label apart."""
    several = Counter(label_of(name) for name in dict.fromkeys(problems))
    out = {}
    for name in dict.fromkeys(problems):
        parts = parse(name)
        if parts is None:
            out[name] = name
        elif several[parts.label] == 1:
            out[name] = parts.label
        else:
            out[name] = f"{parts.label} {parts.sizes.replace('x', '×')} at {parts.level} %"
    return out
