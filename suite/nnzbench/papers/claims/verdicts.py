"""The papers' quantitative claims, each judged by the records of one GPU.

`datasets/published/claims.csv` says what is claimed, what is computed, and how near counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pandas as pd

from nnzbench.core import paths
from nnzbench.papers.claims.authors import Authors, Check
from nnzbench.papers.claims.claim import Claim, Published, Quantity, read
from nnzbench.papers.claims.quantities import Outcome, Records
from nnzbench.results.result_set import geometric_mean
from nnzbench.results.selector import MATHS

REPRODUCED, STRONGER, WEAKER, CONTRADICTED = "reproduced", "stronger", "weaker", "contradicted"
UNDECIDED, NOT_COMPARABLE, NOT_MEASURABLE = "undecided", "not comparable", "not measurable"
JUDGED = (REPRODUCED, STRONGER, WEAKER, CONTRADICTED)
WORDS = (*JUDGED, UNDECIDED, NOT_COMPARABLE, NOT_MEASURABLE)

BAND = 1.25
"""Speed-ups within this factor agree: another GPU, other libraries and re-made patterns move a ratio that far."""
POINTS = 5.0
"""Percentages within this many points agree."""
EVEN = 0.02
"""So near break-even (percentages: within two points) a number is on neither side: repeated runs differ by as much."""
TENSOR_CORES = {"tf32": "tf32", "fp16": "f16"}
"""Arithmetic that a dense baseline is asked for beside fp32, by its name in the columns of a verdict."""


@dataclass(frozen=True)
class Verdict(Published):
    """One claim beside what the records say of it. Numbers that are not known are NaN, words that are not are empty.

    A verdict is one of `WORDS`, or empty where the claim has no such baseline.
    """

    kernel: str
    """Whose kernel was judged: the paper's method as published, or a library where the claim is about one."""
    baseline: str = ""
    """What it is compared with as the paper compares."""
    measured: float = math.nan
    """With the paper's own kind of baseline (fp32 where it is dense), hot policy."""
    low: float = math.nan
    high: float = math.nan
    """Of a sample of the paper's problems: between which the number of all of them lies (95 %); NaN elsewhere."""
    authors: float = math.nan
    """How many times as fast as its authors' code the kernel is (of two, the one further off); NaN where not known."""
    measured_authors: float = math.nan
    """The number from the authors' own times, which must say the same where the kernel is not about as fast."""
    verdict: str = NOT_MEASURABLE
    problems: str = ""
    """`n of m`: how many of the claim's problems were recorded with both times."""
    baseline_today: str = ""
    """The best of today, in the same arithmetic; empty where the paper's baseline is that already."""
    measured_today: float = math.nan
    verdict_today: str = ""
    problems_today: str = ""
    measured_tf32: float = math.nan
    """Against the best dense product on TF32 tensor cores; NaN where the claim has no dense baseline."""
    verdict_tf32: str = ""
    measured_fp16: float = math.nan
    """Against the best dense product on fp16 tensor cores."""
    verdict_fp16: str = ""
    measured_cold: float = math.nan
    """As `measured`, with L2 overwritten before each launch."""
    reason: str = ""
    """Why it is not comparable or not measurable."""
    rule: str = ""
    """How the number is computed, in words."""
    note: str = ""
    """What its reader must know."""
    synthetic: int = 0
    """Of the recorded problems, those on generated patterns that stand for real ones."""
    before_tuning: str = ""
    """Of the numbers `measured...`, by the words behind `measured_` (`hot` for that alone), those that stand on kernels
    which were not tuned on some problem."""


def verdict(claim: Claim, measured: float, band: float = BAND) -> str:
    """Judges one number: contradicted on the other side of break-even, else by how far it is from the published one.

    Within `EVEN` of break-even it is weaker.

    `ratio`: within a factor of `band`; `points`: within as many points as go with it; `density`: as a ratio of nonzeros
    left at the two sparsities; `least`: the paper says at least (or, where lower is better, at most) so much, so a
    number that reaches it reproduces the claim and one that does not is weaker, however near; `same`: the paper says
    that nothing changes, so a number further away than the band or the points contradicts it, in whichever direction.
    An infinite number is a crossover that is never reached.
    """
    if math.isnan(measured):
        return NOT_MEASURABLE
    if math.isinf(measured):
        return STRONGER if claim.better == "higher" else CONTRADICTED
    side = claim.published - claim.break_even
    beyond = measured - claim.break_even
    if side * beyond <= 0:  # never so with a NaN
        return CONTRADICTED if abs(beyond) > EVEN * (100 if claim.unit == "%" else 1) else WEAKER
    stronger = (measured > claim.published) == (claim.better == "higher")
    if claim.scale == "least":
        return REPRODUCED if stronger or measured == claim.published else WEAKER
    if claim.scale == "density":
        near = 1 / band <= (1 - measured) / (1 - claim.published) <= band
    elif claim.scale == "points" or (claim.scale == "same" and claim.unit == "%"):
        near = abs(measured - claim.published) <= points_of(band)
    else:
        near = 1 / band <= measured / claim.published <= band
    if claim.scale == "same":
        return REPRODUCED if near else CONTRADICTED
    return REPRODUCED if near else STRONGER if stronger else WEAKER


