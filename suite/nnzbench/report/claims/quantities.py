"""The quantities that papers claim, computed from records: ratios of times, crossovers, shares of a peak, bytes.

A quantity names its two sides and nothing else; which paper says what of it stands in `claims.csv`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from nnzbench.facts import crossover
from nnzbench.facts.results import geometric_mean
from nnzbench.kernels.roles import OURS
from nnzbench.report.claims.records import Records, Row
from nnzbench.report.data.series import MATH_LABELS, Series

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
    obstacle: str = ""
    """Why the number is not of what is claimed, such as one that was counted."""
    cut: bool = False
    """Whether it stands on kernels that were not tuned on some problem."""


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

    @property
    def against(self) -> str:
        """What the number is taken against, empty where nothing can be measured."""

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        """The number under one policy, the dense side in `arithmetic`."""


@dataclass(frozen=True)
class Side:
    """One side of a claim: a series, and what of a problem's name tells its cases. A case is what both sides share."""

    name: str
    kernels: tuple[str, ...]
    """Empty for every kernel of this project."""
    cases: str = "(.*)"
    """Pattern at the start of a problem's name (without its source and dtype); its groups name the case."""
    variant: str = ""
    """Pattern at the start of a variant's name."""
    math: Literal["f32", "tf32", "f16", "i8", "dense"] = "f32"
    """`dense` is fp32 unless the verdict asks for tensor cores."""

    def series(self, asked: str) -> Series:
        """Whose times it has, in the arithmetic asked for where it is dense."""
        math_class = asked if self.math == "dense" else self.math
        return Series("", self.name, self.kernels, math_class, self.variant, frozenset() if self.kernels else OURS)

    def label(self) -> str:
        return self.name if self.math == "f32" else f"{self.name} ({MATH_LABELS.get(self.math, 'fp32')})"


@dataclass(frozen=True)
class Times:
    """The fastest row per case of one or several sides, and the cases that there should be."""

    rows: Mapping[str, Row]
    expected: frozenset[str]
    gap: str
    """Why there is none."""

    def nothing(self) -> Outcome:
        return Outcome(math.nan, 0, len(self.expected), self.gap)


def times(records: Records, experiment: str, sides: Sequence[Side], policy: str, arithmetic: str) -> Times:
    """Sides of one product must not share cases."""
    rows: dict[str, Row] = {}
    expected = set[str]()
    for side in sides:
        for case, row in records.times(experiment, policy, side.series(arithmetic), side.cases).items():
            known = rows.get(case, row)
            fastest = row if row.median_us < known.median_us else known
            rows[case] = fastest._replace(cut=row.cut or known.cut)
        # a dense time in another arithmetic is of the same problems, so what is expected does not change with it
        expected |= records.expected(experiment, "f32" if side.math == "dense" else side.math, side.cases)
    return Times(rows, frozenset(expected | set(rows)), records.gap(experiment, sides[0].name, policy))


@dataclass(frozen=True)
class Pairs:
    """Rows of a subject and of its rival on the same cases, and how many there should be."""

    rows: list[tuple[Row, Row]]
    of: int
    gap: str
    """Why there is none."""

    @property
    def ratios(self) -> list[float]:
        """The rival's time over the subject's."""
        return [other.median_us / mine.median_us for mine, other in self.rows]

    def outcome(self, value: float, note: str = "", settled: Settled = "") -> Outcome:
        stand_ins = sum(mine.source.startswith("standin:") for mine, _ in self.rows)
        cut = any(mine.cut or other.cut for mine, other in self.rows)
        return Outcome(value, len(self.rows), self.of, note, settled, stand_ins, cut=cut)

    def nothing(self) -> Outcome:
        return Outcome(math.nan, 0, self.of, self.gap)


def pairs(
    records: Records, experiment: str, subject: Sequence[Side], rival: Sequence[Side], policy: str, arithmetic: str
) -> Pairs:
    """In order of the cases' names, so that sums come out the same whatever the order of the records."""
    mine = times(records, experiment, subject, policy, arithmetic)
    other = times(records, experiment, rival, policy, arithmetic)
    both = sorted(mine.rows.keys() & other.rows.keys())
    gap = records.gap(experiment, f"{subject[0].name} and {rival[0].name}", policy)
    return Pairs([(mine.rows[case], other.rows[case]) for case in both], len(mine.expected), gap)


def same_variants(
    records: Records, experiment: str, rival: Sequence[Side], policy: str, arithmetic: str, both: Pairs
) -> Pairs:
    """The pairs, with the rival's row of the subject's variant; without those that have none."""
    found = []
    for mine, _ in both.rows:
        named = [replace(side, variant=f"{re.escape(mine.variant)}$") for side in rival]
        rows = times(records, experiment, named, policy, arithmetic).rows.values()
        found += [(mine, other) for other in rows if other.stem == mine.stem]
    return replace(both, rows=found)


