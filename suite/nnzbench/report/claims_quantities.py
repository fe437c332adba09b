"""The quantities that papers claim, computed from records: ratios of times, crossovers, shares of a peak, bytes.

A quantity names its two sides and nothing else; which paper says what of it stands in `claims.csv`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import pandas as pd

from nnzbench.report import crossover
from nnzbench.report.claims_records import Records
from nnzbench.report.frames import geometric_mean
from nnzbench.report.series import MATH_LABELS

Settled = Literal["", "contradicted", "stronger", "not measurable"]


@dataclass(frozen=True)
class Outcome:
    """What the records say of one quantity; `value` is NaN where they say nothing, and `note` then says why."""

    value: float
    have: int
    """Cases with all times."""
    of: int
    note: str = ""
    settled: Settled = ""
    """A verdict that no number expresses, such as a crossover that is never reached."""
    stand_ins: int = 0
    """Of the cases, those on generated stand-ins for real patterns."""


class Quantity(Protocol):
    """One number of one experiment."""

    @property
    def experiment(self) -> str:
        """Whose records are read."""

    @property
    def dense(self) -> bool:
        """Whether a side is a dense product in fp32, which may run on tensor cores instead."""

    @property
    def words(self) -> str:
        """The rule, in words."""

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        """The number under one policy, the dense side in `arithmetic`."""


@dataclass(frozen=True)
class Side:
    """Which rows give a case its time: the fastest that match. A case is what both sides have in common."""

    name: str
    kernels: tuple[str, ...]
    """Empty for every kernel of this project."""
    cases: str = "(.*)"
    """Pattern at the start of a problem's name (without its source and dtype); its groups name the case."""
    variant: str = ""
    """Pattern at the start of a variant's name."""
    math: Literal["f32", "tf32", "f16", "dense"] = "f32"
    """`dense` is fp32 unless the verdict asks for tensor cores."""

    def arithmetic(self, asked: str) -> str:
        return asked if self.math == "dense" else self.math

    def label(self) -> str:
        return self.name if self.math == "f32" else f"{self.name} ({MATH_LABELS.get(self.math, 'fp32')})"


@dataclass(frozen=True)
class Times:
    """The fastest row per case of one or several sides, and the cases that there should be."""

    rows: pd.DataFrame
    expected: frozenset[str]


def times(records: Records, experiment: str, sides: Sequence[Side], policy: str, arithmetic: str) -> Times:
    """Sides of one product must not share cases."""
    found, expected = [], set[str]()
    for side in sides:
        asked = side.arithmetic(arithmetic)
        rows = records.rows(experiment, policy, asked, side.kernels)
        rows = rows[rows["variant"].str.match(side.variant)].assign(case=rows["stem"].map(_case(side.cases)))
        rows = rows.dropna(subset=["case"]).sort_values(["median_us", "kernel", "variant"], kind="stable")
        found.append(rows.drop_duplicates("case"))
        # a dense time in another arithmetic is of the same problems, so what is expected does not change with it
        names = records.expected(experiment, "f32" if side.math == "dense" else side.math)
        expected |= {case for case in map(_case(side.cases), names) if case is not None} | set(found[-1]["case"])
    return Times(pd.concat(found).set_index("case").sort_index(), frozenset(expected))


def _case(pattern: str) -> Callable[[str], str | None]:
    compiled = re.compile(pattern)

    def named(stem: str) -> str | None:
        found = compiled.match(stem)
        return None if found is None else " ".join(found.groups())

    return named


How = Literal["geometric mean", "mean percent", "mean loss", "largest", "share faster", "total"]
HOW: dict[str, str] = {
    "geometric mean": "geometric mean of {rival}'s time over {subject}'s",
    "mean percent": "100 × mean of {rival}'s time over {subject}'s",
    "mean loss": "100 × (1 - mean of {rival}'s time over {subject}'s)",
    "largest": "largest ratio of {rival}'s time over {subject}'s",
    "share faster": "percent of problems on which {subject} is faster than {rival}",
    "total": "sum of {rival}'s times over sum of {subject}'s",
}


