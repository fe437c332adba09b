"""The claims as `datasets/published/claims.csv` has them: what a paper says, and what of records is held against it.

`claim_sides.csv` beside it says which rows the sides are that claims name, and by what method.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, cast

import pandas as pd

from nnzbench.core import paths
from nnzbench.kernels.registry import Role
from nnzbench.results.groups import Group
from nnzbench.results.selector import DEFAULT, Selector

JUDGES: frozenset[Role] = frozenset({"paper", "library"})
"""Roles whose rows judge claims: a paper's method as published, and the libraries that papers compare with."""
DENSE_INSIDE = frozenset({"sparse_transformer"})
"""Sparse kernels most of whose time is dense products, which run on tensor cores where the dense network's do."""

Scale = Literal["ratio", "points", "density", "least", "same"]
Statistic = Literal[
    "geometric mean", "mean percent", "mean loss", "largest", "share faster", "total", "over ideal", "crossover",
    "nonzeros", "peak share", "deviation", "instances", "one tuning", "exponent", "seconds", "counted",
]  # fmt: skip
WORDS: dict[Statistic, str] = {
    "geometric mean": "geometric mean of the time of {baseline} over that of {subject}",
    "mean percent": "100 × mean of the time of {baseline} over that of {subject}, each as often as its table says",
    "mean loss": "100 × (1 - mean of the time of {baseline} over that of {subject})",
    "largest": "largest ratio of the time of {baseline} over that of {subject}",
    "share faster": "percent of problems on which {subject} is faster than {baseline}",
    "total": "sum of the times of {baseline} over the sum of those of {subject}",
    "over ideal": "geometric mean of the time of {subject} over the ideal (dense - overhead) × density + overhead, "
    "with the time of {baseline} and the measured time of an empty kernel",
    "crossover": "sparsity from which on {subject} is at least as fast as {baseline}, interpolated in the logarithm "
    "of the ratio",
    "nonzeros": "density at the crossover of {subject} over that of {second}, both against {baseline}",
    "peak share": "highest useful rate of {subject} as percent of the data sheet's fp32 peak",
    "deviation": "largest standard deviation of {subject}'s times of one problem in percent, by their quartiles",
    "instances": "geometric mean over the sizes of the longest time of {subject} over its shortest, among other "
    "patterns of the same size and level",
    "one tuning": "geometric mean of the time of {subject} at what is fastest on another pattern of the same size and "
    "level over its least time, of every pair in both orders",
    "exponent": "slope of the logarithm of the time of {subject} along that of M × K",
    "seconds": "median over the problems of the seconds of a whole search for {subject}",
    "counted": "{subject}; how is in `datasets/counted.csv`",
}
Measured = Literal["times", "energy", "watts", "counts"]
"""Times, or what `nnzbench energy` measured: joules per launch, power; or what no GPU needs to be asked for."""


@dataclass(frozen=True)
class Quantity:
    """One number of one experiment: two sides, the problems, and what is made of them."""

    subject: Selector
    baseline: Selector | None
    """None for what is taken against no other time."""
    group: Group
    statistic: Statistic
    experiment: str
    same_variant: bool = False
    """Whether the baseline is taken at the variant that is the subject's fastest."""
    second: Selector | None = None
    """Whose crossover the subject's is compared with."""
    of: Measured = "times"
    """What is compared. What is not times has no policy."""

    @property
    def dense(self) -> bool:
        """Whether a side is a dense product in fp32, which may run on tensor cores instead."""
        sides = [one for one in (self.subject, self.baseline) if one]
        return any(map(_dense, sides)) and all(one.math == "f32" for one in sides)

    @property
    def words(self) -> str:
        """The rule, in words."""
        named = {"subject": self.subject, "baseline": self.baseline, "second": self.second}
        labels = {name: one.label if one else "" for name, one in named.items()}
        labels["baseline"] += " at the same variant" * self.same_variant
        words = WORDS[self.statistic].format(**labels)
        if word := {"energy": "joules", "watts": "watts"}.get(self.of):
            words = f"{re.sub('times?', word, words)}, over rotated weights"
        return f"{words}; {self.group.words}"

    @property
    def against(self) -> str:
        """What the number is taken against."""
        if self.second:
            return self.second.label
        if self.baseline is None:
            return "the GPU's fp32 peak" if self.statistic == "peak share" else ""
        return f"the ideal time from {self.baseline.label}" if self.statistic == "over ideal" else self.baseline.label

    def on(self, arithmetic: str, judging: bool) -> Quantity:
        """Dense sides in that arithmetic; `judging` leaves this project's own designs and users' kernels out.

        Raises `ValueError` where nothing is left of a side.
        """

        def side(one: Selector | None) -> Selector | None:
            if one is None:
                return None
            found = replace(one, math=arithmetic) if self.dense and _dense(one) else one
            roles = JUDGES & (one.roles or JUDGES)
            if judging and not roles:
                raise ValueError(f"'{one.label}' has no rows that may judge a claim")
            return replace(found, roles=roles) if judging else found

        subject = side(self.subject) or self.subject
        return replace(self, subject=subject, baseline=side(self.baseline), second=side(self.second))


def _dense(side: Selector) -> bool:
    return side.dense or DENSE_INSIDE.issuperset(side.kernels or ("",))


@dataclass(frozen=True)
class Published:
    """What a paper says, which its verdict repeats."""

    id: str
    paper: str
    where: str
    """Section, figure or table."""
    claim: str
    experiment: str
    published: float
    unit: str
    published_gpu: str


