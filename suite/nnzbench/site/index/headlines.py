"""What the records answer first: README.md's headline, and a sentence a kind of layer, as index.html has it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from nnzbench.core import paths
from nnzbench.papers import sparsert
from nnzbench.papers.catalogue import page_of
from nnzbench.papers.nnzbench import decoder_block, llm_layers, pays_map, prune_or_quantise
from nnzbench.papers.sputnik import products
from nnzbench.report import render
from nnzbench.report.page import Crossings, Page, View
from nnzbench.report.tables import CARDS, crossings
from nnzbench.report.text import GAP, markdown, number
from nnzbench.results.groups import Group
from nnzbench.results.records.folder import has_records
from nnzbench.results.result_set import each, load
from nnzbench.results.selector import FP16, Selector, best_dense, own, written_here
from nnzbench.results.table import Comparison, pairs

HEADLINE = re.compile(r"(<!-- nnzbench:headline -->\n).*?(<!-- /?nnzbench:headline -->)", re.DOTALL)
LAYERS = {
    "pays_map": "where sparsity pays",
    "llm_layers": "layers of language models",
    "decoder_block": "whole language models",
    "prune_or_quantise": "pruned or quantised layers",
    "sparsert_table1": "small pruned layers",
    "sputnik_rnn": "recurrent layers",
    "sputnik_dlmc": "a collection of pruned networks",
}
"""Experiments whose first answer is told, and what each stands for."""
MAPS = ("pays_map", "llm_layers")
"""Of them those with a map: the first that is recorded is shown, also another GPU's."""
TWICE = "llm_layers"
"""Whose layers other experiments recorded again."""
LEVELS = (70, 80, 90)
HEADS = (*(f"{one} % zeros" for one in LEVELS), "90 %, over FP8", "over INT4")
WIDTHS = (1, 16, 64)


class Cell(NamedTuple):
    """A fact of an experiment's page: of a comparison of one subject, baseline and group, or of its part `at`."""

    experiment: str
    asked: Comparison
    at: tuple[tuple[str, float], ...] = ()


class Line(NamedTuple):
    """A line of README's table: layers at some columns."""

    layers: str
    columns: str
    cells: tuple[Cell | None, ...]
    """Below `HEADS`: over dense fp16 by `LEVELS`, and at 90 % zeros over FP8 and INT4."""
    sizes: Group | None = None
    """Layers of `llm_layers`, which has many levels: it is told from how many zeros on they are faster."""


def _of_models(words: str, sizes: Group, n: int) -> Line:
    best = (written_here("f16"),)
    fp16 = Comparison(best, (FP16,), (sizes,), ("n", "level"))
    fp8 = Comparison(best, (best_dense("f8"),), (llm_layers.against_all(90, n, sizes),))
    int4 = Comparison(best, (prune_or_quantise.INT4,), (prune_or_quantise.at(90, n),))
    cells = (*(Cell("llm_layers", fp16, (("columns", n), ("level", one))) for one in LEVELS), Cell("llm_layers", fp8))
    large = sizes == llm_layers.LARGE
    return Line(words, str(n), (*cells, Cell("prune_or_quantise", int4) if large else None), sizes)


def _whole(n: int) -> Line:
    def over(level: int, dense: Selector) -> Cell:
        asked = Comparison((decoder_block.SPARSE,), (dense,), (decoder_block.against_dense(level, n),))
        return Cell("decoder_block", asked)

    fp16 = (over(one, decoder_block.DENSE) for one in LEVELS)
    return Line("all of {models}, synthetic weights", str(n), (*fp16, over(90, decoder_block.FP8), None))


def _hot(words: str, columns: str, experiment: str, subject: Selector, groups: Sequence[Group]) -> Line:
    found = {group.level: Cell(experiment, Comparison((subject,), (FP16,), (group,))) for group in groups}
    return Line(f"{words}, hot", columns, (*map(found.get, LEVELS), None, None))


LINES = (
    *(_of_models("layers of Llama of 64 MB and more", llm_layers.LARGE, n) for n in WIDTHS),
    *(_of_models("layers of 32 MB", llm_layers.SMALL, n) for n in WIDTHS),
    *map(_whole, WIDTHS[:2]),
    _hot("recurrent layers", "32 to 128", "sputnik_rnn", own("f16"), products.SPMM_LEVELS),
    _hot("small layers, code of their weights (fp32)", "49 to 12,544", "sparsert_table1", own(), sparsert.LEVELS),
    _hot("small layers, weights as data (fp32)", "49 to 12,544", "sparsert_table1", own(as_data=True), sparsert.LEVELS),
)


