"""Whether ratios divide rows of one session: a run that was resumed later, or elsewhere, mixes several.

Sessions of one commit on one GPU, as a run within a budget has, differ by little: pages say so once. Where a ratio
divides rows of several commits or GPUs, the figure says it, of the rows that it compares; the page's sentence counts
over the types of a problem too, as the tables of first screens set one type beside another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pandas as pd

from nnzbench.problems.names import stem_of
from nnzbench.report.data import context
from nnzbench.report.data.series import standing

PLACE = "sessions"
"""Anchor of the page's sentence, which figures link."""
WHOLE = "whole"
"""Column of rows whose times are added before they are compared: what they are added to."""
Environments = Sequence[tuple[str, int, dict[str, Any]]]
"""File name, rows recorded under it, and content, as a result set has them."""


class Mixed(NamedTuple):
    """Problems (or what times of several are added to) whose rows under one policy are of several sessions."""

    problems: int
    """That have a time."""
    sessions: int
    """Of all problems together."""
    mixed: int
    apart: int
    """Of those, the ones whose sessions are not of one commit on one GPU that their snapshots name."""
    of: str
    """`commits`, `GPUs` or both: what differs among the sessions of these; `unnamed GPUs` where that is not known."""


def mixed(parts: Iterable[pd.DataFrame], environments: Environments) -> Mixed:
    """Counts them among the rows that stand for their kernel; rows of one part are compared with none of another's."""
    found = {
        name: (context.commit(content), str(content.get("worker", f"unnamed: {name}")))
        for name, _, content in environments
    }
    timed = pd.concat([_compared(rows).assign(part=part) for part, rows in enumerate(parts)], ignore_index=True)
    origins = [found.get(name, ("", f"unnamed: {name}")) for name in timed["environment"]]
    timed = timed.assign(commits=[commit for commit, _ in origins], GPUs=[worker for _, worker in origins])
    keys = ["part", WHOLE, "policy"]
    of = timed.groupby(keys)[["environment", "commits", "GPUs"]].nunique() > 1
    apart = of["commits"] | of["GPUs"]
    words = [name for name in ("commits", "GPUs") if of[name].any()]
    elsewhere = timed.set_index(keys).index.isin(of.index[of["GPUs"]])
    if any(worker.startswith("unnamed") for worker in timed.loc[elsewhere, "GPUs"]):
        words[-1] = "unnamed GPUs"
    return Mixed(
        problems=timed[WHOLE].nunique(),
        sessions=timed["environment"].nunique(),
        mixed=int(of["environment"].groupby(level=WHOLE).any().sum()),
        apart=int(apart.groupby(level=WHOLE).any().sum()),
        of=" and ".join(words),
    )


def _compared(rows: pd.DataFrame) -> pd.DataFrame:
    rows = standing(rows)
    if WHOLE not in rows:
        rows = rows.assign(**{WHOLE: [stem_of(name) for name in rows["problem"]]})
    return rows[[WHOLE, "policy", "environment"]].drop_duplicates()


def note(parts: Iterable[pd.DataFrame], environments: Environments, unit: str = "problems") -> str:
    """At a figure, of the rows that it compares: short where sessions are of one commit on one GPU, else on how many
    problems, or whatever `unit` calls what its rows are added to, they are not."""
    found = mixed(parts, environments)
    if not found.mixed:
        return ""
    if not found.apart:
        return f"Rows of [several sessions](#{PLACE})."
    return (
        f"On {found.apart} of {found.problems} {unit} the rows compared here are of several {found.of} "
        f"([sessions](#{PLACE}))."
    )


def sentence(frame: pd.DataFrame, environments: Environments) -> str:
    """Once on a page, of all its rows; empty where each problem's are of one session.

    Where types of one problem differ more than the rows of one type do, it says both.
    """
    found = mixed([frame], environments)
    if not found.mixed:
        return ""
    within = mixed((rows for _, rows in frame.groupby("dtype")), environments).apart
    by_type = f", on {within or 'none'} within one type" if within != found.apart else ""
    alike = (
        "each problem's of one commit on one GPU"
        if not found.apart
        else f"on {found.apart} of several {found.of}{by_type}"
    )
    return (
        f'<a id="{PLACE}"></a>On {found.mixed} of {found.problems} problems the rows compared are of several sessions '
        f"({found.sessions} in all), {alike}: ratios carry the few percent by which sessions differ."
    )
