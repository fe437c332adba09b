"""Whether ratios divide rows of one session: a run that was resumed later, or elsewhere, mixes several.

Sessions of one commit on one GPU, as a run within a budget has, differ by little: pages say so once. Where a ratio
divides rows of several commits or GPUs, the figure says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from nnzbench.problems.names import stem_of
from nnzbench.report.data import context
from nnzbench.report.data.series import standing

PLACE = "sessions"
"""Anchor of the page's sentence, which figures link."""
Environments = Sequence[tuple[str, int, dict[str, Any]]]
"""File name, rows recorded under it, and content, as a result set has them."""


class Mixed(NamedTuple):
    """Problems, in all their types, whose rows under one policy are of several sessions."""

    problems: int
    """That have a time."""
    sessions: int
    """Of all problems together."""
    mixed: int
    apart: int
    """Of those, the ones whose sessions are not of one commit on one GPU that their snapshots name."""
    of: str
    """`commits`, `GPUs` or both: what differs among the sessions of these; `unnamed GPUs` where that is not known."""


def mixed(frame: pd.DataFrame, environments: Environments) -> Mixed:
    """Counts them among the rows that stand for their kernel."""
    found = {
        name: (context.commit(content), str(content.get("worker", f"unnamed: {name}")))
        for name, _, content in environments
    }
    timed = standing(frame)[["problem", "policy", "environment"]].drop_duplicates()
    origins = [found.get(name, ("", f"unnamed: {name}")) for name in timed["environment"]]
    timed = timed.assign(
        stem=[stem_of(name) for name in timed["problem"]],
        commits=[commit for commit, _ in origins],
        GPUs=[worker for _, worker in origins],
    )
    of = timed.groupby(["stem", "policy"])[["environment", "commits", "GPUs"]].nunique() > 1
    apart = of["commits"] | of["GPUs"]
    words = [name for name in ("commits", "GPUs") if of[name].any()]
    elsewhere = timed["stem"].isin(of.index[of["GPUs"]].get_level_values("stem"))
    if any(worker.startswith("unnamed") for worker in timed.loc[elsewhere, "GPUs"]):
        words[-1] = "unnamed GPUs"
    return Mixed(
        problems=timed["stem"].nunique(),
        sessions=timed["environment"].nunique(),
        mixed=int(of["environment"].groupby(level="stem").any().sum()),
        apart=int(apart.groupby(level="stem").any().sum()),
        of=" and ".join(words),
    )


def note(frame: pd.DataFrame, environments: Environments) -> str:
    """At a figure: short where sessions are of one commit on one GPU, else on how many problems they are not."""
    found = mixed(frame, environments)
    if not found.mixed:
        return ""
    if not found.apart:
        return f"Rows of [several sessions](#{PLACE})."
    return (
        f"On {found.apart} of {found.problems} problems the rows compared here are of several {found.of} "
        f"([sessions](#{PLACE}))."
    )


def sentence(frame: pd.DataFrame, environments: Environments) -> str:
    """Once on a page, of all its rows; empty where each problem's are of one session."""
    found = mixed(frame, environments)
    if not found.mixed:
        return ""
    alike = "each problem's of one commit on one GPU" if not found.apart else f"on {found.apart} of several {found.of}"
    return (
        f'<a id="{PLACE}"></a>On {found.mixed} of {found.problems} problems the rows compared are of several sessions '
        f"({found.sessions} in all), {alike}: ratios carry the few percent by which sessions differ."
    )
