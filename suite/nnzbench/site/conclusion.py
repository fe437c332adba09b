"""Sentences that a run ends with: what its records answer for each kind of layer, and of the claims."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from nnzbench.report.data import context
from nnzbench.site import claims
from nnzbench.site.index.answer import answers


def sentences(reports: Path, gpu: str) -> list[str]:
    """From the records below `reports/gpu`, under the first policy that they have. Raises `RecordError`."""
    return [*(f"{one.layers} on {one.gpu}: {one.text}" for one in answers(reports / gpu)), _claims(reports, gpu)]


def _claims(reports: Path, gpu: str) -> str:
    words = Counter(one.verdict for one in claims.judge(reports, gpu))
    judged = ", ".join(f"{words[word]} {word}" for word in claims.JUDGED)
    name = context.gpu_name(gpu, {})
    total, known = sum(words.values()), sum(words[word] for word in claims.JUDGED)
    return f"Of {total} claims of the papers these records of {name} judge {known}: {judged}."
