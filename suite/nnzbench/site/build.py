"""Finds recorded experiments and rebuilds everything that is derived from them."""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.context
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from nnzbench.advise import grid
from nnzbench.core.host import processors
from nnzbench.core.progress import RunProgress
from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.papers.catalogue import EXPERIMENTS, page_of
from nnzbench.papers.claims import page as claims_page
from nnzbench.papers.claims import verdicts as claims
from nnzbench.papers.claims.quantities import Records
from nnzbench.report import render
from nnzbench.report.page import View
from nnzbench.results.records.folder import folders, records_file, refuse_links
from nnzbench.results.records.record import RecordError
from nnzbench.results.records.selection import gaps as problems_missing
from nnzbench.results.result_set import load, nothing
from nnzbench.site import coverage, gpu_libraries, other_archs, peers_page
from nnzbench.site.generations import page as generations_page
from nnzbench.site.index import headlines
from nnzbench.site.index import page as html

NOT_RECORDED = "not recorded yet"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MANY = 6
"""Pages for which other processes are worth the two seconds that they take to start."""


_QUICK_TEXTS = "future.infer_string", False
"""An option of pandas before 4: pages take rows thousands of times, texts that are objects as one block."""


@dataclass(frozen=True)
class Built:
    """What became of one experiment. `gpu` and `page` are empty where nothing was recorded."""

    experiment: str
    gpu: str
    status: str
    page: Path | None = None


def find(reports: Path) -> dict[str, list[Path]]:
    """Folders with records by experiment, sorted by GPU.

    Raises `RecordError` where a link leads to one of them, or its name is none that links and commands can hold.
    """
    found: dict[str, list[Path]] = {}
    for folder in folders(reports, "*/*"):
        refuse_links(records_file(folder), folder, folder.parent)
        if strange := [one for one in folder.parts[-2:] if not _NAME.fullmatch(one)]:
            raise RecordError(f"{reports} has a folder {strange[0][:60]!r}, and no GPU or experiment is called that")
        found.setdefault(folder.name, []).append(folder)
    return found


@pd.option_context(*_QUICK_TEXTS)
def build(
    reports: Path,
    experiments: Sequence[str] = (),
    gpu: str | None = None,
    progress: RunProgress | None = None,
    workers: int = 1,
    readme: bool = False,
) -> list[Built]:
    """Rebuilds the pages of `experiments` (all known and recorded ones for none) and index.html, all below `reports`.

    Many pages are drawn by up to so many `workers`, each a process. `readme`: the headline of the README.md beside that
    folder, too. Raises `RecordError` for a results file that breaks the schema or lies in the folder of another GPU or
    experiment, and for a link that leads to or stands for a folder or file that is read: nothing outside `reports` is
    read or written on behalf of what lies in it.
    """
    everything = find(reports)
    refuse_links(*(path for path in reports.glob("*") if path.is_dir()))
    refuse_links(*(reports.glob(f"*/{peers_page.FOLDER}")))
    found = {
        name: mine
        for name, every in everything.items()
        if (mine := [folder for folder in every if gpu in (None, folder.parent.name)])
    }
    chosen = experiments or [*EXPERIMENTS, *sorted(set(found) - set(EXPERIMENTS))]
    folders = [folder for experiment in chosen for folder in found.get(experiment, [])]
    slugs = sorted({folder.parent.name for folder in folders})
    alone = [name for name in chosen if name in EXPERIMENTS and not EXPERIMENTS[name].kernels]
    pages = {folder: Job("/".join(folder.parts[-2:]), _build_one, (folder,)) for folder in folders}
    pages |= {reports / name: Job(name, _build_unrecorded, (name, reports / name)) for name in alone}
    compared = reports / generations_page.FOLDER
    if not experiments and gpu is None:
        pages[compared] = Job(compared.name, generations_page.write, (reports,))
    pages |= _of_index(reports, everything, pages)
    jobs = [*pages.values()]
    jobs += [Job(f"claims of {name}", _build_gpu, (reports, name)) for name in slugs if name != CpuDevice.gpu]
    progress = progress or RunProgress()
    progress.start("pages", len(jobs) + bool(everything))
    done = dict(zip(pages, list(each_done(jobs, workers, progress)), strict=False))
    built: list[Built] = []
    for name in chosen:
        built += [done[folder][0] for folder in found.get(name, [])]
        if name in alone:
            built.append(done[reports / name])
        elif name not in found:
            built.append(Built(name, gpu or "", NOT_RECORDED))
    built += [Built(compared.name, "", "built", page)] if (page := done.get(compared)) else []
    known = {folder: done[folder][1] for folder in folders}
    covered = {name: coverage.of_gpu(reports, name, known) for name in slugs}
    for name in slugs:
        coverage.write(reports, name, covered[name])
    claims_page.write_together(reports)
    if everything:
        progress.step(html.NAME)
        order = _write_index(reports, everything, done | {folder: done[folder][2] for folder in folders}, covered)
        if readme:
            headlines.write_headline(reports, order)
        progress.advance()
    return built