@dataclass(frozen=True)
class Ratio:
    """How many times as fast the subject is as its rival, over all cases that both have."""

    experiment: str
    scope: str
    """The problems, in words."""
    subject: tuple[Side, ...]
    rival: tuple[Side, ...]
    how: How = "geometric mean"

    @property
    def dense(self) -> bool:
        return any(side.math == "dense" for side in (*self.subject, *self.rival))

    @property
    def words(self) -> str:
        text = HOW[self.how].format(rival=self.rival[0].label(), subject=self.subject[0].label())
        return f"{text}; {self.scope}"

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        subject = times(records, self.experiment, self.subject, policy, arithmetic)
        rival = times(records, self.experiment, self.rival, policy, arithmetic)
        both = subject.rows.join(rival.rows, how="inner", rsuffix="_rival")
        expected = len(subject.expected)
        if both.empty:
            sides = f"{self.subject[0].name} and {self.rival[0].name}"
            return Outcome(math.nan, 0, expected, records.gap(self.experiment, sides, policy))
        mine, other = both["median_us"], both["median_us_rival"]
        ratios = other / mine
        counts = [records.count(self.experiment, stem) for stem in both["stem"]]
        value = {
            "geometric mean": lambda: geometric_mean(ratios),
            "mean percent": lambda: 100 * float(ratios.mean()),
            "mean loss": lambda: 100 * (1 - float(ratios.mean())),
            "largest": lambda: float(ratios.max()),
            "share faster": lambda: 100 * float((ratios > 1).mean()),
            "total": lambda: float((other * counts).sum() / (mine * counts).sum()),
        }[self.how]()
        return Outcome(value, len(both), expected, stand_ins=_stand_ins(both))


@dataclass(frozen=True)
class Crossover:
    """The sparsity from which on the subject is at least as fast as the dense product."""

    experiment: str
    scope: str
    subject: Side
    rival: Side
    never: Settled
    """What it means where the subject is slower to the end: `contradicted`, or `stronger` for a claim of slowness."""
    dense: bool = True

    @property
    def words(self) -> str:
        return (
            f"sparsity from which on {self.subject.label()} is at least as fast as {self.rival.label()}, "
            f"interpolated in the logarithm of the ratio; {self.scope}"
        )

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        subject = times(records, self.experiment, (self.subject,), policy, arithmetic)
        rival = times(records, self.experiment, (self.rival,), policy, arithmetic)
        both = subject.rows.join(rival.rows, how="inner", rsuffix="_rival")
        of = len(subject.expected)
        if both.empty:
            sides = f"{self.subject.name} and {self.rival.name}"
            return Outcome(math.nan, 0, of, records.gap(self.experiment, sides, policy))
        ratios = both["median_us_rival"] / both["median_us"]
        found = crossover.crossover(zip(both["sparsity"], ratios, strict=True))
        low, high = float(both["sparsity"].min()), float(both["sparsity"].max())
        where = f"Crossover {crossover.text(found, low, high)}." if math.isinf(found) else ""
        if math.isinf(found) and len(both) < of:
            return Outcome(math.nan, len(both), of, f"{where} Not all sparsities are recorded.")
        if found == crossover.NEVER:
            return Outcome(math.nan, len(both), of, where, self.never)
        return Outcome(low if found == crossover.ALWAYS else found, len(both), of, where)


