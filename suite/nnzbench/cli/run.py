"""`nnzbench run`: experiments on a device, into results folders."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import click

from nnzbench import devices
from nnzbench.bench import phases
from nnzbench.bench.attempts import Counts
from nnzbench.bench.budget import make_schedule
from nnzbench.bench.cluster.engine import connected, crowding, local_resources
from nnzbench.bench.cluster.run import ClusterRun
from nnzbench.bench.costs import Costs, learn
from nnzbench.bench.session import Session, open_session
from nnzbench.bench.steps import Queue
from nnzbench.bench.sweep import Choice, Summary, all_problems, carry_out, opened, run_experiment
from nnzbench.cli import INTERRUPTED, options
from nnzbench.cli.chosen import choose_experiments, names_of, names_of_kernels, require_plans, require_work
from nnzbench.cli.compile import compile_all, write_ptx
from nnzbench.cli.options import seconds_of
from nnzbench.core import paths
from nnzbench.core.architectures import architecture
from nnzbench.core.progress import LOG, RunProgress, progress_bar
from nnzbench.data.problems import tables
from nnzbench.data.problems.experiment import POLICIES, Experiment
from nnzbench.data.problems.problem import DType
from nnzbench.devices import DEVICES, Device, cpu_device
from nnzbench.devices.other_arch import checking
from nnzbench.kernels.registry import AnyKernel, VendorKernel, kernels
from nnzbench.results.records.folder import BELOW, records_file, refuse_links
from nnzbench.results.records.record import Verdict

REASONS = 5
"""That a run ends with, where something failed."""


AS_ASKED = ("policies", "dtypes", "quick", "candidates", "uniform", "resume", "before", "overwrite", "yes")
"""What a choice has as the command line says it."""


class Request(SimpleNamespace):
    """What the command line asks for, by the names of its options, and when: `started`."""

    def require_sense(self) -> None:
        """Raises `UsageError` for options that contradict or need each other, before hours are spent."""
        other = "--standin" if self.standin else "--uniform" if self.uniform else "--target-arch"
        as_they_are = not self.target_arch and not self.sanitize and not any(n.endswith(".py") for n in self.kernels)
        cluster = self.cluster or ""
        refusals: dict[str, object] = {
            "--resume keeps the records, --overwrite replaces them: choose one": self.resume and self.overwrite,
            "--standin patterns are not --real ones: choose one": self.standin and self.real,
            "--uniform patterns are neither --standin nor --real ones: choose one": self.uniform
            and (self.standin or self.real),
            f"--report redraws the page of <gpu>/<experiment>/, and {other} records into a folder below it: leave "
            "--report away": self.report and (self.standin or self.uniform or self.target_arch),
            "--json prints what the run did and nothing else: leave --report away": self.as_json and self.report,
            "--before is of what is recorded: add --resume": self.before and not self.resume,
            "--before is a time that has passed": self.before and self.before > datetime.now(timezone.utc),
            "--yes answers what --overwrite asks, and says nothing alone": self.yes and not self.overwrite,
            "--device cpu checks and times nothing: leave --policy away": self.policies and self.device == "cpu",
            f"--target-arch {self.target_arch} checks and times nothing: leave --policy away": self.policies
            and self.target_arch,
            "--sanitize is for --device cpu: on a GPU, run compute-sanitizer": self.sanitize and self.device != "cpu",
            "--ptx makes another architecture's PTX: name it with --target-arch": self.ptx and not self.target_arch,
            "--cluster runs this version's kernels as they are: no --target-arch, --sanitize or FILE.py": cluster
            and not as_they_are,
            f"--cluster is local, slurm or a scheduler's address such as tcp://HOST:8786, not '{cluster}'": cluster
            and cluster not in ("local", "slurm")
            and "://" not in cluster,
            f"--workers says how many to start, and those of {cluster} run already": self.workers and "://" in cluster,
            "--workers is for --cluster": self.workers and not cluster,
        }
        options.refuse(refusals)

    def choice(self) -> Choice:
        real = False if self.uniform or self.standin else True if self.real else None
        same = {name: getattr(self, name) for name in AS_ASKED}
        return Choice(kernels=names_of_kernels(self.kernels), problems=self.problems or None, real=real, **same)

    def known(self) -> Mapping[str, AnyKernel]:
        """Kernels to choose from: for another architecture those compiled here, as a library takes its own paths."""
        if self.target_arch is None:
            return kernels()
        architecture(self.target_arch)  # refused before any work
        return {name: one for name, one in kernels().items() if not isinstance(one, VendorKernel)}

    def open(self) -> Device:
        """The device. Raises `Unsupported`."""
        if self.sanitize:
            device: Device = cpu_device.CpuDevice(self.sanitize)
        else:
            device = devices.open_device(self.device) if self.device else devices.open_gpu()
        return checking(device, self.target_arch) if self.target_arch else device


@click.command("run")
@click.argument("experiments", nargs=-1, required=True, metavar="EXPERIMENT...", shell_complete=options.experiments)
@click.option("--quick", is_flag=True, help="A first look: smallest problems, few candidates, short measurements.")
@click.option("--device", type=click.Choice(list(DEVICES)), help="Default: the GPU.")
@click.option(
    "--sanitize",
    type=click.Choice(["asan", "ubsan", "tsan"]),
    help="With --device cpu: find accesses out of bounds, undefined arithmetic, or races.",
)
@click.option(
    "--target-arch",
    "--as",
    "target_arch",
    metavar="sm_XY",
    help="Check an older architecture's code on this GPU, untimed (into the folder as-sm_XY/).",
)
@click.option(
    "--ptx",
    type=options.FOLDER,
    metavar="FOLDER",
    help="With --target-arch: run nothing, make its PTX for $NNZBENCH_PTX of a machine whose CUDA dropped it.",
)
@options.kernel_option(metavar="NAME|FILE.py")
@click.option("--policy", "policies", callback=names_of(POLICIES), metavar="hot,cold", help="Only these policies.")
@click.option("--problem", "problems", multiple=True, metavar="GLOB", help="Only problems of this name; repeatable.")
@click.option("--dtype", "dtypes", callback=names_of(get_args(DType)), metavar="f32,f16", help="Only these inputs.")
@click.option("--standin", is_flag=True, help="Only synthetic patterns (calibrated), into the folder standin/.")
@click.option("--real", is_flag=True, help="Only real patterns [default: real where on disk].")
@click.option("--candidates", type=click.IntRange(1, 100_000), help="At most so many candidates of each kernel.")
@click.option("--full", is_flag=True, help="All problems where the default is a sample (such as sputnik_dlmc).")
@click.option(
    "--sample",
    type=click.IntRange(1),
    default=tables.SAMPLE,
    show_default=True,
    help="At least so many matrices of sputnik_dlmc's 3,012, of each kind its share.",
)
@click.option("--uniform", is_flag=True, help="Uniformly random patterns instead (into the folder uniform/).")
@click.option(
    "--budget",
    callback=seconds_of,
    metavar="25m",
    help="Stop after about this time: everything untuned first, then tuning where it promises most.",
)
@click.option(
    "--cluster",
    metavar="local|slurm|tcp://HOST:PORT",
    help="On the workers of a Dask cluster: up to 12 per GPU of this host, Slurm's, or those of a scheduler.",
)
@click.option("--workers", type=click.IntRange(1), help="With --cluster local or slurm: how many to start.")
@click.option("--resume", is_flag=True, help="Go on with the records that are there.")
@click.option(
    "--before",
    type=click.DateTime(),
    callback=lambda ctx, param, time: time and time.astimezone(),
    metavar="TIME",
    help="With --resume: what was recorded before this day or time is measured again.",
)
@click.option("--overwrite", is_flag=True, help="Replace the records that are there.")
@click.option("--yes", is_flag=True, help="With --overwrite: also where it deletes more than this run brings.")
@click.option(
    "--out", type=options.FOLDER, help="Write to OUT/<gpu>/<experiment>/ [default: results/, which git ignores]."
)
@click.option("--report", is_flag=True, help="Redraw the pages of these experiments afterwards.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON, a row per experiment.")
@click.option("-v", "--verbose", is_flag=True, help="Say on the screen what otherwise goes to OUT/run.log alone.")
@click.pass_context
def command(ctx: click.Context, /, **asked: Any) -> None:
    """Run each EXPERIMENT (or `all`): every kernel on every problem, checked against float64, then timed.

    Rows are saved as they come; Ctrl-C keeps them and --resume goes on. With --device cpu the same kernels run on the
    processor and are checked but not timed; with --target-arch sm_75, another architecture's plans and code on this
    GPU.
    """
    request = Request(**asked, started=time.monotonic())
    request.require_sense()
    chosen = [
        replace(one, full=request.full, sample=request.sample)
        for one in choose_experiments(request.experiments, bool(request.kernels))
    ]
    choice, known = request.choice(), request.known()
    require_work(chosen, known, choice)
    if request.ptx and request.target_arch:
        ctx.exit(1 if write_ptx(chosen, known, choice, request.target_arch, request.ptx) else 0)
    task = _Task(request, chosen, choice, known, request.out or paths.results())
    try:
        summaries = task.on_cluster(request.cluster) if request.cluster else task.here()
    except KeyboardInterrupt:
        click.echo("Interrupted: what is recorded is whole, and the same command with --resume goes on.", err=True)
        ctx.exit(INTERRUPTED)
    whole = total(summaries)
    if request.as_json:
        click.echo(json.dumps([as_json(summary) for summary in summaries], indent=2))
    else:
        for line in told(summaries, whole, task.log):
            click.echo(line)
    require_plans(summaries, choice)
    if request.report:
        from nnzbench.cli import report as cli_report  # loads what draws

        names = tuple(one.name for one in chosen)
        ctx.invoke(cli_report.command, experiments=names, reports=task.folder, verbose=request.verbose)
    if whole.failed:
        ctx.exit(1)


def total(summaries: Iterable[Summary]) -> Counts:
    """What all of them brought together."""
    whole = Counts()
    for summary in summaries:
        whole.update(summary.counts)
    return whole


def told(summaries: Sequence[Summary], whole: Counts, log: Path) -> Iterator[str]:
    """How a run ends on the screen: one line with its counts and, where something failed, the most frequent reasons."""
    folders = [summary.folder for summary in summaries if summary.counts.rows]
    where = f": {os.path.commonpath(folders)}" if folders else ", nothing new"
    yield f"{whole.line()}{where}"
    reasons = list(whole.explain(faults=whole.failed)) if whole.failed or not whole.number("right") else []
    yield from (f"  {reason}" for reason in reasons[:REASONS])
    if len(reasons) > REASONS:
        yield f"  and {len(reasons) - REASONS} other reasons: {log}"


def as_json(summary: Summary) -> dict[str, Any]:
    """One experiment's part of a run."""
    counts = summary.counts
    verdicts = {what: counts.number(what) for what in get_args(Verdict)}
    reasons = list(counts.explain())
    return {"records": str(records_file(summary.folder)), **verdicts, "rows": counts.rows, "reasons": reasons}