def draw_index(reports: Path) -> Path:
    """Writes index.html alone, on everything that `find` finds."""
    everything = find(reports)
    jobs = _of_index(reports, everything, ())
    done = each_done([*jobs.values()], processors(), RunProgress())
    _write_index(reports, everything, dict(zip(jobs, done, strict=True)), {})
    return reports / html.NAME


def _of_index(reports: Path, everything: Mapping[str, Sequence[Path]], drawn: Container[Path]) -> dict[Path, Job]:
    """What index.html has of each recorded folder that is not `drawn`, and the estimates of each GPU."""
    every = [folder for some in everything.values() for folder in some]
    gpus = sorted({folder.parent.name for folder in every} - {CpuDevice.gpu})
    entries = {one: Job("/".join(one.parts[-2:]), html.entry_of, (one,)) for one in every if one not in drawn}
    return entries | {reports / gpu: Job(f"estimates of {gpu}", grid.of_gpu, (reports, gpu)) for gpu in gpus}


def _write_index(
    reports: Path,
    everything: Mapping[str, Sequence[Path]],
    made: Mapping[Path, Any],
    covered: Mapping[str, coverage.Counted],
) -> list[str]:
    """Writes index.html of what is `made` for it; GPUs in its order, the most fully recorded first.

    `covered` has what is counted already; a GPU whose records are refused comes last.
    """
    counted = dict(covered)
    for gpu in {folder.parent.name for every in everything.values() for folder in every} - set(counted):
        with suppress(RecordError):
            counted[gpu] = coverage.of_gpu(reports, gpu, {})
    order = sorted(counted, key=lambda gpu: coverage.rank(gpu, counted[gpu].cells))
    html.write(reports, list(EXPERIMENTS), everything, made, order)
    return order


@dataclass(frozen=True)
class Job:
    """What can be done beside all others: it writes files that none of them reads."""

    name: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]


def each_done(jobs: Sequence[Job], workers: int, progress: RunProgress) -> Iterator[Any]:
    """What the jobs return, in order; the last ones are begun first, as they take longest."""
    with ExitStack() as stack:
        calls: Sequence[Callable[[], Any]] = [partial(job.call, *job.arguments) for job in jobs]
        if workers > 1 and len(jobs) >= MANY:
            pool = ProcessPoolExecutor(min(workers, len(jobs)), _context(), _be_quick)
            stack.callback(pool.shutdown, cancel_futures=True)
            calls = [one.result for one in [pool.submit(call) for call in reversed(calls)][::-1]]
        for job, call in zip(jobs, calls, strict=True):
            progress.step(job.name)
            yield call()
            progress.advance()


def _be_quick() -> None:
    """What is imported stays: looking it through for garbage was a fifth of the time of pages."""
    pd.set_option(*_QUICK_TEXTS)
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)


def _context() -> multiprocessing.context.BaseContext:
    """Processes that are copies of one that has loaded this module, and never of this one, which may have threads."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _build_one(folder: Path) -> tuple[Built, coverage.Counted, html.Entry]:
    """Writes the experiment's page; with it, what its records have of the catalogue's cells, and index.html of them."""
    results = load(folder)
    if (folder.parent.name, folder.name) != (results.gpu, results.experiment):
        told = f"of {results.experiment} on {results.gpu}, and the folder is {folder.parent.name}/{folder.name}"
        raise RecordError(f"{records_file(folder)}: its rows are {told}")
    lacking = problems_missing(results.experiment, results.frame["problem"].unique())
    counted = coverage.count(results.experiment, results.recorded)
    page = page_of(results.experiment) or render.generic(results)
    view = View(results, page.attributes)
    path = render.draw(page, view, lacking, coverage.gaps(counted))
    return Built(results.experiment, results.gpu, "built", path), counted, html.entry(page, view)


def _build_gpu(reports: Path, gpu: str) -> None:
    """Writes what stands beside the pages of one GPU, but its coverage."""
    records = Records(reports, gpu)
    judged = claims.judge(records)
    peers_page.write(records)
    # a GPU with a few tables has none but what is of no GPU
    if any(one.verdict != claims.NOT_MEASURABLE and one.published_gpu != "none" for one in judged):
        claims_page.write(reports, gpu, judged)
    else:
        claims_page.remove(reports, gpu)
    other_archs.write(reports, gpu)
    gpu_libraries.write(reports, gpu)


def _build_unrecorded(experiment: str, folder: Path) -> Built:
    folder.mkdir(parents=True, exist_ok=True)
    declared = page_of(experiment)
    if declared is None:
        raise RecordError(f"{folder}: an experiment that runs nothing needs a page")
    return Built(experiment, "", "built", render.write(declared, nothing(folder)))
