"""The papers' quantitative claims, each judged by the records of one GPU.

`datasets/published/claims.csv` says what is claimed and how near counts; a rule of the same id says what is computed.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from nnzbench import paths
from nnzbench.claims.methods import Rule
from nnzbench.claims.quantities import Outcome, Quantity, Records
from nnzbench.claims.rules import RULES
from nnzbench.facts.selector import MATHS
from nnzbench.records.record import RecordError

REPRODUCED, STRONGER, WEAKER, CONTRADICTED = "reproduced", "stronger", "weaker", "contradicted"
NOT_COMPARABLE, NOT_MEASURABLE = "not comparable", "not measurable"
JUDGED = (REPRODUCED, STRONGER, WEAKER, CONTRADICTED)
WORDS = (*JUDGED, NOT_COMPARABLE, NOT_MEASURABLE)

BAND = 1.25
"""Speed-ups within this factor agree: another GPU, other libraries and re-made patterns move a ratio that far."""
POINTS = 5.0
"""Percentages within this many points agree."""
TENSOR_CORES = {"tf32": "tf32", "fp16": "f16"}
"""Arithmetic that a dense baseline is asked for beside fp32, by its name in the columns of a verdict."""

COLUMNS = (
    "id", "paper", "where", "claim", "experiment", "published", "unit", "published_gpu", "baseline", "math", "better",
    "scale", "break_even", "problems", "obstacle", "remark",
)  # fmt: skip

Scale = Literal["ratio", "points", "density", "least", "same"]


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
    scale: Scale
    """How a number is held against the published one; see `verdict`."""
    break_even: float
    """The number on whose other side the claim is false; NaN for a claim that has no direction."""
    problems: int
    """On how many problems the paper's number rests, where that is more than this suite's table holds; else 0."""
    obstacle: str
    """Why no record of this suite can be compared with the claim: guessed sizes, a part of a model, a count."""
    remark: str


@dataclass(frozen=True)
class Verdict:
    """One claim beside what the records say of it. Numbers that are not known are NaN, words that are not are empty.

    A verdict is one of `WORDS`, or empty where the claim has no such baseline.
    """

    id: str
    paper: str
    where: str
    """Section, figure or table."""
    claim: str
    experiment: str
    unit: str
    published: float
    published_gpu: str
    kernel: str
    """Whose kernel was judged: the paper's method as published, or a library where the claim is about one."""
    baseline: str
    """What it is compared with as the paper compares."""
    measured: float
    """With the paper's own kind of baseline (fp32 where it is dense), hot policy."""
    verdict: str
    problems: str
    """`n of m`: how many of the claim's problems were recorded with both times."""
    baseline_today: str
    """The best of today, in the same arithmetic; empty where the paper's baseline is that already."""
    measured_today: float
    verdict_today: str
    problems_today: str
    measured_tf32: float
    """Against the best dense product on TF32 tensor cores; NaN where the claim has no dense baseline."""
    verdict_tf32: str
    measured_fp16: float
    """Against the best dense product on fp16 tensor cores."""
    verdict_fp16: str
    measured_cold: float
    """As `measured`, with L2 overwritten before each launch."""
    reason: str
    """Why it is not comparable or not measurable."""
    rule: str
    """How the number is computed, in words."""
    note: str
    """What its reader must know."""
    before_tuning: str = ""
    """Of the numbers `measured...`, by the words behind `measured_` (`hot` for that alone), those that stand on kernels
    which were not tuned on some problem."""


def read() -> list[Claim]:
    """The claims, in the file's order. Raises `RecordError` naming file and line for a row that is not a claim."""
    path = paths.datasets() / "published" / "claims.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise RecordError(f"{path}: the columns must be {', '.join(COLUMNS)}")
        return [_claim(path, line, row) for line, row in enumerate(rows, start=2)]


