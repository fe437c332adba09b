"""`claims.csv` and `claims.md` of one GPU: every claim of the papers with its verdicts."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from nnzbench.report.data import context
from nnzbench.report.text import marks, shorter, tables
from nnzbench.report.text.tables import GAP, markdown
from nnzbench.site import peers
from nnzbench.site.claims import BAND, JUDGED, POINTS, WORDS, Verdict, out_of_scope, show

INTRO = f"""\
Each claim is judged by the records in this folder, and only by rows of the paper's method as published (or of a
library, where the claim is about one). This project's own designs judge nothing; what they reach is told beside.

Two verdicts stand side by side: **as the paper compares**, against the kind of rival that the paper had (such as the
default algorithm of cuSPARSE), and **against the best of today**, the fastest of all algorithms of the same libraries
in the same arithmetic, where that is another one. The number of problems stands behind each.

* **reproduced**: a ratio within a factor of {BAND:g} of the published one, a percentage within {POINTS:g} points, a
  sparsity whose nonzeros left are within a factor of {BAND:g}. GPUs and libraries differ by generations from the
  papers', so nearer would say little. What is claimed to be *over* a number has to reach it, and *every* problem
  means all.
* **stronger**, **weaker**: the same direction, further away.
* **contradicted**: the other direction, such as slower where the paper is faster; or a change where it sees none.
* **not comparable**: there is a number, but not of the same thing: sizes that the paper does not print and that were
  guessed, problems or mappings that it leaves open, a quantity that was counted and not measured, a part of a model,
  a kind of GPU that this suite does not run on, a kernel or rival that differs here in the very part that the claim
  is about, or fewer problems than the paper's.
* **not measurable**: there is no number; the reason says why.

Times are hot unless a column says cold. TF32 and fp16 are the same claim against the best dense product on tensor
cores, the sparse side still in fp32: papers older than those units could not ask.
"""


def write(reports: Path, gpu: str, verdicts: Sequence[Verdict]) -> Path:
    """Writes `claims.csv` and `claims.md` below `reports/gpu`, the same bytes each time, and returns the latter.

    What makes the page too long stands in `claims-tables.md`.
    """
    tables.write_csv(pd.DataFrame([dataclasses.asdict(one) for one in verdicts]), reports / gpu / "claims.csv")
    path = reports / gpu / "claims.md"
    shorter.write(path, _page(verdicts, gpu), "claims-tables.md")
    return path


def judged_today(one: Verdict) -> str:
    """The verdict against the best of today, which is the paper's where its rival is that already."""
    return one.verdict_today or one.verdict


def _page(verdicts: Sequence[Verdict], gpu: str) -> str:
    parts = [f"# What the papers claim, on {context.gpu_name(gpu, {})}", _summary(verdicts), INTRO.rstrip()]
    if gpu in set(peers.read()[1]["gpu"]):
        parts.append("Whether the kernels that judge are as good as the authors' own: [peers](peers/README.md).")
    cut = sum(one.before_tuning != "" for one in verdicts)
    if cut:
        parts.append(
            f"{marks.MARK} {marks.WORDS.capitalize()}, numbers of {cut} claims: on some of the problems the run did "
            "not try all candidates of a side that is compared. Tuned, either side may be faster."
        )
    parts.append(_counts(verdicts))
    for paper, of_paper in _by_paper(verdicts).items():
        rows = [_row(one) for one in of_paper]
        header = ["claim", "published", "as the paper compares", "against the best of today", "TF32", "fp16", "cold"]
        notes = "\n".join(_details(one) for one in of_paper)
        parts += [f"## {paper}", markdown(header, rows), f"How each was judged:\n\n{notes}"]
    return "\n\n".join(parts) + "\n"


def _by_paper(verdicts: Iterable[Verdict]) -> dict[str, list[Verdict]]:
    """Each paper once, in the order in which the table of claims first names them; its claims may lie apart there."""
    found: dict[str, list[Verdict]] = {}
    for one in verdicts:
        found.setdefault(one.paper, []).append(one)
    return found


def _summary(verdicts: Sequence[Verdict]) -> str:
    """How many claims there are, how many are judged, and how they came out."""
    words = [one.verdict for one in verdicts]
    judged = sum(word in JUDGED for word in words)
    today = Counter(judged_today(one) for one in verdicts)
    counted = Counter(words)
    found = ", ".join(f"{counted[word]} {word}" for word in JUDGED)
    best = ", ".join(f"{today[word]} {word}" for word in JUDGED)
    other = len(out_of_scope())
    return (
        f"**{len(verdicts)} claims, {judged} judged**: as the papers compare {found}; against the best of today {best}."
        f" {counted[WORDS[-2]]} are not comparable and {counted[WORDS[-1]]} not measurable here. {other} more are "
        "about accuracy, energy or other chips and stand in `datasets/published/claims_out_of_scope.csv`."
    )


def _counts(verdicts: Sequence[Verdict]) -> str:
    """How many claims of each paper got which verdict, and of all against other rivals."""
    rows = [_count(paper, [one.verdict for one in mine]) for paper, mine in _by_paper(verdicts).items()]
    rows.append(_count("**all, as the papers compare**", [one.verdict for one in verdicts]))
    rows.append(_count("**all, against the best of today**", [judged_today(one) for one in verdicts]))
    rows.append(_count("dense rival in TF32", [one.verdict_tf32 for one in verdicts]))
    rows.append(_count("dense rival in fp16", [one.verdict_fp16 for one in verdicts]))
    return markdown(["paper", *WORDS], rows)


def _count(name: str, words: Sequence[str]) -> list[str]:
    counts = Counter(words)
    return [name, *(str(counts[word]) for word in WORDS)]


def _row(one: Verdict) -> list[str]:
    published = f"{show(one.published, one.unit)} ({one.published_gpu})"
    same = "the same rival" if one.rival and not one.rival_today else GAP
    return [
        f"{one.claim} ([{one.id}](#{_anchor(one.id)}))",
        published,
        _judged(_value(one, "hot"), one.verdict, one.problems),
        _judged(_value(one, "today"), one.verdict_today, one.problems_today) if one.rival_today else same,
        _judged(_value(one, "tf32"), one.verdict_tf32),
        _judged(_value(one, "fp16"), one.verdict_fp16),
        _value(one, "cold") or GAP,
    ]


def _value(one: Verdict, which: str) -> str:
    """A number with its unit, and the mark where it is one of `before_tuning`; empty where it is not known."""
    value: float = one.measured if which == "hot" else getattr(one, f"measured_{which}")
    text = show(value, one.unit)
    return f"{text}{marks.MARK}" if text and which in one.before_tuning.split() else text


def _judged(value: str, word: str, problems: str = "") -> str:
    if not word:
        return GAP
    text = f"{value} **{word}**" if value else word
    return f"{text} ({problems})" if problems else text


def _anchor(name: str) -> str:
    return name.replace(".", "-")


def _details(one: Verdict) -> str:
    parts = [f'* <a id="{_anchor(one.id)}"></a>`{one.id}` ({one.where}).']
    if one.reason:
        parts.append(f"{one.verdict.capitalize()}: {one.reason}")
    if one.rule != "none":
        parts.append(f"Kernel: {one.kernel}. Rule: {one.rule}.")
    if one.rival_today:
        parts.append(f"Best of today: {one.rival_today}.")
    return " ".join([*parts, *filter(None, [one.note])])
