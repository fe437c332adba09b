"""What a GPU's records answer first, one sentence for each kind of layer: on index.html, and where a run ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nnzbench.facts.results import each, load
from nnzbench.facts.table import Comparison
from nnzbench.papers.catalogue import page_of
from nnzbench.records.files import has_records
from nnzbench.report import render
from nnzbench.report.data import context
from nnzbench.report.pages.page import Page
from nnzbench.report.pages.view import View

SETS = {
    "llm_layers": "Layers of language models",
    "sparsert_table1": "Small pruned layers",
    "sputnik_rnn": "Large recurrent layers",
    "sputnik_dlmc": "A collection of pruned networks",
}
"""Experiments whose first answer stands for a kind of layer; the first has the figure."""
KINDS = {"pays_map": "Where sparsity pays", **SETS}
"""Experiments whose first recorded answer is told."""


class Answer(NamedTuple):
    """One sentence in Markdown, and what it is of."""

    layers: str
    folder: str
    """Of the page, below the reports."""
    gpu: str
    text: str


def answers(folder: Path) -> Iterator[Answer]:
    """Of `folder`, a GPU's, by its records. Raises `RecordError`."""
    for name, layers in SETS.items():
        page = page_of(name)
        if has_records(folder / name) and isinstance(page, Page):
            results = load(folder / name)
            text = next(render.answers(page, View(results, page.attributes)), "not recorded.")
            yield Answer(layers, f"{folder.name}/{name}", context.gpu_name(results.gpu, results.environment), text)


def lines(reports: Path, gpu: str) -> Iterator[str]:
    """What a run ends with, a line for each kind of layer of which enough is recorded below `reports/gpu`.

    Raises `RecordError`.
    """
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
