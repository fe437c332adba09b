"""Lines that a run ends with: what its records answer, one line for each kind of layer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nnzbench.facts.results import each, load
from nnzbench.facts.table import Comparison
from nnzbench.papers.catalogue import page_of
from nnzbench.records.files import has_records
from nnzbench.report.pages.page import Page
from nnzbench.report.pages.view import View
from nnzbench.site.index.answer import SETS

KINDS = {"pays_map": "Where sparsity pays", **SETS}
"""Experiments whose first recorded answer is told."""


def answers(reports: Path, gpu: str) -> Iterator[str]:
    """From the records below `reports/gpu`; none for what has too few of them. Raises `RecordError`."""
    for name, layers in KINDS.items():
        page = page_of(name)
        if has_records(reports / gpu / name) and isinstance(page, Page):
            told = _first(page, View(load(reports / gpu / name), page.attributes))
            if told:
                yield f"{layers}: {told}"


def _first(page: Page, view: View) -> str:
    """The page's first answer that has records, over the strongest baseline."""
    for one in page.answers:
        facts = view.compare(Comparison((one.subject,), (one.baseline,), (one.group,)))
        for row in each(facts[facts["policy"].isin(view.policies[:1])]):
            of = f"{row.n} problem{'s' * (row.n != 1)}, {row.policy}{'' if row.tuned else ', not tuned'}"
            return f"{row.subject} is {row.ratio:.2f}× as fast as {row.baseline} ({row.group}; {of})"
    return ""
