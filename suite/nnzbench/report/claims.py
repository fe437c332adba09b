"""The papers' quantitative claims, each judged by the records of one GPU.

`datasets/published/claims.csv` says what is claimed and how near counts; a rule of the same id says what is computed.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nnzbench import paths
from nnzbench.papers.claims import RULES
from nnzbench.record import RecordError
from nnzbench.report.claims_quantities import Outcome, Quantity
from nnzbench.report.claims_records import Records
from nnzbench.report.claims_sides import Rule, Way
from nnzbench.report.series import MATH_LABELS

REPRODUCED, STRONGER, WEAKER, CONTRADICTED = "reproduced", "stronger", "weaker", "contradicted"
NOT_MEASURABLE = "not measurable"
WORDS = (REPRODUCED, STRONGER, WEAKER, CONTRADICTED, NOT_MEASURABLE)

BAND = 1.25
"""Speed-ups within this factor agree: another GPU, other libraries and re-made patterns move a ratio that far."""
POINTS = 5.0
"""Percentages within this many points agree."""
LEAST_SHARE = 1 / 3
"""Of a claim's problems; a number from fewer is shown and not judged."""

COLUMNS = (
    "id", "paper", "where", "claim", "experiment", "published", "unit", "published_gpu", "baseline", "math", "better",
    "scale", "break_even", "remark",
)  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """One row of `claims.csv`."""

    id: str
    paper: str
    where: str
    claim: str
    experiment: str
    published: float
    unit: str
    published_gpu: str
    baseline: str
    math: str
    better: Literal["higher", "lower"]
    """Which way a number strengthens the claim."""
    scale: Literal["ratio", "points", "density", "bound"]
    """How a number is held against the published one; see `verdict`."""
    break_even: float
    """The number on whose other side the claim is false; NaN for a claim that has no direction."""
    remark: str


@dataclass(frozen=True)
class Verdict:
    """One claim beside what the records say of it. Numbers that are not known are NaN, words that are not are empty.

    `verdict*` is one of `reproduced`, `stronger`, `weaker`, `contradicted`, `not measurable`, or empty where the
    claim has no such baseline.
    """

    id: str
    paper: str
    where: str
    """Section, figure or table."""
    claim: str
    experiment: str
    """Whose records judged, which may be another than the claim's own."""
    unit: str
    published: float
    published_gpu: str
    measured: float
    """With the paper's own kind of baseline (fp32 where it is dense), hot policy."""
    measured_tf32: float
    """The same quantity with the dense baseline on TF32 tensor cores; NaN where the claim has no dense baseline."""
    measured_fp16: float
    """The same with the dense baseline on fp16 tensor cores."""
    measured_cold: float
    """As `measured`, with L2 overwritten before each launch."""
    verdict: str
    verdict_tf32: str
    verdict_fp16: str
    problems: str
    """`n of m`: how many of the claim's problems were recorded."""
    rule: str
    """How the number is computed, in words."""
    note: str
    """Why it is not measurable, or what its reader must know."""
    kernel: str
    """Whose kernel was judged."""


def read() -> list[Claim]:
    """The claims, in the file's order. Raises `RecordError` naming file and line for a row that is not a claim."""
    path = paths.datasets() / "published" / "claims.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise RecordError(f"{path}: the columns must be {', '.join(COLUMNS)}")
        return [_claim(path, line, row) for line, row in enumerate(rows, start=2)]


def _claim(path: Path, line: int, row: dict[str, str]) -> Claim:
    try:
        if row["better"] not in ("higher", "lower") or row["scale"] not in ("ratio", "points", "density", "bound"):
            raise ValueError
        words = {name: text for name, text in row.items() if name not in ("published", "break_even")}
        break_even = float(row["break_even"] or "nan")
        return Claim(published=float(row["published"]), break_even=break_even, **words)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise RecordError(f"{path}, line {line}: a claim's number, 'better' or 'scale' is not one") from None


def verdict(claim: Claim, measured: float) -> str:
    """Judges one number: contradicted on the other side of break-even, else by how far it is from the published one.

    `ratio`: within a factor of `BAND`; `points`: within `POINTS`; `density`: as a ratio of nonzeros left at the two
    sparsities; `bound`: the number is at least what is claimed of a whole, so it can show the claim too high but not
    confirm it.
    """
    if math.isnan(measured):
        return NOT_MEASURABLE
    side = claim.published - claim.break_even
    if side * (measured - claim.break_even) <= 0:  # never so with a NaN
        return CONTRADICTED
    near = {
        "ratio": lambda: _within_band(measured / claim.published),
        "bound": lambda: _within_band(measured / claim.published),
        "points": lambda: abs(measured - claim.published) <= POINTS,
        "density": lambda: _within_band((1 - measured) / (1 - claim.published)),
    }[claim.scale]()
    stronger = (measured > claim.published) == (claim.better == "higher")
    if claim.scale == "bound":
        return WEAKER if not near and not stronger else NOT_MEASURABLE
    return REPRODUCED if near else STRONGER if stronger else WEAKER


