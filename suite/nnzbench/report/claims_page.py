"""`claims.csv` and `claims.md` of one GPU: every claim of the papers with its verdict."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pandas as pd

from nnzbench.report import context, tables
from nnzbench.report.claims import BAND, LEAST_SHARE, POINTS, WORDS, Verdict, judge, show
from nnzbench.report.tables import GAP, markdown

INTRO = f"""\
Each claim is judged by the records in this folder, with the paper's own kernel where this project has one written anew.

* **reproduced**: a ratio within a factor of {BAND:g} of the published one, a percentage within {POINTS:g} points, a
  sparsity whose nonzeros left are within a factor of {BAND:g}. GPUs and libraries differ by generations from the
  papers', so nearer would say little.
* **stronger**, **weaker**: the same direction, further away.
* **contradicted**: the other direction, such as slower where the paper is faster.
* **not measurable**: fewer than {100 * LEAST_SHARE:.0f} % of the problems are recorded, or it is not in this suite; the
  note says which.

Times are hot unless a column says cold. TF32 and fp16 are the same claim with the dense baseline on tensor cores, the
sparse side still in fp32: papers older than those units could not ask. The problem counts say how many were recorded.
"""


def write(reports: Path, gpu: str) -> Path:
    """Writes `claims.csv` and `claims.md` below `reports/gpu`, the same bytes each time, and returns the latter."""
    verdicts = judge(reports, gpu)
    tables.write_csv(pd.DataFrame([dataclasses.asdict(one) for one in verdicts]), reports / gpu / "claims.csv")
    path = reports / gpu / "claims.md"
    path.write_text(_page(verdicts, gpu), encoding="utf-8", newline="\n")
    return path


def _page(verdicts: Sequence[Verdict], gpu: str) -> str:
    parts = [f"# What the papers claim, on {context.gpu_name(gpu, {})}", INTRO.rstrip(), _counts(verdicts)]
    for paper, group in groupby(verdicts, key=lambda one: one.paper):
        of_paper = list(group)
        rows = [_row(one) for one in of_paper]
        header = ["claim", "published", "measured", "against TF32", "against fp16", "cold", "problems"]
        notes = "\n".join(_details(one) for one in of_paper)
        parts += [f"## {paper}", markdown(header, rows), f"How each was judged:\n\n{notes}"]
    return "\n\n".join(parts) + "\n"


def _counts(verdicts: Sequence[Verdict]) -> str:
    """How many claims of each paper got which verdict, and of all against tensor cores."""
    rows = []
    for paper, group in groupby(verdicts, key=lambda one: one.paper):
        rows.append(_count(paper, [one.verdict for one in group]))
    rows.append(_count("**all**", [one.verdict for one in verdicts]))
    rows.append(_count("dense baseline in TF32", [one.verdict_tf32 for one in verdicts]))
    rows.append(_count("dense baseline in fp16", [one.verdict_fp16 for one in verdicts]))
    return markdown(["paper", *WORDS], rows)


def _count(name: str, words: Sequence[str]) -> list[str]:
    counts = Counter(words)
    return [name, *(str(counts[word]) for word in WORDS)]


def _row(one: Verdict) -> list[str]:
    published = f"{show(one.published, one.unit)} ({one.published_gpu})"
    return [
        f"{one.claim} ([{one.id}](#{_anchor(one.id)}))",
        published,
        _judged(show(one.measured, one.unit), one.verdict),
        _judged(show(one.measured_tf32, one.unit), one.verdict_tf32),
        _judged(show(one.measured_fp16, one.unit), one.verdict_fp16),
        show(one.measured_cold, one.unit) or GAP,
        one.problems or GAP,
    ]


def _judged(value: str, word: str) -> str:
    if not word:
        return GAP
    return f"{value} **{word}**".strip() if value else word


def _anchor(name: str) -> str:
    return name.replace(".", "-")


def _details(one: Verdict) -> str:
    note = f" {one.note}" if one.note else ""
    return f'* <a id="{_anchor(one.id)}"></a>`{one.id}` ({one.where}). Kernel: {one.kernel}. Rule: {one.rule}.{note}'