@dataclass(frozen=True)
class CrossoverNonzeros:
    """How many times as many nonzeros one kernel may have as another when each meets the same dense product."""

    first: Crossover
    second: Crossover
    dense: bool = True

    @property
    def experiment(self) -> str:
        return self.first.experiment

    @property
    def words(self) -> str:
        return (
            f"density at the crossover of {self.first.subject.label()} over that of {self.second.subject.label()}, "
            f"both against {self.first.rival.label()}; {self.first.scope}"
        )

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        first, second = (one.measure(records, policy, arithmetic) for one in (self.first, self.second))
        have, of = min(first.have, second.have), first.of
        if math.isnan(first.value) or math.isnan(second.value):
            note = f"{self.first.subject.name}: {first.note or 'crosses'} {self.second.subject.name}: {second.note}"
            never = not math.isnan(first.value) and second.have > 0  # the ratio is then larger than can be seen
            return Outcome(math.nan, have, of, note.strip(), "stronger" if never else "")
        return Outcome((1 - first.value) / (1 - second.value), have, of, f"{first.note} {second.note}".strip())


@dataclass(frozen=True)
class PeakShare:
    """The subject's highest rate of useful operations as percent of the GPU's fp32 peak on its data sheet."""

    experiment: str
    scope: str
    subject: Side
    dense: bool = False

    @property
    def words(self) -> str:
        return f"{self.subject.label()}'s highest useful rate as percent of the data sheet's fp32 peak; {self.scope}"

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        found = times(records, self.experiment, (self.subject,), policy, arithmetic)
        of = len(found.expected)
        if found.rows.empty:
            return Outcome(math.nan, 0, of, records.gap(self.experiment, self.subject.name, policy))
        peak = records.fp32_peak()
        note = "" if peak else "The GPU's peak is not in datasets/gpus.csv."
        rate = float(found.rows["gflops"].max()) / 1e3
        return Outcome(100 * rate / peak if peak else math.nan, len(found.rows), of, note)


@dataclass(frozen=True)
class OverIdeal:
    """The subject's time over (dense - overhead) * density + overhead; the overhead is an empty kernel's time."""

    experiment: str
    scope: str
    subject: Side
    rival: Side
    dense: bool = True

    @property
    def words(self) -> str:
        return (
            f"geometric mean of {self.subject.label()}'s time over the ideal (dense - overhead) × density + overhead, "
            f"with {self.rival.label()}'s time and the measured time of an empty kernel; {self.scope}"
        )

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        subject = times(records, self.experiment, (self.subject,), policy, arithmetic)
        rival = times(records, self.experiment, (self.rival,), policy, arithmetic)
        both = subject.rows.join(rival.rows, how="inner", rsuffix="_rival").dropna(subset=["floor_us"])
        of = len(subject.expected)
        if both.empty:
            sides = f"{self.subject.name} and {self.rival.name}"
            return Outcome(math.nan, 0, of, records.gap(self.experiment, sides, policy))
        overhead = both["floor_us"]
        ideal = (both["median_us_rival"] - overhead) * (1 - both["sparsity"]) + overhead
        return Outcome(geometric_mean(both["median_us"] / ideal), len(both), of)


@dataclass(frozen=True)
class ScoreBytes:
    """Memory of attention's scores and weights of all heads, dense over sparse with one mask for all heads."""

    experiment: str
    subject: Side
    heads: int
    dense: bool = False

    @property
    def words(self) -> str:
        return (
            f"bytes of the scores and of the weights of {self.heads} heads in fp32, all of them over those at the "
            "mask's positions with one 4-byte index each for all heads; counted, not measured"
        )

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        found = times(records, self.experiment, (self.subject,), policy, arithmetic)
        of = len(found.expected)
        if found.rows.empty:
            return Outcome(math.nan, 0, of, records.gap(self.experiment, self.subject.name, policy))
        row = found.rows.iloc[0]
        kept = 2 * self.heads * 4 * row["nnz"] + 4 * row["nnz"] + 4 * (row["m"] + 1)
        return Outcome(float(2 * self.heads * 4 * row["m"] * row["k"] / kept), len(found.rows), of)


@dataclass(frozen=True)
class Unmeasured:
    """Why no record can tell."""

    experiment: str
    reason: str
    dense: bool = False
    words: str = field(default="none", init=False)

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        return Outcome(math.nan, 0, 0, self.reason, "not measurable")


def _stand_ins(rows: pd.DataFrame) -> int:
    return int(rows["source"].str.startswith("standin:").sum())
