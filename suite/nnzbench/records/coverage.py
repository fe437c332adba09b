"""Which problems of an experiment a result set has, whatever the source of its patterns."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from nnzbench.matrices.formats import MatrixError
from nnzbench.problems import tables
from nnzbench.problems.names import case_of


@cache
def cases(experiment: str, full: bool = False) -> tuple[str, ...]:
    """The cases of the experiment's table in its order; none for an experiment without a table."""
    try:
        return tuple(case_of(row.problem.name) for row in tables.rows(experiment, full))
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


def listed(names: list[str], most: int = 4) -> str:
    """The names in a sentence: `a`, `b` and 3 more."""
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


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