def points_of(band: float) -> float:
    """`POINTS` of `BAND`, of a wider or narrower band in proportion more or fewer."""
    return POINTS * (band - 1) / (BAND - 1)


def judge(records: Records) -> list[Verdict]:
    """Every claim, judged by the records of a GPU."""
    authors = Authors(records)
    return [_judge(claim, records, authors) for claim in read()]


def _judge(claim: Claim, records: Records, authors: Authors) -> Verdict:
    told: dict[str, Any] = {one.name: getattr(claim, one.name) for one in fields(Published)}
    if claim.gpus:
        found, checks = {"hot": records.between(claim.quantity, *claim.gpus)}, []
    else:
        found, checks = _measured(claim, records.measure), authors.checks(claim.quantity)
        if claim.quantity.of == "times":
            found["cold"] = records.measure(claim.quantity, policy="cold")
    held = {name: _held(claim, one) for name, one in found.items()}
    words, reason, hot = {name: word for name, (word, _) in held.items()}, held["hot"][1], found["hot"]
    far = [one for one in checks if one.far]
    alone = bool(checks) and not hot.have
    theirs = _authors_number(claim, authors) if far or alone else _Theirs()
    if claim.readings:
        words["hot"], reason = _of_all(claim, [hot, *map(records.measure, claim.readings)], words["hot"], reason)
    if (not claim.obstacle or claim.readings) and ((far and hot.have) or theirs.words):
        why = (
            theirs.why or f"{theirs.note.removesuffix('.')}: {theirs.words.get('hot')}, by the records {words['hot']}."
        )
        agreed = {name for name, word in theirs.words.items() if alone or words[name] == word}
        words |= dict.fromkeys(words, NOT_COMPARABLE) | {name: theirs.words[name] for name in agreed}
        reason = "" if words["hot"] in JUDGED else f"{(far or checks)[0].words} {why}"
    elif alone and not math.isnan(theirs.value):
        reason = f"{reason} {theirs.why}"
    words |= dict.fromkeys(_flattered(found, words), UNDECIDED)
    for name, one in found.items():
        told[f"measured_{name}".removesuffix("_hot")] = math.nan if math.isinf(one.value) else one.value
        told |= {f"verdict_{name}".removesuffix("_hot"): words[name]} if name != "cold" else {}
    if claim.today:
        told |= {"baseline_today": claim.today.against, "problems_today": found["today"].problems}
    if hot.of < claim.problems:
        told |= {"low": hot.low, "high": math.nan if math.isinf(hot.high) else hot.high}
    ratios = [one.ratio for one in checks if one.ratio > 0]
    return Verdict(
        **told,
        kernel=claim.kernel,
        baseline=claim.quantity.against,
        authors=max(ratios, key=lambda one: abs(math.log(one)), default=math.nan),
        measured_authors=theirs.value,
        problems=hot.problems,
        reason=reason,
        rule=claim.quantity.words,
        note=" ".join(_notes(claim, records, hot, words, checks, theirs)),
        synthetic=hot.synthetic,
        before_tuning=" ".join(name for name, one in found.items() if one.cut),
    )


def _measured(claim: Claim, measure: Callable[[Quantity, str], Outcome]) -> dict[str, Outcome]:
    """The number as the paper compares (`hot`), against the best of `today`, and that in each arithmetic."""
    found = {"hot": measure(claim.quantity, "f32")}
    if claim.today:
        found["today"] = measure(claim.today, "f32")
    dense = claim.today or claim.quantity
    return found | ({name: measure(dense, one) for name, one in TENSOR_CORES.items()} if dense.dense else {})


@dataclass(frozen=True)
class _Theirs:
    """What the authors' own times say of a claim."""

    words: dict[str, str] = field(default_factory=dict)
    """Verdicts by name, as of `_measured`; none where their times have not all the sides."""
    value: float = math.nan
    note: str = ""
    why: str = ""


def _authors_number(claim: Claim, authors: Authors) -> _Theirs:
    if not authors.here:
        return _Theirs(why="Theirs was not timed on this GPU.")
    found = _measured(claim, authors.measure)
    hot, of = found["hot"], authors.cases(claim.quantity)["case"].nunique()
    if not hot.have:
        return _Theirs(why="Of theirs there are no times of what is compared.")
    note = f"By the authors' times {show(hot.value, claim.unit)} ({hot.have} of {of})"
    printed = _printed(claim.printed, hot.cases) if hot.have < of and claim.printed else math.nan
    if not math.isnan(printed):
        claim = replace(claim, published=printed)
        note += f", where the paper has {show(printed, claim.unit)}"
    elif hot.have < of:
        return _Theirs(value=hot.value, why=f"{note}: not all of the claim's problems.")
    words = {name: _held(replace(claim, obstacle=""), one)[0] for name, one in found.items()}
    others = [authors.measure(one) for one in claim.readings]
    words["hot"], why = _of_all(claim, [hot, *others], NOT_COMPARABLE if others else words["hot"], claim.obstacle)
    return _Theirs(words if words["hot"] in JUDGED or not others else {}, hot.value, f"{note}.", why)


