"""Finds recorded experiments and rebuilds everything that is derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nnzbench.facts.results import load, nothing
from nnzbench.papers.catalogue import EXPERIMENTS, page_of
from nnzbench.progress import Quiet, RunProgress
from nnzbench.records.coverage import gaps as problems_missing
from nnzbench.records.files import folders, records_file
from nnzbench.records.folder import refuse_links
from nnzbench.records.record import RecordError
from nnzbench.report import render
from nnzbench.report.page_spec import assemble
from nnzbench.report.pages.page import Page
from nnzbench.report.text import pages, tables
from nnzbench.site import claims, claims_page, coverage, gpu_libraries, other_archs, peers_page
from nnzbench.site.generations import page as generations_page
from nnzbench.site.index import page as html

NOT_RECORDED = "not recorded yet"


@dataclass(frozen=True)
class Built:
    """What became of one experiment. `gpu` and `page` are empty where nothing was recorded."""

    experiment: str
    gpu: str
    status: str
    page: Path | None = None


def find(reports: Path) -> dict[str, list[Path]]:
    """Folders with records by experiment, sorted by GPU. Raises `RecordError` where a link leads to one of them."""
    found: dict[str, list[Path]] = {}
    for folder in folders(reports, "*/*"):
        refuse_links(records_file(folder), folder, folder.parent)
        found.setdefault(folder.name, []).append(folder)
    return found


def build(
    reports: Path, experiments: Sequence[str] = (), gpu: str | None = None, progress: RunProgress | None = None
) -> list[Built]:
    """Rebuilds the pages of `experiments` (all known and recorded ones for none) and index.html, all below `reports`.

    Raises `RecordError` for a results file that breaks the schema or lies in the folder of another GPU or experiment,
    and for a link that leads to or stands for a folder or file that is read: nothing outside `reports` is read or
    written on behalf of what lies in it.
    """
    everything = find(reports)
    refuse_links(*(path for path in reports.glob("*") if path.is_dir()))
    refuse_links(*(reports.glob(f"*/{peers_page.FOLDER}")))
    found = {name: mine for name, every in everything.items() if (mine := _of(every, gpu))}
    built = []
    progress = progress or Quiet()
    chosen = experiments or [*EXPERIMENTS, *sorted(set(found) - set(EXPERIMENTS))]
    slugs = sorted({folder.parent.name for name in chosen for folder in found.get(name, [])})
    progress.start(f"pages of {reports}", sum(len(found.get(name, [])) for name in chosen) + len(slugs) + 2)

    def step(text: str) -> None:
        progress.step(text)
        progress.advance()

    cells: dict[Path, coverage.Counted] = {}
    for experiment in chosen:
        folders = found.get(experiment, [])
        for folder in folders:
            step(f"{folder.parent.name}/{experiment}")
            built.append(_build_one(folder, cells))
        if experiment in EXPERIMENTS and not EXPERIMENTS[experiment].kernels:
            built.append(_build_unrecorded(experiment, reports / experiment))
        elif not folders:
            built.append(Built(experiment, gpu or "", NOT_RECORDED))
    if not experiments and gpu is None:
        step(generations_page.FOLDER)
        compared = generations_page.write(reports)
        built += [Built(generations_page.FOLDER, "", "built", compared)] if compared else []
    for name in sorted({one.gpu for one in built if one.page and one.gpu}):
        step(f"claims of {name}")
        claims_page.write(reports, name, claims.judge(reports, name))
        peers_page.write(reports, name)
        coverage.write(reports, name, cells)
        other_archs.write(reports, name)
        gpu_libraries.write(reports, name)
    if everything:
        step(html.NAME)
        html.write(reports, list(EXPERIMENTS), everything)
    return built


def _of(folders: Sequence[Path], gpu: str | None) -> list[Path]:
    return [folder for folder in folders if gpu in (None, folder.parent.name)]


def _build_one(folder: Path, cells: dict[Path, coverage.Counted]) -> Built:
    """Writes the experiment's page, and adds what its records have of the catalogue's cells."""
    results = load(folder)
    if (folder.parent.name, folder.name) != (results.gpu, results.experiment):
        told = f"of {results.experiment} on {results.gpu}, and the folder is {folder.parent.name}/{folder.name}"
        raise RecordError(f"{records_file(folder)}: its rows are {told}")
    lacking = problems_missing(results.experiment, results.frame["problem"])
    cells[folder] = coverage.count(results.experiment, results.recorded)
    gaps = (*lacking, *coverage.gaps(cells[folder]))
    declared = page_of(results.experiment) or render.generic(results)
    if isinstance(declared, Page):
        return Built(results.experiment, results.gpu, "built", render.write(declared, results, gaps))
    page, drawn = assemble(declared, folder, results)
    page = replace(page, gaps=(*gaps, *page.gaps))
    tables.write_csv(drawn, folder / "summary.csv")
    return Built(results.experiment, results.gpu, "built", pages.write(page, results))


def _build_unrecorded(experiment: str, folder: Path) -> Built:
    folder.mkdir(parents=True, exist_ok=True)
    declared = page_of(experiment)
    if not isinstance(declared, Page):
        raise RecordError(f"{folder}: an experiment that runs nothing needs a page")
    return Built(experiment, "", "built", render.write(declared, nothing(folder)))
