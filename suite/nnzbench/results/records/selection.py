"""Which row stands for its kernel, and which problems of an experiment a result set has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import pandas as pd

from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import case_of

CONTEST = ["experiment", "problem", "kernel", "dtype", "math", "policy"]
"""Rows that agree in these compete in arithmetic too; one of them is selected."""


def superseded(frame: pd.DataFrame) -> pd.Series[bool]:
    """Of each row, whether it multiplies by the pruned matrix, and on its problem the same dense library has a time of
    the unpruned one: such a row competes for nothing."""
    honest = frame["weights"] == "unpruned"
    timed = frame.loc[honest & frame["median_us"].notna(), CONTEST]
    if timed.empty:
        return pd.Series(False, frame.index)
    found = (frame["work"] == "dense") & ~honest
    pruned = pd.MultiIndex.from_frame(frame.loc[found, CONTEST])
    found[found] = pruned.isin(pd.MultiIndex.from_frame(timed))
    return found


def least(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The row of the least time of each `by`, in the order of the index; of equals the first of `rows`."""
    order = rows["median_us"].to_numpy(float).argsort(kind="stable")
    again = rows[list(by)].take(order).duplicated().to_numpy()
    return rows.take(order[~again]).sort_index()


def fastest(frame: pd.DataFrame) -> pd.Series[bool]:
    """Of each row, whether it is the fastest timed one of its contest; the first of equals."""
    able = (frame["status"] == "ok") & frame["median_us"].notna() & ~superseded(frame)
    best = least(frame.loc[able, [*CONTEST, "median_us"]], CONTEST)
    return pd.Series(frame.index.isin(best.index), frame.index)


@cache
def cases(experiment: str, full: bool = False) -> tuple[str, ...]:
    """The cases of the experiment's table in its order; none for an experiment without a table."""
    try:
        return tuple(case_of(problem.name) for problem in tables.rows(experiment, full))
    except MatrixError:
        return ()


def missing(experiment: str, problems: Iterable[str]) -> list[str]:
    """Cases of the table (of its sample, where the default run is one) that no problem is."""
    have = {case_of(problem) for problem in problems}
    return [case for case in cases(experiment) if case not in have]


def unknown(experiment: str, problems: Iterable[str]) -> list[str]:
    """Problems that the experiment's table does not have; none where there is no table to tell."""
    if not cases(experiment):
        return []
    rest = [problem for problem in dict.fromkeys(problems) if case_of(problem) not in cases(experiment)]
    whole = set(cases(experiment, full=True)) if rest else set()
    return [problem for problem in rest if case_of(problem) not in whole]


def few(words: list[str], most: int = 4) -> str:
    """The first of them in a sentence: a, b, c, d and 3 more."""
    shown = ", ".join(words[:most])
    return f"{shown} and {len(words) - most} more" if len(words) > most else shown


def listed(names: list[str], most: int = 4) -> str:
    """The same of names: `a`, `b` and 3 more."""
    return few([f"`{name}`" for name in names], most)


def gaps(experiment: str, problems: Iterable[str]) -> list[str]:
    """Sentences for a report: what the table has and the records lack, and the other way round."""
    recorded = list(problems)
    lacking, extra = missing(experiment, recorded), unknown(experiment, recorded)
    out = []
    if lacking:
        count = f"{len(lacking)} of the {len(cases(experiment))} problems of {experiment}"
        out.append(f"{count} are not recorded: {listed(lacking)}.")
    if extra:
        out.append(f"The table of {experiment} does not have {listed(extra)}: these rows are no part of it.")
    return out
