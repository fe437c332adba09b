"""What the records answer first: README.md's headline, and a sentence for each kind of layer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from nnzbench import paths
from nnzbench.facts.results import each, load
from nnzbench.facts.selector import CUBLAS, FP16, MATHS
from nnzbench.facts.table import Comparison
from nnzbench.kernels.registry import about
from nnzbench.papers.catalogue import page_of
from nnzbench.records.files import has_records
from nnzbench.report import render
from nnzbench.report.data import context
from nnzbench.report.data.text import GAP, markdown, number
from nnzbench.report.pages.page import Page
from nnzbench.report.pages.view import View
from nnzbench.site.generations import published

HEADLINE = re.compile(r"(<!-- nnzbench:headline -->\n).*?(<!-- /?nnzbench:headline -->)", re.DOTALL)
MAPS = {"pays_map": "", "llm_layers": "layers of language models"}
"""Experiments with a map, and their layers where groups do not say: the first map is shown, also another GPU's."""
OTHERS = {
    "decoder_block": "whole language models",
    "sparsert_table1": "small pruned layers",
    "sputnik_rnn": "recurrent layers",
}
"""Further experiments, with a line each but for `MORE`."""
MORE = {"decoder_block": 2}
LINES = 7


def write_headline(reports: Path) -> bool:
    """Replaces the text between the markers of the README.md that lies beside `reports`; True where it changed.

    Nothing else writes outside a results folder, and it is done on an explicit word only (`nnzbench report --readme`).
    Does nothing where there is no README, no pair of markers or no recorded run.
    """
    reports = reports.resolve()
    readme = reports.parent / "README.md"
    folder = _folder(reports)
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
    others = [name for name in OTHERS if has_records(folder / name)]
    mapped = [name for name in MAPS if has_records(folder / name)][:1]
    views = {name: _view(folder / name) for name in (*mapped, *others)}
    rest = {name: MORE.get(name, 1) for name in others}
    few = {name: LINES - sum(rest.values()) for name in mapped} | rest
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
        f"cuBLAS fp32 is the baseline of most papers. Each ratio is a row of its page's `facts.csv`. Everything with "
        f"filters: [{root}/index.html]({root}/index.html) (download it; it needs no network). The "
        f"papers' claims, judged: [claims]({root}/claims/README.md)."
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
        layers = f"[{(MAPS | OTHERS)[name] or group.words}]({link}/README.md)"
        ratios = [f"**{number(best['ratio'])}×**", f"{number(older.iloc[0])}×" if len(older) else GAP]
        out.append([layers, f"{group.level:g} %", columns, fastest, *ratios])
    return out[:most]


def _folder(reports: Path) -> Path | None:
    """Of the GPU that is shown first."""
    found = {path.parent.parent for name in (*MAPS, *OTHERS) for path in reports.glob(f"*/{name}/environment.json")}
    return min(sorted(found), key=standing, default=None)


def standing(folder: Path) -> tuple[float, float]:
    """What a GPU comes by, the least first: by its page of coverage, how many whole percent of its cells have no row,
    or a time before tuning only; of equals the fastest memory, so that few cells don't change what README shows.
    """
    bandwidth = published.data_sheet(folder.name).copy_gbs
    table = folder / "coverage.csv"
    lacking = math.inf
    if table.is_file():
        cells = pd.read_csv(table).reindex(columns=["expected", "missing", "untuned"]).sum()  # untuned: not in old ones
        lacking = 100 * (cells["missing"] + cells["untuned"]) // cells["expected"]
    return lacking, 0.0 if math.isnan(bandwidth) else -bandwidth


SETS = {
    "llm_layers": "Layers of language models",
    "decoder_block": "Whole language models",
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