How = Literal["geometric mean", "mean percent", "mean loss", "largest", "share faster", "total"]
HOW: dict[str, str] = {
    "geometric mean": "geometric mean of {rival}'s time over {subject}'s",
    "mean percent": "100 × mean of {rival}'s time over {subject}'s, each counted as often as its table says",
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
    alike: bool = False
    """The rival's rows of the variant that is the subject's fastest on the problem, instead of its own fastest."""

    @property
    def dense(self) -> bool:
        return any(side.math == "dense" for side in (*self.subject, *self.rival))

    @property
    def words(self) -> str:
        rival = f"{self.rival[0].label()}{', at the same variant,' * self.alike}"
        text = HOW[self.how].format(rival=rival, subject=self.subject[0].label())
        return f"{text}; {self.scope}"

    @property
    def against(self) -> str:
        return self.rival[0].label()

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        both = pairs(records, self.experiment, self.subject, self.rival, policy, arithmetic)
        if self.alike:
            both = same_variants(records, self.experiment, self.rival, policy, arithmetic, both)
        if not both.rows:
            return both.nothing()
        ratios = both.ratios
        mean = math.fsum(ratios) / len(ratios)
        if self.how in ("total", "mean percent"):
            counts = [records.count(self.experiment, mine.stem) for mine, _ in both.rows]
            if self.how == "mean percent":
                whole = math.fsum(count * ratio for count, ratio in zip(counts, ratios, strict=True))
                return both.outcome(100 * whole / sum(counts))
            mine = math.fsum(count * row.median_us for count, (row, _) in zip(counts, both.rows, strict=True))
            other = math.fsum(count * row.median_us for count, (_, row) in zip(counts, both.rows, strict=True))
            return both.outcome(other / mine)
        values = {
            "geometric mean": geometric_mean(ratios),
            "mean loss": 100 * (1 - mean),
            "largest": max(ratios),
            "share faster": 100 * sum(ratio > 1 for ratio in ratios) / len(ratios),
        }
        return both.outcome(values[self.how])


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

    @property
    def against(self) -> str:
        return self.rival.label()

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        both = pairs(records, self.experiment, (self.subject,), (self.rival,), policy, arithmetic)
        if not both.rows:
            return both.nothing()
        levels = [mine.sparsity for mine, _ in both.rows]
        found = crossover.crossover(zip(levels, both.ratios, strict=True))
        if not math.isinf(found):
            return both.outcome(found)
        where = f"Crossover {crossover.text(found, min(levels), max(levels))}."
        if len(levels) < both.of:
            return both.outcome(math.nan, f"{where} Not all sparsities are recorded.")
        if found == crossover.NEVER:
            return both.outcome(math.nan, where, self.never)
        return both.outcome(min(levels), where)


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

    @property
    def against(self) -> str:
        return self.second.subject.label()

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        first, second = (one.measure(records, policy, arithmetic) for one in (self.first, self.second))
        have, of, cut = min(first.have, second.have), first.of, first.cut or second.cut
        if math.isnan(first.value) or math.isnan(second.value):
            note = f"{self.first.subject.name}: {first.note or 'crosses'} {self.second.subject.name}: {second.note}"
            never = not math.isnan(first.value) and second.have > 0  # the ratio is then larger than can be seen
            return Outcome(math.nan, have, of, note.strip(), "stronger" if never else "", cut=cut)
        note = f"{first.note} {second.note}".strip()
        return Outcome((1 - first.value) / (1 - second.value), have, of, note, cut=cut)


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

    @property
    def against(self) -> str:
        return "the GPU's fp32 peak"

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        found = times(records, self.experiment, (self.subject,), policy, arithmetic)
        of = len(found.expected)
        if not found.rows:
            return found.nothing()
        peak = records.fp32_peak()
        note = "" if peak else "The GPU's peak is not in datasets/gpus.csv."
        rate = max(row.gflops for row in found.rows.values()) / 1e3
        cut = any(row.cut for row in found.rows.values())
        return Outcome(100 * rate / peak if peak else math.nan, len(found.rows), of, note, cut=cut)


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

    @property
    def against(self) -> str:
        return f"the ideal time from {self.rival.label()}"

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        both = pairs(records, self.experiment, (self.subject,), (self.rival,), policy, arithmetic)
        over = [
            mine.median_us / ((dense.median_us - mine.floor_us) * (1 - mine.sparsity) + mine.floor_us)
            for mine, dense in both.rows
            if not math.isnan(mine.floor_us)
        ]
        if not over:
            return both.nothing()
        return replace(both.outcome(geometric_mean(over)), have=len(over))


@dataclass(frozen=True)
class Unmeasured:
    """Why no record can tell."""

    experiment: str
    reason: str
    dense: bool = False
    words: str = field(default="none", init=False)
    against: str = field(default="", init=False)

    def measure(self, records: Records, policy: str, arithmetic: str = "f32") -> Outcome:
        return Outcome(math.nan, 0, 0, self.reason, "not measurable")