def write_headline(reports: Path, gpus: Sequence[str]) -> bool:
    """Replaces the text between the markers of the README.md that lies beside `reports`; True where it changed.

    It is the headline of the first of `gpus` that has one of its experiments. Nothing else writes outside a results
    folder, and it is done on an explicit word only (`nnzbench report --readme`). Does nothing where there is no README,
    no pair of markers or no recorded run.
    """
    reports = reports.resolve()
    readme = reports.parent / "README.md"
    text = next(filter(None, (headline(reports / gpu) for gpu in gpus)), "") if readme.is_file() else ""
    before = readme.read_text(encoding="utf-8") if text else ""
    after = HEADLINE.sub(lambda match: f"{match[1]}{text}\n{match[2]}", before, count=1)
    if after == before:
        return False
    paths.write_text(readme, after)
    return True


def headline(folder: Path) -> str:
    """Markdown: the map, what the lines say in words, and `LINES`, as far as `folder`, a GPU's, has tuned records."""
    names = {one.experiment: None for line in LINES for one in line.cells if one}
    views = {name: _view(folder / name) for name in names if has_records(folder / name)}
    again = _again(views)
    apart = 1 + max(map(abs, again), default=0.0)
    facts = {line: [_fact(one, views, apart) for one in line.cells] for line in LINES}
    found = {line: made for line, made in facts.items() if any(one is not None for one in made)}
    if not found:
        return ""
    root, gpu = folder.parts[-2], next(iter(views.values())).gpu
    maps = [one / name for name in MAPS for one in (folder, *sorted(folder.parent.glob("*")))]
    pictures = [
        f"[![Where sparsity pays: columns across, zeros up]({at}/map.svg)]({at}/README.md)"
        for at in ("/".join(one.parts[-3:]) for one in maps if (one / "map.svg").is_file())
    ][:1]
    rows = [
        [f"[{_words(line, views)}]({root}/{folder.name}/{_experiment(line)}/README.md)", line.columns,
         *map(_text, made), _by_bytes(line, views)]
        for line, made in found.items()
    ]  # fmt: skip
    page = f"{root}/{folder.name}/prune_or_quantise/README.md"
    wins = f", not even Marlin's ([who wins]({page}))" if "prune_or_quantise" in views else ""
    told = (
        "Times as fast as the best dense fp16 product; in the last three columns, with 90 % zeros, as dense FP8, as "
        "PyTorch's INT4 and as 4-bit weights and scales read at a copy's bandwidth, which no kernel timed here reaches"
        f"{wins}. Geometric means with 95 % intervals (of one problem {100 * CARDS - 100:.0f} %, as two runs differ), "
        f"bold where faster beyond them; the fastest of all tunings tried. {_second(again)}Weights come from memory as "
        "in a model, or lie in the cache (*hot*). A whole model is one graph, whose sparse form alone overlaps "
        "launches and has SwiGLU in a product. Each measured ratio is a row of its page's `facts.csv`. Papers' claims, "
        f"judged: [claims]({root}/claims/README.md)."
    )
    table = markdown([f"{gpu}: layers", "columns", *HEADS, "INT4 by bytes"], rows, left=2)
    return "\n\n".join([*pictures, *_sentences(found, views), table, told])


def _view(folder: Path) -> View:
    page = page_of(folder.name)
    return View(load(folder), page.attributes if page else "")


def _experiment(line: Line) -> str:
    return next(one.experiment for one in line.cells if one)


def _words(line: Line, views: Mapping[str, View]) -> str:
    groups = [one.asked.groups[0] for one in line.cells if one] if "{" in line.layers else []
    labels = {str(label) for one in groups for label in views[_experiment(line)].of(one)["label"]}
    return line.layers.format(models=", ".join(sorted({label.partition("_kv")[0] for label in labels})))


def _again(views: Mapping[str, View]) -> list[float]:
    """How far ratios of `TWICE` at `WIDTHS` and `LEVELS` were off, relatively, where they were recorded again: of the
    same weights and columns, in an experiment of another run."""
    found = []
    for view in views.values() if TWICE in views else ():
        ratios = pairs(view, (written_here("f16"),), (FP16,))
        ratios = ratios[(ratios["policy"] == "stream") & ratios["tuned"]]
        of = view.frame.loc[view.frame["pattern_hash"] != "", ["problem", "pattern_hash", "n"]].drop_duplicates(
            "problem"
        )
        ratios = ratios.merge(of).merge(view.problems[["problem", "level"]])
        found.append(ratios[ratios["n"].isin(WIDTHS) & ratios["level"].isin(LEVELS)].assign(of=view.results.experiment))
    if not found:
        return []
    every = pd.concat(found)
    first, others = (every[(every["of"] == TWICE) == mine] for mine in (True, False))
    both = first.merge(others, on=["pattern_hash", "n"], suffixes=("", "_again"))
    return list(both["ratio_again"] / both["ratio"] - 1)


def _second(again: Sequence[float]) -> str:
    if not again:
        return ""
    least, most = (f"{100 * one:+.1f}" for one in (min(again), max(again)))
    return (
        f"{len(again)} ratios of layers of Llama were recorded again in another run, {least} to {most} % off, and the "
        "largest difference is in their intervals. "
    )


