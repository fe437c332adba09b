"""Whether the kernels that judge are as fast as their authors' own code, and what the authors' times say of a claim."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pandas as pd

from nnzbench.kernels.registry import about, dense_libraries
from nnzbench.papers.claims.claim import Quantity
from nnzbench.papers.claims.peers import MATCHES, Block, Match, blocks_of, read
from nnzbench.papers.claims.quantities import Outcome, Records, exponent, grouped, made_of
from nnzbench.report.text import gpu_name
from nnzbench.results import table
from nnzbench.results.groups import Group
from nnzbench.results.result_set import geometric_mean
from nnzbench.results.selector import Selector

NEAR = (0.85, 1.15)
"""A kernel that is so many times as fast as its authors' code speaks for the paper."""


@dataclass(frozen=True)
class Check:
    """One kernel, or those that stand for it, beside its authors' code."""

    ratio: float = math.nan
    """How many times as fast as theirs it is, a geometric mean; NaN where theirs was not timed, or it not there."""
    words: str = ""
    """One sentence."""

    @property
    def far(self) -> bool:
        """Whether it is known not to speak for the paper."""
        return not (math.isnan(self.ratio) or NEAR[0] <= self.ratio <= NEAR[1])


class Authors:
    """The authors' codes beside the records of one GPU; where they did not run on it, of the GPU that they ran on."""

    def __init__(self, records: Records) -> None:
        _, sessions, times = read()
        self.here = records.gpu in set(sessions["gpu"])
        """Whether they ran on this GPU, so that their times can judge."""
        where = records.gpu if self.here else str(sessions["gpu"].iloc[0])
        self._on = "" if self.here else f" on {gpu_name(where, {})}"
        self._records = records if self.here else Records(records.reports, where)
        known = times["session"].isin(sessions.loc[sessions["gpu"] == where, "session"]) & (times["policy"] == "hot")
        self._blocks_of = functools.cache(lambda match: blocks_of(self._records.data, match, times[known]))

    def _blocks(self, wanted: Callable[[Match], bool]) -> Iterator[Block]:
        """Those of the authors' sessions that are wanted, each set beside the records when it is first asked for."""
        return (one for match in MATCHES if match.authors and wanted(match) for one in self._blocks_of(match))

    def checks(self, asked: Quantity) -> list[Check]:
        """Each paper's kernel among the sides: on the claim's problems, else on all of its experiment, else on those of
        its kind, else on any.

        None of a quantity that is not of its speed.
        """
        if asked.statistic in ("seconds", "deviation", "instances", "one tuning"):
            return []
        those = (asked.subject, asked.baseline, asked.second)
        sides = {(one.kernels, one.variants): one for one in those if one and _of_a_paper(one)}
        return [self._check(asked, one) for one in sides.values()]

    def _check(self, asked: Quantity, side: Selector) -> Check:
        names = "`, `".join(side.kernels)
        known = [
            (block, at)
            for block in self._blocks(lambda match: side.kernel in {pair.kernel for pair in match.pairs})
            for at in _answers(block, side)
        ]
        same = [(block, at) for block, at in known if _same_variants(block, at, side)]
        answering = [
            (block, block.rows.assign(us=block.rows[f"here{at}"], over_us=block.rows[f"theirs{at}"]))
            for block, at in same or known
        ]
        own = [rows for block, rows in answering if block.experiment == asked.experiment]
        alike = [rows for block, rows in answering if asked.experiment in block.match.alike]
        claimed = [rows.merge(self.cases(asked), on="problem") for rows in own]
        others = [rows for _, rows in answering]
        wider = {"this claim": claimed, asked.experiment: own, "its kind": alike, "other experiments": others}
        for of, some in wider.items():
            pairs = pd.concat([rows[["us", "over_us"]].dropna() for rows in some]) if some else pd.DataFrame()
            if count := len(pairs):
                ratio = geometric_mean(table.divide(pairs.assign(printed=math.nan))["ratio"])
                where = f"{count} problem{'s' * (count != 1)} of {of}{self._on}"
                return Check(ratio, f"`{names}` is {ratio:.2f} times as fast as its authors' code ({where}).")
        if answering:
            return Check(words=f"No time of `{names}` is recorded where its authors' code was timed.")
        return Check(words=f"No times of the authors' code are known for `{names}`.")

    def measure(self, asked: Quantity, arithmetic: str = "f32") -> Outcome:
        """The quantity from the authors' times and the libraries' beside them, `of` the cases that have both."""
        wanted = replace(asked, group=self._records.whole_sample(asked)).on(arithmetic, judging=True)
        for block in self._blocks(lambda match: self.here and asked.experiment in match.experiments):
            if block.experiment != asked.experiment or block.dtype != asked.subject.math:
                continue
            if wanted.statistic == "exponent":
                rows = self.cases(wanted).join(self._side(block, wanted, False).rename("median_us"), on="case").dropna()
                if len(rows):
                    return Outcome(exponent(rows), len(rows), len(rows), cases=tuple(rows["case"]))
            if wanted.baseline is None:
                continue
            sides = [self._side(block, wanted, baseline) for baseline in (False, True)]
            pairs = sides[0].to_frame("us").join(sides[1].to_frame("over_us"), how="inner").dropna()
            if len(pairs) and wanted.statistic in ("geometric mean", "share faster", "largest", "mean percent"):
                named = dict.fromkeys(table.KEY, "") | {"printed": math.nan, "tuned": True, "one_run": False}
                told = self.cases(wanted).groupby("case")[["source", "count"]].first()
                pairs = pairs.join(told).assign(**named)
                fact, matrices = table.facts_of_pairs(pairs, grouped(wanted)).iloc[0], pairs["source"].nunique()
                found = Outcome(math.nan, len(pairs), len(pairs), cases=tuple(pairs.index))
                return made_of(fact, wanted.statistic, found, matrices if wanted.group.by_matrix else len(pairs))
        return Outcome(math.nan, 0, 0)

    def _side(self, block: Block, asked: Quantity, baseline: bool) -> pd.Series[float]:
        """By case: the session's time of the authors' code or the dense library that a side names.

        Of a dense product the less of that and the recorded one, as torch asks for few of a library's algorithms; of
        another library the recorded one, by as much as the dense product is longer in the session, on average where
        none of the problem is recorded.
        """
        side = (asked.baseline if baseline else asked.subject) or asked.subject
        same = [*self._blocks(lambda match: match.session == block.match.session)]
        theirs = [
            block.fastest(other.match.code, other.match.pairs[at].choice)
            for other in same
            for at in _answers(other, side)
            if _same_variants(other, at, side)
        ]
        if theirs:
            us = theirs[0]
        elif _of_a_paper(side):
            return pd.Series(dtype=float)
        else:
            data = self._records.data(asked.experiment)
            rows = data.times(side) if data else pd.DataFrame(columns=["problem", "policy", "median_us"])
            here = block.rows["problem"].map(rows[rows["policy"] == "hot"].set_index("problem")["median_us"])
            if side.kernels and set(side.kernels) <= _dense(block, side.math):
                us = pd.concat([block.fastest(block.match.dense, math_class=side.math), here], axis=1).min(axis=1)
            else:
                average = geometric_mean(_moved(pd.concat([other.rows for other in same])).dropna())
                us = here * _moved(block.rows).fillna(average)
        cases = self._cases(asked.experiment, asked.group, baseline)
        return block.rows.assign(us=us).merge(cases, on="problem").groupby("case")["us"].min()

    def cases(self, asked: Quantity) -> pd.DataFrame:
        """All of the claim's recorded cases."""
        return self._cases(asked.experiment, self._records.whole_sample(asked))

    def _cases(self, experiment: str, group: Group, baseline: bool = False) -> pd.DataFrame:
        """The recorded problems of a group, with their cases."""
        data = self._records.data(experiment)
        columns = ["problem", "case", "source", "m", "k", "count"]
        return data.of(group, baseline)[columns] if data else pd.DataFrame(columns=columns)


def _answers(block: Block, side: Selector) -> Iterator[int]:
    """The pairs of a block whose kernel the selector is, at the paper's choice or the fastest as it asks."""
    for at, pair in enumerate(block.match.pairs):
        if block.dtype == side.math and pair.kernel == side.kernel and (pair.variants == "heuristic") == side.default:
            yield at


def _same_variants(block: Block, at: int, side: Selector) -> bool:
    """Whether a pair that answers is of the variants that the selector names: of an ablation, without the same part."""
    return side.default or block.match.pairs[at].variants == side.variants


def _moved(rows: pd.DataFrame) -> pd.Series[float]:
    """How many times as long the dense product takes in the session as in the records."""
    return table.divide(rows.assign(us=rows["dense_here"], over_us=rows["dense_theirs"], printed=math.nan))["ratio"]


def _of_a_paper(side: Selector) -> bool:
    return any(about(one).role == "paper" or about(one).paper_variants for one in side.kernels)


def _dense(block: Block, arithmetic: str) -> set[str]:
    """Kernels that the session's dense product stands for."""
    products = {"cublas", "cublaslt"}
    return products if block.match.dense in products else set(dense_libraries(arithmetic)) - products
