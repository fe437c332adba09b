"""One time over another over a group's problems: the cells that a first screen is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from nnzbench.facts.groups import ALL, Group
from nnzbench.facts.results import geometric_mean
from nnzbench.problems.names import stem_of
from nnzbench.report.data.series import Series, pick, rows_of
from nnzbench.report.text.marks import ALL_TUNED, WORDS, Basis, Cuts, basis
from nnzbench.report.text.tables import number


@dataclass(frozen=True)
class Ratio:
    """One cell of the table."""

    value: float
    wins: int
    count: int
    basis: Basis = ALL_TUNED

    @property
    def text(self) -> str:
        """`2.34×`, with the mark where it stands on kernels that were not tuned."""
        return f"{number(self.value)}×{self.basis.mark}"

    @property
    def told(self) -> str:
        """The same in a sentence: `2.34×`, or `2.34× before tuning`."""
        return f"{number(self.value)}×{f' {WORDS}' * bool(self.basis.cuts)}"


Times = tuple[Cuts, "pd.Series[float]"]
"""What was not tuned for them, and microseconds by problem without its type."""


def ratio(rival: Times, mine: Times, policy: str, group: Group = ALL) -> Ratio | None:
    """One time over another under a policy, over a group's problems; None where no problem has both."""
    (theirs, above), (ours, below) = rival, mine
    if group.baseline_like:
        same = group.baseline_like == group.like
        if above.empty or below.empty or (same and set(above.index) != set(below.index)):
            return None
        value = math.fsum(above) / math.fsum(below)
        return Ratio(value, int(value > 1), 1, basis((theirs, above.index), (ours, below.index), policy=policy))
    if group.parts:
        (whole, others), (mine_whole, those) = _whole(group, above), _whole(group, below)
        both = (whole / mine_whole).dropna()
    else:
        both = (above / below).dropna()
        others = those = list(both.index)
    if both.empty:
        return None
    on = basis((theirs, others), (ours, those), policy=policy)
    return Ratio(geometric_mean(both), int((both > 1).sum()), len(both), on)


def times_of(frame: pd.DataFrame, series: Series) -> dict[str, pd.DataFrame]:
    """By policy: problem, the same without its type, and least microseconds in each type."""
    rows = pick(frame, series, ("problem", "policy", "dtype"))[["problem", "policy", "median_us"]]
    rows = rows.assign(stem=[stem_of(name) for name in rows["problem"]])
    return {str(policy): mine for policy, mine in rows.groupby("policy")}


def alike(frame: pd.DataFrame, rival: Series, mine: Series) -> dict[str, pd.DataFrame]:
    """The same of a rival's rows whose variant is the side's fastest on their problem."""
    on = ["problem", "policy", "dtype"]
    fastest = pick(frame, mine, on)[[*on, "variant"]]
    return times_of(rows_of(frame, rival).merge(fastest, on=[*on, "variant"]), rival)


def on(times: Mapping[str, pd.DataFrame], policy: str, problems: frozenset[str]) -> pd.Series[float]:
    """Least microseconds under a policy on these problems, by problem without its type."""
    rows = times.get(policy)
    if rows is None:
        return pd.Series(dtype=float)
    return rows[rows["problem"].isin(problems)].groupby("stem")["median_us"].min()


def _whole(group: Group, times: pd.Series[float]) -> tuple[pd.Series[float], list[str]]:
    """Sums over the parts by how their labels begin, where all have a time, and what was added."""
    named = [(name, us, *part) for name, us in times.items() if (part := group.part(str(name)))]
    rows = pd.DataFrame(named, columns=["name", "us", "of", "part"])
    least = rows.groupby(["of", "part"])["us"].min().unstack()
    whole = least.reindex(columns=list(group.parts)).dropna().sum(axis="columns")
    return whole, list(rows.loc[rows["of"].isin(whole.index), "name"])