def out_of_scope() -> list[dict[str, str]]:
    """The papers' other quantitative claims, which no record of this suite is about: accuracy, energy, other chips."""
    path = paths.datasets() / "published" / "claims_out_of_scope.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _claim(path: Path, line: int, row: dict[str, str]) -> Claim:
    try:
        if row["better"] not in ("higher", "lower") or row["scale"] not in get_args(Scale):
            raise ValueError
        numbers = ("published", "break_even", "problems")
        words = {name: text for name, text in row.items() if name not in numbers}
        break_even, problems = float(row["break_even"] or "nan"), int(row["problems"] or 0)
        return Claim(
            published=float(row["published"]),
            break_even=break_even,
            problems=problems,
            **words,  # type: ignore[arg-type]
        )
    except (TypeError, ValueError):
        raise RecordError(f"{path}, line {line}: a claim's number, 'better' or 'scale' is not one") from None


def verdict(claim: Claim, measured: float) -> str:
    """Judges one number: contradicted on the other side of break-even, else by how far it is from the published one.

    `ratio`: within a factor of `BAND`; `points`: within `POINTS`; `density`: as a ratio of nonzeros left at the two
    sparsities; `least`: the paper says at least (or, where lower is better, at most) so much, so a number that reaches
    it reproduces the claim and one that does not is weaker, however near; `same`: the paper says that nothing changes,
    so a number further away than the band or the points contradicts it, in whichever direction. An infinite number is a
    crossover that is never reached.
    """
    if math.isnan(measured):
        return NOT_MEASURABLE
    if math.isinf(measured):
        return STRONGER if claim.better == "higher" else CONTRADICTED
    side = claim.published - claim.break_even
    if side * (measured - claim.break_even) <= 0:  # never so with a NaN
        return CONTRADICTED
    stronger = (measured > claim.published) == (claim.better == "higher")
    if claim.scale == "least":
        return REPRODUCED if stronger or measured == claim.published else WEAKER
    if claim.scale == "density":
        near = _within_band((1 - measured) / (1 - claim.published))
    elif claim.scale == "points" or (claim.scale == "same" and claim.unit == "%"):
        near = abs(measured - claim.published) <= POINTS
    else:
        near = _within_band(measured / claim.published)
    if claim.scale == "same":
        return REPRODUCED if near else CONTRADICTED
    return REPRODUCED if near else STRONGER if stronger else WEAKER


def _within_band(ratio: float) -> bool:
    return 1 / BAND <= ratio <= BAND


def judge(reports: Path, gpu: str) -> list[Verdict]:
    """Every claim, judged by the records below `reports/gpu`; a file that breaks the schema counts as not there."""
    records = Records(reports, gpu)
    return [_judge(claim, RULES[claim.id], records) for claim in read()]


def _judge(claim: Claim, rule: Rule | str, records: Records) -> Verdict:
    """A rule may also be the reason why there is no number."""
    if isinstance(rule, str):
        found = {"hot": Outcome(math.nan, 0, 0, rule)}
    else:
        quantity, today = _of(claim, rule.quantity), rule.today and _of(claim, rule.today)
        found = {"hot": records.measure(quantity, "hot")}
        if today:
            found["today"] = records.measure(today, "hot")
        dense = today or quantity
        if dense.dense:
            found |= {name: records.measure(dense, "hot", math_class) for name, math_class in TENSOR_CORES.items()}
        found["cold"] = records.measure(quantity, "cold")
    words = {name: _word(claim, outcome) for name, outcome in found.items()}
    values = {name: math.nan if math.isinf(one.value) else one.value for name, one in found.items()}
    hot, word = found["hot"], words["hot"]
    return Verdict(
        id=claim.id,
        paper=claim.paper,
        where=claim.where,
        claim=claim.claim,
        experiment=claim.experiment,
        unit=claim.unit,
        published=claim.published,
        published_gpu=claim.published_gpu,
        kernel=rule.kernel if isinstance(rule, Rule) else "none",
        baseline=rule.quantity.against if isinstance(rule, Rule) else "",
        measured=values["hot"],
        verdict=word,
        problems=_counted(hot),
        baseline_today=rule.today.against if isinstance(rule, Rule) and rule.today else "",
        measured_today=values.get("today", math.nan),
        verdict_today=words.get("today", ""),
        problems_today=_counted(found["today"]) if "today" in found else "",
        measured_tf32=values.get("tf32", math.nan),
        verdict_tf32=words.get("tf32", ""),
        measured_fp16=values.get("fp16", math.nan),
        verdict_fp16=words.get("fp16", ""),
        measured_cold=values.get("cold", math.nan),
        reason=_reason(claim, hot) if word in (NOT_COMPARABLE, NOT_MEASURABLE) else "",
        rule=rule.quantity.words if isinstance(rule, Rule) else "none",
        note=" ".join(_notes(claim, rule, records, hot, words)),
        before_tuning=" ".join(name for name, one in found.items() if one.cut),
    )


