"""What the records answer first: README.md's headline, and a sentence a kind of layer, as index.html has it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nnzbench.core import paths
from nnzbench.kernels.registry import about
from nnzbench.papers.catalogue import page_of
from nnzbench.report import render
from nnzbench.report.page import Page, View
from nnzbench.report.text import GAP, markdown, number
from nnzbench.results.records.files import has_records
from nnzbench.results.result_set import load
from nnzbench.results.selector import CUBLAS, FP16, MATHS
from nnzbench.results.table import Comparison

HEADLINE = re.compile(r"(<!-- nnzbench:headline -->\n).*?(<!-- /?nnzbench:headline -->)", re.DOTALL)
LAYERS = {
    "pays_map": "where sparsity pays",
    "llm_layers": "layers of language models",
    "decoder_block": "whole language models",
    "sparsert_table1": "small pruned layers",
    "sputnik_rnn": "recurrent layers",
    "sputnik_dlmc": "a collection of pruned networks",
}
"""Experiments whose first answer is told, and what each stands for."""
MAPS = ("pays_map", "llm_layers")
"""Of them those with a map: the first that is recorded is shown, also another GPU's."""
OTHERS = {"decoder_block": 2, "sparsert_table1": 1, "sputnik_rnn": 1}
"""Further ones of which README has so many lines."""
LINES = 7


def write_headline(reports: Path, gpus: Sequence[str]) -> bool:
    """Replaces the text between the markers of the README.md that lies beside `reports`; True where it changed.

    It is the headline of the first of `gpus` that has one of its experiments. Nothing else writes outside a results
    folder, and it is done on an explicit word only (`nnzbench report --readme`). Does nothing where there is no README,
    no pair of markers or no recorded run.
    """
    reports = reports.resolve()
    readme = reports.parent / "README.md"
    recorded = (reports / gpu for gpu in gpus if any(has_records(reports / gpu / one) for one in (*MAPS, *OTHERS)))
    folder = next(recorded, None)
    if folder is None or not readme.is_file():
        return False
    before = readme.read_text(encoding="utf-8")
    text = headline(folder)
    after = HEADLINE.sub(lambda match: f"{match[1]}{text}\n{match[2]}", before, count=1)
    if after == before:
        return False
    paths.write_text(readme, after)
    return True


def headline(folder: Path) -> str:
    """Markdown: the map, and at most `LINES` lines on layers that `folder`, a GPU's, has tuned records of."""
    link = "/".join(folder.parts[-2:])
    root = folder.parts[-2]
    few = {name: most for name, most in OTHERS.items() if has_records(folder / name)}
    mapped = [name for name in MAPS if has_records(folder / name)][:1]
    few = {name: LINES - sum(few.values()) for name in mapped} | few
    views = {name: _view(folder / name) for name in few}
    found = [line for name, most in few.items() for line in _lines(views[name], f"{link}/{name}", most)]
    gpu = next(iter(views.values())).gpu
    heads = [gpu, "zeros", "columns", "fastest sparse", f"over {FP16.label}", f"over {CUBLAS.label}"]
    maps = [one / name for name in MAPS for one in (folder, *sorted(folder.parent.glob("*")))]
    pictures = [
        f"[![Where sparsity pays: columns across, zeros up]({at}/map.svg)]({at}/README.md)"
        for at in ("/".join(one.parts[-3:]) for one in maps if (one / "map.svg").is_file())
    ][:1]
    told = (
        f"Times as fast, geometric means, hot L2 (whole models: one graph of all layers, over the dense fp16 model); "
        f"cuBLAS fp32 is the baseline of most papers. Each ratio is a row of its page's `facts.csv`. Everything on "
        f"one page with filters: `nnzbench report --reports {root}` draws `{root}/index.html` (it needs no network). "
        f"The papers' claims, judged: [claims]({root}/claims/README.md)."
    )
    return "\n\n".join([*pictures, markdown(heads, found, left=4), told])


def _view(folder: Path) -> View:
    page = page_of(folder.name)
    return View(load(folder), page.attributes if page else "")


def _lines(view: View, link: str, most: int) -> list[list[str]]:
    """Of the groups that the page answers for: the fastest sparse side over what can be called today, where tuned."""
    name = view.results.experiment
    page = page_of(name)
    if page is None or page.comparison is None:
        return []
    groups = tuple(dict.fromkeys(one.group for one in page.answers))
    dense = FP16 if FP16 in page.comparison.baselines else page.comparison.baselines[0]  # of models, the whole one
    facts = view.compare(Comparison(page.comparison.subjects, (dense, CUBLAS), groups))
    facts = facts[facts["tuned"] & facts["policy"].isin(view.policies[:1])]
    out = []
    for group in groups:
        here = facts[facts["group"] == group.label]
        over = here[here["baseline"] == dense.label].sort_values("ratio", kind="stable")
        if over.empty:
            continue
        best = over.iloc[-1]
        subject = next(one for one in page.comparison.subjects if one.label == best["subject"])
        kernels = view.data.fastest(group, subject)[best["policy"]]["kernel"].value_counts().index
        fastest = f"{' or '.join(about(one).label for one in kernels[:2])} {MATHS[subject.math]}"
        older = here[(here["baseline"] == CUBLAS.label) & (here["subject"] == subject.label)]["ratio"]
        widths = sorted(set(view.data.of(group)["n"]))
        columns = f"{widths[0]:,} to {widths[-1]:,}" if len(widths) > 1 else f"{widths[0]:,}"
        layers = f"[{group.words if name == MAPS[0] else LAYERS[name]}]({link}/README.md)"
        ratios = [f"**{number(best['ratio'])}×**", f"{number(older.iloc[0])}×" if len(older) else GAP]
        out.append([layers, f"{group.level:g} %", columns, fastest, *ratios])
    return out[:most]


class Answer(NamedTuple):
    """One sentence in Markdown, and what it is of."""

    layers: str
    folder: str
    """Of the page, below the reports."""
    gpu: str
    text: str


def answers(folder: Path) -> Iterator[Answer]:
    """The first answer of each page of `LAYERS` that `folder`, a GPU's, has records of. Raises `RecordError`."""
    for name, layers in LAYERS.items():
        page = page_of(name)
        if has_records(folder / name) and isinstance(page, Page):
            view = View(load(folder / name), page.attributes)
            if text := next(render.answers(page, view), ""):
                yield Answer(layers.capitalize(), f"{folder.name}/{name}", view.gpu, text)