def _printed(name: str, cases: Sequence[str]) -> float:
    """The geometric mean of the printed speed-ups of the cases `<problem>_..._<percent of zeros>`."""
    table = pd.read_csv(paths.datasets() / "published" / f"{name}.csv")
    printed = table.set_index([table["problem"], (100 * table["sparsity"]).round()])["speedup"]
    return geometric_mean(printed.loc[[(int(one[: one.index("_")]), float(one.rpartition("_")[2])) for one in cases]])


def _of_all(claim: Claim, found: Sequence[Outcome], word: str, reason: str) -> tuple[str, str]:
    """The verdict on every reading of what the paper leaves open, and where they differ the reason for none."""
    words = {_held(replace(claim, obstacle=""), one)[0] for one in found}
    if len(words) == 1 and words <= {*JUDGED}:
        return words.pop(), ""
    values = ", ".join(show(one.value, claim.unit) for one in found[1:] if one.have)
    return word, f"{reason} Read otherwise: {values}." if values else reason


def _held(claim: Claim, outcome: Outcome) -> tuple[str, str]:
    """The verdict on an outcome, and where it is none of `JUDGED` why."""
    if not outcome.have:
        return NOT_MEASURABLE, outcome.note or claim.obstacle
    lacking = f"{outcome.problems} problems are recorded." if outcome.have < outcome.of else ""
    if claim.obstacle or lacking:
        return NOT_COMPARABLE, claim.obstacle or lacking
    if undecided := _undecided(claim, outcome):
        return UNDECIDED, undecided
    word = verdict(claim, outcome.value)
    return word, "" if word in JUDGED else outcome.note


def _flattered(found: Mapping[str, Outcome], words: Mapping[str, str]) -> list[str]:
    """The verdicts against a library's best that tuning it may change: all but those that it only makes worse."""
    open_ = {*JUDGED} - {CONTRADICTED}
    return [one for one in ("today", *TENSOR_CORES) if one in found and found[one].cut and words[one] in open_]


def _undecided(claim: Claim, outcome: Outcome) -> str:
    """Of a sample of the paper's problems: why it does not decide, empty where it does."""
    words = {verdict(claim, one) for one in (outcome.low, outcome.value, outcome.high)}
    if outcome.of >= claim.problems or len(words) == 1:
        return ""
    upper = "upwards" if math.isinf(outcome.high) else f"to {show(outcome.high, claim.unit)}"
    holds = ", which holds the paper's number" if outcome.low <= claim.published <= outcome.high else ""
    interval = f"the number of all lies from {show(outcome.low, claim.unit)} {upper}{holds}"
    return f"Of the paper's {claim.problems:,} problems {outcome.of:,} are recorded, a sample: {interval}."


def _notes(
    claim: Claim,
    records: Records,
    hot: Outcome,
    words: Mapping[str, str],
    checks: Sequence[Check],
    theirs: _Theirs,
) -> Iterator[str]:
    yield from filter(None, (*(one.words for one in checks), theirs.note))
    if words["hot"] in JUDGED and hot.of < claim.problems:
        yield f"Of the paper's {claim.problems:,} problems {hot.of:,} are recorded, a sample that decides."
    if claim.readings and words["hot"] in JUDGED:
        yield f"{claim.obstacle} All {len(claim.readings) + 1} readings give the same verdict."
    if hot.note and hot.have:
        yield hot.note
    if words["hot"] in JUDGED and words.get("cold") in {*JUDGED} - {words["hot"]}:
        yield f"With cold caches: {words['cold']}."
    if hot.synthetic:
        yield f"{hot.synthetic} of {hot.have} problems are on synthetic patterns."
    for name, quantity in claim.beside.items():
        maths = ("f32", *TENSOR_CORES.values()) if quantity.dense else ("f32",)
        found = {one: records.measure(quantity, one, judging=False) for one in maths}
        known = {one: outcome.value for one, outcome in found.items() if math.isfinite(outcome.value)}
        if "f32" in known:
            numbers = [f"{MATHS[one]} " * (one != "f32") + show(value, claim.unit) for one, value in known.items()]
            where = "" if quantity.experiment == claim.experiment else f" in {quantity.experiment}"
            yield f"{name}: {', '.join(numbers)} ({found['f32'].problems}{where})."
    if claim.remark:
        yield claim.remark


def show(value: float, unit: str) -> str:
    """A number with its unit: `2.31×`, `71.0 %`, `120 s`; empty for NaN."""
    if math.isnan(value):
        return ""
    if unit in ("x", "exponent"):
        return f"{value:.2f}" + "×" * (unit == "x")
    if unit not in ("%", "sparsity"):
        return f"{value:,.0f} {unit}"
    return f"{100 * value:.1f} %" if unit == "sparsity" else f"{value:.1f} %"
