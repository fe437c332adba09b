"""Sentences that a run ends with: what its records answer for each kind of layer, and of the claims."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from nnzbench.claims import verdicts as claims
from nnzbench.report.data import context
from nnzbench.site.index.answer import SETS, answers


def sentences(reports: Path, gpu: str) -> list[str]:
    """From the records below `reports/gpu`, as the pages answer first. Raises `RecordError`."""
    known = {one.layers: f"{one.layers} on {one.gpu}: {one.text.replace('**', '')}" for one in answers(reports / gpu)}
    layers = [known.get(words, f"{words}: {name} is not recorded.") for name, words in SETS.items()]
    return [*layers, _claims(reports, gpu)]


def _claims(reports: Path, gpu: str) -> str:
    words = Counter(one.verdict for one in claims.judge(reports, gpu))
    judged = ", ".join(f"{words[word]} {word}" for word in claims.JUDGED)
    name = context.gpu_name(gpu, {})
    total, known = sum(words.values()), sum(words[word] for word in claims.JUDGED)
    return f"Of {total} claims of the papers these records of {name} judge {known}: {judged}."
