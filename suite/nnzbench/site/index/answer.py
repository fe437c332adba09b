"""What a GPU's records answer first: one sentence for each kind of layer, the first of its experiment's page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nnzbench.facts.results import load
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