def _of(claim: Claim, quantity: Quantity) -> Quantity:
    return quantity if quantity.experiment else replace(quantity, experiment=claim.experiment)


def _counted(outcome: Outcome) -> str:
    return f"{outcome.have} of {outcome.of}" if outcome.of else ""


def obstacle(claim: Claim, outcome: Outcome) -> str:
    """Why a number can't be held against the claim, empty where it can."""
    if claim.obstacle or outcome.obstacle:
        return f"{outcome.obstacle} {claim.obstacle}".strip()
    if outcome.have < outcome.of:
        return f"{outcome.have} of {outcome.of} problems are recorded."
    if outcome.of < claim.problems:
        return f"The paper's number is of {claim.problems:,} problems; {outcome.of:,} are recorded."
    return ""


def _reason(claim: Claim, outcome: Outcome) -> str:
    if not outcome.have:
        return outcome.note or claim.obstacle
    return obstacle(claim, outcome) or outcome.note


def _word(claim: Claim, outcome: Outcome) -> str:
    if not outcome.have:
        return NOT_MEASURABLE
    return NOT_COMPARABLE if obstacle(claim, outcome) else verdict(claim, outcome.value)


def _notes(claim: Claim, rule: Rule | str, records: Records, hot: Outcome, words: Mapping[str, str]) -> Iterator[str]:
    if hot.note and hot.have:
        yield hot.note
    if words["hot"] in JUDGED and words["cold"] in {*JUDGED} - {words["hot"]}:
        yield f"With cold caches: {words['cold']}."
    if hot.synthetic:
        yield f"{hot.synthetic} of {hot.have} problems are on synthetic patterns."
    if isinstance(rule, Rule):
        for name, quantity in rule.beside.items():
            yield from _beside(claim, name, _of(claim, quantity), records)
    if claim.remark:
        yield claim.remark


def _beside(claim: Claim, name: str, quantity: Quantity, records: Records) -> Iterator[str]:
    """One sentence with the number in each arithmetic of the dense baseline, or none without records."""
    maths = ("f32", *TENSOR_CORES.values()) if quantity.dense else ("f32",)
    found = {one: records.measure(quantity, "hot", one, judging=False) for one in maths}
    known = {one: outcome.value for one, outcome in found.items() if math.isfinite(outcome.value)}
    if "f32" not in known:
        return
    numbers = ", ".join(f"{MATHS[one]} " * (one != "f32") + show(value, claim.unit) for one, value in known.items())
    where = "" if quantity.experiment == claim.experiment else f" in {quantity.experiment}"
    yield f"{name}: {numbers} ({found['f32'].have} of {found['f32'].of}{where})."


def show(value: float, unit: str) -> str:
    """A number with its unit: `2.31×`, `71.0 %`, `120 s`; empty for NaN."""
    if math.isnan(value):
        return ""
    if unit == "x":
        return f"{value:.2f}×"
    if unit not in ("%", "sparsity"):
        return f"{value:,.0f} {unit}"
    return f"{100 * value:.1f} %" if unit == "sparsity" else f"{value:.1f} %"
