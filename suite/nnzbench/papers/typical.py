"""Which problems stand for an experiment where there is time for a few: those that its page answers with."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from nnzbench.data.problems.problem import Problem
from nnzbench.papers.catalogue import page_of
from nnzbench.report.page import Page
from nnzbench.results.data import planned
from nnzbench.results.groups import Group


def typical(experiment: str, problems: Iterable[Problem]) -> list[str]:
    """Stems of names: of each group that the page answers about, in that order, the median-sized case.

    A case is one problem, or all parts of one network where the group adds times. None where no page answers.
    """
    page = page_of(experiment)
    if not isinstance(page, Page):
        return []
    found = planned(problems, page.attributes)
    groups = dict.fromkeys(answer.group for answer in page.answers)
    return list(dict.fromkeys(stem for group in groups for stem in _median(group, found)))


def _median(group: Group, problems: pd.DataFrame) -> list[str]:
    sides = [group.problems(problems)]
    if group.baseline_like or group.baseline_cases:
        sides.append(group.problems(problems, baseline=True))
    stems: list[str] = []
    for rows in sides:
        parts = [group.part(label) for label in rows["label"]]
        case = [part[0] if part else str(case) for part, case in zip(parts, rows["case"], strict=True)]
        rows = rows.assign(case=case, work=rows["m"] * rows["k"] * rows["n"])
        sizes = rows.groupby("case")["work"].sum().sort_values(kind="stable")
        if len(sizes):
            stems += map(str, rows.loc[rows["case"] == sizes.index[len(sizes) // 2], "stem"])
    return stems