@dataclass(frozen=True)
class _Task:
    """What is to be run, and where its records go."""

    request: Request
    chosen: list[Experiment]
    choice: Choice
    known: Mapping[str, AnyKernel]
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / LOG

    @contextmanager
    def progress(self) -> Iterator[RunProgress]:
        self.folder.mkdir(parents=True, exist_ok=True)
        refuse_links(self.log)
        with progress_bar(log=self.log, verbose=self.request.verbose) as progress:
            progress.tell(f"Details: {self.log}")
            yield progress

    def place(self, gpu: str, experiment: str) -> Path:
        arch, choice = self.request.target_arch, self.choice
        data = "uniform" if choice.uniform else "standin" if choice.real is False else ""
        return self.folder / gpu / experiment / (f"{BELOW}{arch}" if arch else "") / data

    def learn(self, timed: bool) -> Costs:
        return learn((paths.reports(), self.folder), timed)

    def typical(self) -> dict[str, list[str]]:
        """Stems of the problems that stand for each experiment."""
        from nnzbench.papers.typical import typical  # loads pages

        return {one.name: typical(one.name, all_problems(one, self.choice)) for one in self.chosen}

    def here(self) -> list[Summary]:
        """In this process: one experiment after another or, within a time, all of them at once."""
        budget = self.request.budget
        with closing(self.request.open()) as device:
            costs = None if budget is None else self.learn(device.timer is not None)
            with self.progress() as progress:
                session = open_session(device, self.known, progress.tell)
                if device.link and self.choice.limit and costs is None:  # few of each: together on all processors
                    compile_all(self.chosen, self.known, self.choice, device.arch, device.link)
                if costs is None:
                    places = ((one, self.place(device.gpu, one.name)) for one in self.chosen)
                    summaries = [run_experiment(one, session, at, self.choice, progress) for one, at in places]
                else:
                    summaries = self._within(costs, session, progress)
                for line in (*phases.lines(session.work.phases.seconds), *total(summaries).explain()):
                    progress.note(line)
                return summaries

    def _within(self, costs: Costs, session: Session, progress: RunProgress) -> list[Summary]:
        seconds, device = self.request.budget, session.device
        place = partial(self.place, device.gpu)
        with opened(self.chosen, session, place, self.choice, progress, whole=False) as planned:
            began = session.clock()
            spent = time.monotonic() - self.request.started
            schedule = make_schedule(planned, costs, seconds, spent, typical=self.typical())
            progress.tell(schedule.line())
            for line in schedule.lines(local_resources() if device.timer is not None else None):
                progress.note(line)
            queue = Queue(schedule.steps, began + seconds - spent, session.clock)
            progress.start("run", len(schedule.fitting), schedule.until(session.clock(), began + seconds - spent))
            carry_out(queue, planned, progress)
            for line in (schedule.took(session.clock() - began), *schedule.unreached(queue.not_done())):
                progress.note(line)
            return [run.summary() for _, run, _ in planned]

    def on_cluster(self, kind: str) -> list[Summary]:
        request = self.request
        timed = request.device != "cpu"
        ends = None if request.budget is None else request.started + request.budget
        with ThreadPoolExecutor(1) as meanwhile:  # both take seconds
            learning = meanwhile.submit(lambda: (self.learn(timed), {} if ends is None else self.typical()))
            with connected(kind, request.workers, timed) as client, self.progress() as progress:
                if kind == "local" and timed and request.workers and (said := crowding(request.workers)):
                    progress.tell(said)
                costs, typical = learning.result()
                what = (self.chosen, self.choice, self.known, self.place, request.device)
                when = (costs, progress, ends, request.started)
                summaries = ClusterRun(client, *what, *when, queued=kind == "slurm", typical=typical).run()
                for line in total(summaries).explain():
                    progress.note(line)
                return summaries
