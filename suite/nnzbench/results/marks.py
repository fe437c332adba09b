"""What rows carry beside their times: whether a run finished tuning, and the source of their pattern.

The best of some candidates is not yet the kernel's best. A problem recorded on two sources of its pattern, some kernels
on the real one and others on its calibrated stand-in, is one problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from nnzbench.data.problems.problem import INTERCHANGEABLE, case_of, parse
from nnzbench.results.records.selection import few


def sentences(rows: pd.DataFrame) -> list[str]:
    """What is `unfinished`, by kernel: the first problem of each, and how many more."""
    problems: dict[str, dict[str, None]] = {}
    for row in rows.itertuples(index=False):
        problems.setdefault(str(row.kernel), {})[f"`{row.problem}` ({row.dtype}, {row.policy})"] = None
    return [
        f"`{kernel}` is not drawn on {few(list(found), 1)}: the run ended before its last candidate."
        for kernel, found in problems.items()
    ]


STANDIN = "standin"


def joined(frame: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """`frame` with a stand-in's rows under the name of the real pattern recorded beside it, and sentences on them.

    Each row keeps its own `source`. Where a kernel was recorded on both, as by a run that was resumed once the real
    patterns were at hand, its rows on the stand-in are left out: a product's time is of one pattern.
    """
    named = frame[["problem", "kernel"]].drop_duplicates().sort_values("problem")
    kernels: dict[str, set[str]] = {}
    for problem, kernel in zip(named["problem"], named["kernel"], strict=True):
        kernels.setdefault(str(problem), set()).add(str(kernel))
    real = {case_of(name): name for name in kernels if _kind(name) in INTERCHANGEABLE - {STANDIN}}
    names = {name: real[case_of(name)] for name in kernels if _kind(name) == STANDIN and case_of(name) in real}
    if not names:
        return frame, ()
    twice = [
        problem in names and kernel in kernels[names[problem]]
        for problem, kernel in zip(frame["problem"], frame["kernel"], strict=True)
    ]
    kept = frame[[not one for one in twice]]
    return kept.assign(problem=kept["problem"].replace(names)), (*_beside(kept, names), *_left_out(frame[twice]))


def _beside(rows: pd.DataFrame, names: Mapping[str, str]) -> Iterator[str]:
    rows = rows[rows["problem"].isin(names)]
    if len(rows):
        who = ", ".join(f"`{kernel}`" for kernel in sorted(set(rows["kernel"])))
        yield (
            f"On {_counted(rows)} the times of {who} are of a calibrated stand-in for the pattern; the other kernels' "
            "are of the real one."
        )


def _left_out(rows: pd.DataFrame) -> Iterator[str]:
    if len(rows):
        yield (
            f"On {_counted(rows)} rows on a calibrated stand-in are left out ({len(rows)}): the same kernels are "
            "recorded on the real pattern."
        )


def _counted(rows: pd.DataFrame) -> str:
    count = rows["problem"].nunique()
    return "one problem" if count == 1 else f"{count} problems"


def _kind(name: str) -> str:
    parts = parse(name)
    return parts.kind if parts else ""