def _fact(cell: Cell | None, views: Mapping[str, View], apart: float) -> Any:
    """The row of facts; None for what is not recorded, or not tuned. `apart`: what two runs of `TWICE` differ by."""
    if cell is None or not (view := views.get(cell.experiment)):
        return None
    facts = view.compare(cell.asked)
    facts = facts[facts["tuned"] & (facts["policy"] == view.policy)]
    for name, value in cell.at:
        facts = facts[facts[name] == value]
    row = next(each(facts), None)
    if row is None or cell.experiment != TWICE:
        return row
    return row._replace(low=row.low / apart, high=row.high * apart)


def _by_bytes(line: Line, views: Mapping[str, View]) -> str:
    view = views.get("llm_layers")
    ratio = number(llm_layers.over_int4_bytes(view, line.sizes, int(line.columns))) if line.sizes and view else GAP
    return GAP if ratio == GAP else f"{ratio}×"


def _ends(row: Any) -> tuple[float, float]:
    return (row.low, row.high) if row.n > 1 else (row.ratio / CARDS, row.ratio * CARDS)


def _text(row: Any) -> str:
    """`**3.72×** (3.38 to 4.10)`, bold where the interval is above 1."""
    if row is None:
        return GAP
    low, high = _ends(row)
    ratio = f"**{number(row.ratio)}×**" if low > 1 else f"{number(row.ratio)}×"
    return f"{ratio} ({number(low)} to {number(high)})"


def _crossed(view: View, sizes: Group, n: int) -> list[str]:
    """From how many zeros on the best sparse kernel beats dense fp16 at n columns; empty where not recorded."""
    curves = crossings(view, Crossings("", written_here("f16"), FP16, (), group=sizes))
    return list(curves[(curves["policy"] == view.policy) & (curves["column"] == n)]["text"])


def crossing_points(folder: Path) -> Iterator[str]:
    """From how many zeros on pruning pays on a GPU, by size of layer: of the map, else of language models' layers."""
    sizes = {"pays_map": tuple(pays_map.GROUPS.values()), "llm_layers": (llm_layers.LARGE, llm_layers.SMALL)}
    name = next((one for one in sizes if has_records(folder / one)), "")
    if not name:
        return
    view = _view(folder / name)
    for group in sizes[name]:
        found = [f"{text} zeros at {n} column{'s' * (n > 1)}" for n in WIDTHS for text in _crossed(view, group, n)]
        where = {"hot": "in the cache", "stream": "from memory"}.get(view.policy, view.policy)
        if found:
            cut = " (not fully tuned)" * bool((view.frame["cut_short"] != "").any())
            yield f"{group.words}, weights {where}: pruning beats dense fp16 from {', '.join(found)}{cut}"


def _sentences(found: Mapping[Line, Sequence[Any]], views: Mapping[str, View]) -> Iterator[str]:
    """From how many zeros on layers are faster than dense fp16, and over what 90 % zeros gain nothing."""
    crossed: dict[str, list[str]] = {}
    for line in found:
        if line.sizes and (view := views.get("llm_layers")):
            mine = _crossed(view, line.sizes, int(line.columns))
            words = line.columns + " column" * (line.columns == "1")
            crossed.setdefault(line.layers, []).extend(f"{one} at {words}" for one in mine)
    if told := "; ".join(f"{layers}, {', '.join(texts)}" for layers, texts in crossed.items() if texts):
        yield f"**Pruning beats dense fp16** from so many zeros on: {told}."
    for at, head in list(enumerate(HEADS))[len(LEVELS) - 1 :]:
        lost: dict[str, str] = {}
        for line, made in found.items():
            if made[at] is not None and _ends(made[at])[0] <= 1:
                words = _words(line, views)
                told = f"{lost[words]}, {line.columns}" if words in lost else f" at {line.columns}"
                lost[words] = told if line.columns.isdigit() else ""
        over = head.rpartition("over ")[2] if "over" in head else "fp16"
        if lost:
            told = "; ".join(words + columns for words, columns in lost.items())
            yield f"**Dense {over} is as fast or faster** even than 90 % zeros: {told}."


class Answer(NamedTuple):
    """One sentence in Markdown, and what it is of."""

    layers: str
    folder: str
    """Of the page, below the reports."""
    gpu: str
    text: str


def answer(page: Page, view: View) -> Answer | None:
    """The first answer of a page of `LAYERS`; None of another, and where nothing is recorded of it."""
    layers, results = LAYERS.get(view.results.experiment), view.results
    if layers is None or not (text := next(render.answers(page, view), "")):
        return None
    return Answer(layers.capitalize(), "/".join(results.folder.parts[-2:]), view.gpu, text)


def answers(folder: Path) -> Iterator[Answer]:
    """Those that `folder`, a GPU's, has records of. Raises `RecordError`."""
    for name in LAYERS:
        page = page_of(name)
        if page and has_records(folder / name) and (found := answer(page, _view(folder / name))):
            yield found
