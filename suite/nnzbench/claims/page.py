"""`claims.csv` and `claims.md` of one GPU: every claim of the papers with its verdicts."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from nnzbench import paths
from nnzbench.claims.verdicts import JUDGED, WORDS, Verdict, out_of_scope, show
from nnzbench.report.data import context
from nnzbench.report.data.text import GAP, environment, markdown
from nnzbench.report.pages.elements import MARK

HEADER = (
    "claim", "published", "as the paper compares", "over the authors' code", "against the best of today",
    "TF32", "fp16", "cold",
)  # fmt: skip


def write(reports: Path, gpu: str, verdicts: Sequence[Verdict]) -> Path:
    """Writes `claims.csv` and `claims.md` below `reports/gpu`, the same bytes each time, and returns the latter."""
    paths.write_csv(pd.DataFrame([dataclasses.asdict(one) for one in verdicts]), reports / gpu / "claims.csv")
    path = reports / gpu / "claims.md"
    paths.write_text(path, _page(verdicts, gpu, (reports / gpu / "peers" / "README.md").is_file()))
    return path


def remove(reports: Path, gpu: str) -> None:
    """Leaves no `claims.csv` and `claims.md` of other records there."""
    for name in ("claims.csv", "claims.md"):
        (reports / gpu / name).unlink(missing_ok=True)


def judged_today(one: Verdict) -> str:
    """The verdict against the best of today, which is the paper's where its baseline is that already."""
    return one.verdict_today or one.verdict


def _page(verdicts: Sequence[Verdict], gpu: str, upstream: bool) -> str:
    """`upstream`: whether the GPU has a page of the authors' own codes."""
    papers: dict[str, list[Verdict]] = {}
    for one in verdicts:  # a paper's claims may lie apart in their table
        papers.setdefault(one.paper, []).append(one)
    counts = {paper: Counter(one.verdict for one in mine) for paper, mine in papers.items()}
    counts |= {
        "**all, as the papers compare**": Counter(one.verdict for one in verdicts),
        "**all, against the best of today**": Counter(map(judged_today, verdicts)),
        "dense baseline in TF32": Counter(one.verdict_tf32 for one in verdicts),
        "dense baseline in fp16": Counter(one.verdict_fp16 for one in verdicts),
    }
    template = environment().get_template("claims.md.j2")
    return template.render(
        gpu=context.gpu_name(gpu, {}),
        verdicts=verdicts,
        judged=JUDGED,
        count=sum(one.verdict in JUDGED for one in verdicts),
        words=WORDS,
        out_of_scope=len(out_of_scope()),
        upstream=upstream,
        cut=sum(one.before_tuning != "" for one in verdicts),
        mark=MARK,
        as_published=Counter(one.verdict for one in verdicts),
        today=Counter(map(judged_today, verdicts)),
        counts=markdown(["paper", *WORDS], _counts(counts.items())),
        papers={paper: (markdown(HEADER, map(_row, mine)), _by_kernel(mine)) for paper, mine in papers.items()},
        anchor=_anchor,
    )


def _by_kernel(verdicts: Iterable[Verdict]) -> list[tuple[str, list[Verdict]]]:
    """Claims in their order, those of one kernel that follow each other together; empty: those that have no rule."""
    told = itertools.groupby(verdicts, lambda one: "" if one.rule == "none" else one.kernel)
    return [(kernel, list(mine)) for kernel, mine in told]


def _counts(counts: Iterable[tuple[str, Counter[str]]]) -> Iterable[list[str]]:
    return ([name, *(str(count[word]) for word in WORDS)] for name, count in counts)


def _row(one: Verdict) -> list[str]:
    same = "the same baseline" if one.baseline else GAP
    today = _judged(one, "today", one.verdict_today, one.problems_today)
    return [
        f"{one.claim} ([{one.id}](#{_anchor(one.id)}))",
        f"{show(one.published, one.unit)} ({one.published_gpu})",
        _judged(one, "hot", one.verdict, one.problems, one.low, one.high),
        _authors(one),
        today if one.baseline_today else same,
        _judged(one, "tf32", one.verdict_tf32),
        _judged(one, "fp16", one.verdict_fp16),
        _value(one, "cold") or GAP,
    ]


def _value(one: Verdict, which: str) -> str:
    """A number with its unit, and the mark where it is one of `before_tuning`; empty where it is not known."""
    value: float = one.measured if which == "hot" else getattr(one, f"measured_{which}")
    text = show(value, one.unit)
    return f"{text}{MARK}" if text and which in one.before_tuning.split() else text


def _authors(one: Verdict) -> str:
    """How many times as fast as its authors' code the kernel is, and their own number where that judges."""
    if math.isnan(one.authors) and math.isnan(one.measured_authors):
        return GAP
    theirs = show(one.measured_authors, one.unit)
    return f"{show(one.authors, 'x') or GAP}{f': theirs {theirs}' if theirs else ''}"


def _judged(
    one: Verdict, which: str, word: str, problems: str = "", low: float = math.nan, high: float = math.nan
) -> str:
    value = _value(one, which)
    if not math.isnan(low):
        value += (
            f" ({show(low, one.unit)} to {show(high, one.unit)})" if high >= low else f" (from {show(low, one.unit)})"
        )
    text = f"{value} **{word}**" if value else word
    return (f"{text} ({problems})" if problems else text) if word else GAP


def _anchor(name: str) -> str:
    return name.replace(".", "-")