def _within_band(ratio: float) -> bool:
    return 1 / BAND <= ratio <= BAND


def judge(reports: Path, gpu: str) -> list[Verdict]:
    """Every claim, judged by the records below `reports/gpu`; a file that breaks the schema counts as not there."""
    records = Records(reports, gpu)
    return [_judge(claim, RULES[claim.id], records) for claim in read()]


def _judge(claim: Claim, rule: Rule, records: Records) -> Verdict:
    way, hot = _first(rule, records)
    quantity = way.quantity
    cold = quantity.measure(records, "cold")
    word = _word(claim, hot)
    tensor = {name: quantity.measure(records, "hot", name) for name in ("tf32", "f16") if quantity.dense}
    words = {name: _word(claim, outcome) for name, outcome in tensor.items()}
    values = {name: outcome.value for name, outcome in tensor.items()}
    return Verdict(
        id=claim.id,
        paper=claim.paper,
        where=claim.where,
        claim=claim.claim,
        experiment=quantity.experiment,
        unit=claim.unit,
        published=claim.published,
        published_gpu=claim.published_gpu,
        measured=hot.value,
        measured_tf32=values.get("tf32", math.nan),
        measured_fp16=values.get("f16", math.nan),
        measured_cold=cold.value,
        verdict=word,
        verdict_tf32=words.get("tf32", ""),
        verdict_fp16=words.get("f16", ""),
        problems=f"{hot.have} of {hot.of}" if hot.of else "",
        rule=quantity.words,
        note=" ".join(_notes(claim, rule, way, records, hot, word, cold)),
        kernel=way.kernel,
    )


def _first(rule: Rule, records: Records) -> tuple[Way, Outcome]:
    """The first way with enough records, else the first with any, else the last and why it has none."""
    found = [(way, way.quantity.measure(records, "hot")) for way in rule.ways]
    usable = [one for one in found if not _too_few(one[1])] or [one for one in found if one[1].have]
    return usable[0] if usable else found[-1]


def _too_few(outcome: Outcome) -> bool:
    return outcome.have < LEAST_SHARE * outcome.of or not outcome.have


def _word(claim: Claim, outcome: Outcome) -> str:
    if _too_few(outcome):
        return NOT_MEASURABLE
    return outcome.settled or verdict(claim, outcome.value)


def _notes(claim: Claim, rule: Rule, way: Way, records: Records, hot: Outcome, word: str, cold: Outcome) -> list[str]:
    notes = [hot.note] if hot.note else []
    if hot.have and _too_few(hot):
        notes.append(f"{hot.have} of {hot.of} problems are too few to judge by.")
    elif claim.scale == "bound" and word == NOT_MEASURABLE and hot.have:
        notes.append("The part gains enough for the claim to be possible; what the whole gains is not recorded.")
    if not _too_few(cold) and _word(claim, cold) != word:
        notes.append(f"With cold caches: {_word(claim, cold)}.")
    if hot.stand_ins:
        notes.append(f"{hot.stand_ins} of {hot.have} problems are on generated stand-ins of the patterns.")
    for name, quantity in rule.beside:
        if quantity != way.quantity:
            notes += _beside(claim, name, quantity, records)
    return [*notes, claim.remark] if claim.remark else notes


def _beside(claim: Claim, name: str, quantity: Quantity, records: Records) -> list[str]:
    """One sentence with the number in each arithmetic of the dense baseline, or none without records."""
    found = quantity.measure(records, "hot")
    if math.isnan(found.value):
        return []
    tensor = {math_class: quantity.measure(records, "hot", math_class).value for math_class in ("tf32", "f16")}
    known = [
        f"{MATH_LABELS[c]} {show(v, claim.unit)}" for c, v in tensor.items() if quantity.dense and not math.isnan(v)
    ]
    numbers = ", ".join([show(found.value, claim.unit), *known])
    where = "" if quantity.experiment == claim.experiment else f" in {quantity.experiment}"
    return [f"{name[:1].upper()}{name[1:]}: {numbers} ({found.have} of {found.of}{where})."]


def show(value: float, unit: str) -> str:
    """A number with its unit: `2.31×`, `71.0 %`; empty for NaN."""
    if math.isnan(value):
        return ""
    if unit == "x":
        return f"{value:.2f}×"
    return f"{100 * value:.1f} %" if unit == "sparsity" else f"{value:.1f} %"
