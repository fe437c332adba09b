"""Finds recorded experiments and rebuilds everything that is derived from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from nnzbench import coverage
from nnzbench.papers.balanced import figure4 as balanced_figure4
from nnzbench.papers.balanced import models as balanced_models
from nnzbench.papers.direct_conv import table9 as direct_conv_blocks
from nnzbench.papers.direct_conv import tables as direct_conv
from nnzbench.papers.eie import table4 as eie_table4
from nnzbench.papers.lecture import nm_sparsity
from nnzbench.papers.own import spmm_scaling
from nnzbench.papers.sparsert import ablation
from nnzbench.papers.sparsert import table1 as sparsert
from nnzbench.papers.sparsert import table3 as sparsert_conv
from nnzbench.papers.sputnik import ablation as sputnik_ablation
from nnzbench.papers.sputnik import attention as sputnik_attention
from nnzbench.papers.sputnik import dlmc as sputnik_dlmc
from nnzbench.papers.sputnik import figure1 as sputnik_figure1
from nnzbench.papers.sputnik import figure2 as sputnik_figure2
from nnzbench.papers.sputnik import figure7 as sputnik_figure7
from nnzbench.papers.sputnik import mobilenet as sputnik_mobilenet
from nnzbench.papers.sputnik import rnn as sputnik_rnn
from nnzbench.record import RecordError
from nnzbench.report import claims_page, generations_page, generic, html, pages, peers_page, style, tables
from nnzbench.report.figures import SpeedupTable
from nnzbench.report.frames import ResultSet, load
from nnzbench.report.pages import Page
from nnzbench.report.readme import write_headline

EXPERIMENTS = (
    "sparsert_table1", "sparsert_table3", "sparsert_ablation",
    "sputnik_figure1", "sputnik_figure2", "sputnik_figure7", "sputnik_dlmc", "sputnik_rnn", "sputnik_ablation",
    "sputnik_attention", "sputnik_mobilenet",
    "balanced_figure4", "balanced_models",
    "direct_conv_table6", "direct_conv_table7", "direct_conv_table8", "direct_conv_table9",
    "eie_table4", "nm_sparsity",
    "spmm_scaling",
)  # fmt: skip
"""The fixed names, in the order of the papers; our own last."""

Builder = Callable[[ResultSet], tuple[Page, SpeedupTable | pd.DataFrame]]
"""Draws the figures beside the records; hands over the page and, for `summary.csv`, exactly what is drawn."""

BUILDERS: dict[str, Builder] = {
    "sparsert_table1": sparsert.build_table1,
    "sparsert_table3": sparsert_conv.build_table3,
    "sparsert_ablation": ablation.build,
    "balanced_figure4": balanced_figure4.build,
    "balanced_models": balanced_models.build,
    "sputnik_figure1": sputnik_figure1.build,
    "sputnik_figure7": sputnik_figure7.build,
    "sputnik_dlmc": sputnik_dlmc.build,
    "sputnik_rnn": sputnik_rnn.build,
    "sputnik_ablation": sputnik_ablation.build,
    "sputnik_attention": sputnik_attention.build,
    "sputnik_mobilenet": sputnik_mobilenet.build,
    "direct_conv_table6": direct_conv.build,
    "direct_conv_table7": direct_conv.build,
    "direct_conv_table8": direct_conv.build,
    "direct_conv_table9": direct_conv_blocks.build,
    "eie_table4": eie_table4.build,
    "nm_sparsity": nm_sparsity.build,
    "spmm_scaling": spmm_scaling.build,
}
"""Experiments with a page in a form of their own, mostly their paper's; every other one gets the generic page."""

UNRECORDED = {"sputnik_figure2": sputnik_figure2.build}
"""Experiments that run nothing: their pages come from the data sets, and lie beside the folders of the GPUs."""

NOT_RECORDED = "not recorded yet"


@dataclass(frozen=True)
class Built:
    """What became of one experiment. `gpu` and `page` are empty where nothing was recorded."""

    experiment: str
    gpu: str
    status: str
    page: Path | None = None


def find(reports: Path, gpu: str | None = None) -> dict[str, list[Path]]:
    """Folders with records by experiment, sorted by GPU."""
    found: dict[str, list[Path]] = {}
    for path in sorted(reports.glob("*/*/records.csv")):
        if gpu is None or path.parent.parent.name == gpu:
            found.setdefault(path.parent.name, []).append(path.parent)
    return found


def build(reports: Path, experiments: Sequence[str] = (), gpu: str | None = None) -> list[Built]:
    """Rebuilds the pages of `experiments` (all known and recorded ones for none), then README and index.html.

    Raises `RecordError` for a results file that breaks the schema or lies in the folder of another GPU or experiment.
    """
    found = find(reports, gpu)
    built = []
    for experiment in experiments or [*EXPERIMENTS, *sorted(set(found) - set(EXPERIMENTS))]:
        folders = found.get(experiment, [])
        built += [_build_one(folder) for folder in folders]
        if experiment in UNRECORDED:
            built.append(_build_unrecorded(experiment, reports / experiment))
        elif not folders:
            built.append(Built(experiment, gpu or "", NOT_RECORDED))
    if not experiments and gpu is None:
        compared = generations_page.write(reports)
        built += [Built(generations_page.FOLDER, "", "built", compared)] if compared else []
    for name in sorted({one.gpu for one in built if one.page and one.gpu}):
        claims_page.write(reports, name)
        peers_page.write(reports, name)
    write_headline(reports)
    everything = find(reports)
    if everything:
        html.write(reports, EXPERIMENTS, everything)
    return built


def _build_one(folder: Path) -> Built:
    results = load(folder)
    if (folder.parent.name, folder.name) != (results.gpu, results.experiment):
        told = f"of {results.experiment} on {results.gpu}, and the folder is {folder.parent.name}/{folder.name}"
        raise RecordError(f"{folder / 'records.csv'}: its rows are {told}")
    page, drawn = BUILDERS.get(results.experiment, generic.build)(results)
    page = replace(page, gaps=(*coverage.gaps(results.experiment, results.frame["problem"]), *page.gaps))
    tables.write_csv(drawn, folder / "summary.csv")
    (folder / "summary.md").write_text(_summary(page), encoding="utf-8", newline="\n")
    return Built(results.experiment, results.gpu, "built", pages.write(page, results))


def _build_unrecorded(experiment: str, folder: Path) -> Built:
    folder.mkdir(parents=True, exist_ok=True)
    page, drawn, figure = UNRECORDED[experiment]()
    with style.styled():
        style.save(figure, folder / page.sections[0].figure)
    tables.write_csv(drawn, folder / "summary.csv")
    return Built(experiment, "", "built", pages.write_unrecorded(page, experiment, folder))


def _summary(page: Page) -> str:
    """The page's tables alone."""
    parts = [f"# {page.title}"]
    for section in page.sections:
        parts += [f"## {section.heading}", *(table for table in section.tables if table)]
    return "\n\n".join(parts) + "\n"