@dataclass(frozen=True)
class Claim(Published):
    """One row of `claims.csv`."""

    kernel: str
    """By what it is judged: the paper's method as published, or a library where the claim is about one."""
    quantity: Quantity
    """As the paper compares: with the baseline that it had."""
    today: Quantity | None
    """The same against the best of today's algorithms; None where the paper's baseline is that already."""
    readings: tuple[Quantity, ...]
    """What else the paper may mean, where it leaves something open: one verdict of all of them is the claim's."""
    beside: Mapping[str, Quantity]
    """Numbers printed beside the verdicts, which judge nothing."""
    better: Literal["higher", "lower"]
    """Which way a number strengthens the claim."""
    scale: Scale
    """How a number is held against the published one; see `verdicts.verdict`."""
    break_even: float
    """The number on whose other side the claim is false; NaN for a claim that has no direction."""
    problems: int
    """On how many problems the paper's number rests, where this suite's are a sample of them; else 0."""
    obstacle: str
    """Why no record of this suite can be compared with the claim: guessed sizes, a part of a model, a count."""
    remark: str
    gpus: tuple[str, ...]
    """Two GPUs as their folders' names have them: on the first the ratio is larger, on what percent of the problems."""
    printed: str
    """A published table with the columns problem, sparsity and speedup, whose geometric mean the claim's number is:
    of the authors' own times some problems may be missing, and are then left out of both."""


def read() -> list[Claim]:
    """The claims, in the file's order."""
    rows = _rows("claim_sides")
    sides, methods = {one["side"]: _side(one) for one in rows}, {one["side"]: one["method"] for one in rows}
    return [_claim(one, sides, methods) for one in _rows("claims")]


def out_of_scope() -> pd.DataFrame:
    """The papers' other quantitative claims, and why no record of this suite is about each: accuracy, other chips."""
    return pd.read_csv(paths.datasets() / "published" / "claims_out_of_scope.csv")


def _rows(name: str) -> list[dict[str, str]]:
    with (paths.datasets() / "published" / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _side(row: Mapping[str, str]) -> Selector:
    variants = DEFAULT if row["variants"] == "default" else row["variants"]
    roles = frozenset(cast("list[Role]", row["roles"].split()))
    return Selector(row["label"] or row["side"], tuple(row["kernels"].split()), row["math"], variants, roles)


def _claim(row: Mapping[str, str], sides: Mapping[str, Selector], methods: Mapping[str, str]) -> Claim:
    statistic, _, of = row["statistic"].partition(" of ")
    sampled = int(row["problems"] or 0)
    second, _, second_today = row["second"].partition("; ")
    quantity = Quantity(
        sides[row["subject"]],
        sides[row["baseline"]] if row["baseline"] else None,
        _problems(Group(words=row["scope"], by_matrix=sampled > 0), row["cases"]),
        cast("Statistic", statistic),
        row["experiment"],
        same_variant=bool(row["same_variant"]),
        second=sides[second] if second else None,
        of=cast("Measured", of or "times"),
    )

    def against(named: str) -> Quantity:
        """`<side> against <baseline>`; without one against the best of today, which the paper's may be."""
        subject, _, other = named.partition(" against ")
        best = today or quantity
        baseline = sides[other] if other else best.baseline
        return replace(best, subject=sides[subject], baseline=baseline, same_variant=False)

    today = None
    if row["today"]:
        today = against(row["today"] if " against " in row["today"] else f"{row['subject']} against {row['today']}")
        today = replace(today, second=sides[second_today or second] if second else None)
    beside = {}
    for one in filter(None, row["beside"].split("; ")):
        words, _, named = one.rpartition(": ")
        experiment, _, cases = named.partition("/")
        elsewhere = replace(quantity, experiment=experiment, group=Group(words=words, cases=cases))
        found = elsewhere if cases else against(named)
        over = f" against {found.baseline.label}" if found.baseline else ""
        beside[words or f"{found.subject.label}{over}"] = found
    readings = [_reading(quantity, one) for one in filter(None, row["readings"].split("; "))]
    told: dict[str, Any] = {field.name: row[field.name] for field in fields(Claim) if field.name in row}
    told |= {"published": float(row["published"]), "break_even": float(row["break_even"] or "nan")}
    told |= {"problems": sampled, "gpus": tuple(row["gpus"].split()), "readings": tuple(readings), "beside": beside}
    return Claim(**told | {"kernel": methods[row["subject"]], "quantity": quantity, "today": today})


def _reading(quantity: Quantity, named: str) -> Quantity:
    """The quantity by another statistic, or of `[f16 ][<experiment>/]<cases>`."""
    if named in WORDS:
        return replace(quantity, statistic=named)
    where, _, cases = named.removeprefix("f16 ").rpartition("/")
    found = replace(quantity, group=_problems(quantity.group, cases), experiment=where or quantity.experiment)
    if not named.startswith("f16 "):
        return found
    baseline = found.baseline and replace(found.baseline, math="f16")
    return replace(found, subject=replace(found.subject, math="f16"), baseline=baseline)


def _problems(group: Group, cases: str) -> Group:
    """The group on `<cases> ~ <the baseline's>`, regular expressions of problems' names whose groups pair them."""
    mine, _, theirs = cases.partition(" ~ ")
    return replace(group, cases=mine, baseline_cases=theirs)
