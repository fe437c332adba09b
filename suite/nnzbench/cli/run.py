"""`nnzbench run`: experiments on a device, into results folders."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import click

from nnzbench import devices, paths
from nnzbench.cli import programs
from nnzbench.cli.chosen import choose_experiments, names_of, names_of_kernels, require_plans, require_work, seconds_of
from nnzbench.cluster.crew import Crew
from nnzbench.cluster.engine import connected, local_hands
from nnzbench.devices import DEVICES, Device
from nnzbench.devices.other_arch import checking
from nnzbench.kernels.registry import AnyKernel, VendorKernel, kernels
from nnzbench.measure import phases
from nnzbench.measure.budget import carry_out, make_plan
from nnzbench.measure.costs import Costs, learn
from nnzbench.measure.session import open_session
from nnzbench.measure.sweep import Choice, Summary, opened, plan_work, run_experiment
from nnzbench.plans.architectures import architecture
from nnzbench.problems.experiment import POLICIES, Experiment, Policy
from nnzbench.problems.problem import DType
from nnzbench.progress import progress_bar
from nnzbench.records.files import records_file
from nnzbench.records.folder import BELOW


@click.command("run")
@click.argument("experiments", nargs=-1, required=True, metavar="EXPERIMENT...")
@click.option("--quick", is_flag=True, help="A first look: smallest problems, few candidates, short measurements.")
@click.option("--device", "device_name", type=click.Choice(list(DEVICES)), help="Default: the GPU.")
@click.option(
    "--sanitize",
    type=click.Choice(["asan", "ubsan", "tsan"]),
    help="With --device cpu: find accesses out of bounds, undefined arithmetic, or races.",
)
@click.option(
    "--as",
    "as_arch",
    metavar="sm_XY",
    help="Check an older architecture's code on this GPU, untimed (into the folder as-sm_XY/).",
)
@click.option(
    "--ptx",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="With --as: run nothing, make its PTX for $NNZBENCH_PTX of a machine whose CUDA dropped that architecture.",
)
@click.option("--kernel", "kernel_names", multiple=True, metavar="NAME|FILE.py", help="Only this kernel; repeatable.")
@click.option("--policy", "policies", callback=names_of(POLICIES), metavar="hot,cold", help="Only these policies.")
@click.option("--problem", "problems", multiple=True, metavar="GLOB", help="Only problems of this name; repeatable.")
@click.option("--dtype", "dtypes", callback=names_of(get_args(DType)), metavar="f32,f16", help="Only these inputs.")
@click.option("--standin", is_flag=True, help="Only stand-in patterns (into the folder standin/).")
@click.option("--real", is_flag=True, help="Only real patterns [default: real where on disk].")
@click.option("--candidates", type=click.IntRange(1, 100_000), help="At most so many candidates of each kernel.")
@click.option("--full", is_flag=True, help="All problems where the default is a sample (sputnik_dlmc, llm_layers).")
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
@click.option("--overwrite", is_flag=True, help="Replace the records that are there.")
@click.option("--yes", is_flag=True, help="With --overwrite: also where it deletes more than this run brings.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write to OUT/<gpu>/<experiment>/ [default: results/, which git ignores].",
)
@click.option("--report", is_flag=True, help="Redraw the pages of these experiments afterwards.")
@click.pass_context
def command(
    ctx: click.Context,
    experiments: tuple[str, ...],
    quick: bool,
    device_name: str | None,
    sanitize: Literal["asan", "ubsan", "tsan"] | None,
    as_arch: str | None,
    ptx: Path | None,
    kernel_names: tuple[str, ...],
    policies: tuple[Policy, ...] | None,
    problems: tuple[str, ...],
    dtypes: tuple[DType, ...] | None,
    standin: bool,
    real: bool,
    candidates: int | None,
    uniform: bool,
    full: bool,
    budget: float | None,
    cluster: str | None,
    workers: int | None,
    resume: bool,
    overwrite: bool,
    yes: bool,
    out: Path | None,
    report: bool,
) -> None:
    """Run each EXPERIMENT (or `all`): every kernel on every problem, checked against float64, then timed.

    Rows are saved as they come; Ctrl-C keeps them and --resume goes on. With --device cpu the same kernels run on the
    processor and are checked but not timed; with --as sm_75, another architecture's plans and code on this GPU.
    """
    started = time.monotonic()
    if resume and overwrite:
        raise click.UsageError("--resume keeps the records, --overwrite replaces them: choose one")
    if standin and real:
        raise click.UsageError("--standin patterns are not --real ones: choose one")
    if uniform and (standin or real):
        raise click.UsageError("--uniform patterns are neither --standin nor --real ones: choose one")
    if report:
        _refuse_undrawn("--standin" if standin else "--uniform" if uniform else "--as" if as_arch else "")
    if yes and not overwrite:
        raise click.UsageError("--yes answers what --overwrite asks, and says nothing alone")
    if policies and device_name == "cpu":
        raise click.UsageError("--device cpu checks and times nothing: leave --policy away")
    if sanitize and device_name != "cpu":
        raise click.UsageError("--sanitize is for --device cpu: on a GPU, run compute-sanitizer")
    chosen = [replace(one, full=full) for one in choose_experiments(experiments, bool(kernel_names))]
    choice = Choice(
        policies=policies,
        kernels=names_of_kernels(kernel_names),
        dtypes=dtypes,
        problems=problems or None,
        quick=quick,
        candidates=candidates,
        real=False if uniform or standin else True if real else None,
        uniform=uniform,
        resume=resume,
        overwrite=overwrite,
        yes=yes,
    )
    known = _known(as_arch, policies)
    require_work(chosen, known, choice)
    if ptx:
        if not as_arch:
            raise click.UsageError("--ptx makes another architecture's PTX: name it with --as")
        ctx.exit(1 if programs.write_ptx(chosen, known, choice, as_arch, ptx) else 0)
    folder = out or paths.results()
    if cluster:
        if as_arch or sanitize or any(name.endswith(".py") for name in kernel_names):
            raise click.UsageError("--cluster runs this version's kernels as they are: no --as, --sanitize or FILE.py")
        if cluster not in ("local", "slurm") and "://" not in cluster:
            raise click.UsageError(
                f"--cluster is local, slurm or a scheduler's address such as tcp://HOST:8786, not '{cluster}'"
            )
        if workers and "://" in cluster:
            raise click.UsageError(f"--workers says how many to start, and those of {cluster} run already")
        summaries = _run_cluster(cluster, workers, device_name, chosen, choice, folder, known, budget, started)
        _finish(ctx, chosen, summaries, folder, report)
        return
    if workers:
        raise click.UsageError("--workers is for --cluster")
    device = _open(device_name, sanitize)
    try:
        device = checking(device, as_arch) if as_arch else device
        place = partial(_place, folder / device.gpu, choice, f"{BELOW}{as_arch}" if as_arch else "")
        if budget is None:
            summaries = _run_all(chosen, device, choice, place, known)
        else:
            learnt = learn((paths.reports(), folder), device.timer is not None)
            summaries = _run_budget(chosen, device, choice, place, known, learnt, budget, started)
    finally:
        device.close()
    _finish(ctx, chosen, summaries, folder, report)


def _refuse_undrawn(option: str) -> None:
    """Before hours are spent: what such a run records has no page without the records that lie above it."""
    if option:
        raise click.UsageError(
            f"--report redraws the page of <gpu>/<experiment>/, and {option} records into a folder below it: leave "
            "--report away"
        )


def _finish(ctx: click.Context, chosen: list[Experiment], summaries: list[Summary], folder: Path, report: bool) -> None:
    """Redraws where that was asked for, and ends with 1 where a kernel failed."""
    if report:
        from nnzbench.cli import report as cli_report  # loads what draws

        ctx.invoke(cli_report.command, experiments=tuple(one.name for one in chosen), reports=folder)
    if any(summary.failed for summary in summaries):
        ctx.exit(1)


def _open(name: str | None, sanitize: Literal["asan", "ubsan", "tsan"] | None) -> Device:
    if sanitize:
        from nnzbench.devices.cpu_device import CpuDevice

        return CpuDevice(sanitize)
    return devices.open_device(name) if name else devices.open_gpu()


def _known(as_arch: str | None, policies: tuple[Policy, ...] | None) -> Mapping[str, AnyKernel]:
    """Kernels to choose from: with --as, those whose code is compiled here, as a library takes its own paths."""
    if as_arch is None:
        return kernels()
    if policies:
        raise click.UsageError(f"--as {as_arch} checks and times nothing: leave --policy away")
    architecture(as_arch)  # told before any work
    return {name: one for name, one in kernels().items() if not isinstance(one, VendorKernel)}


def _place(out: Path, choice: Choice, below: str, experiment: str) -> Path:
    """The results folder of an experiment."""
    return out / experiment / below / ("uniform" if choice.uniform else "standin" if choice.real is False else "")


def _run_all(
    chosen: list[Experiment],
    device: Device,
    choice: Choice,
    place: Callable[[str], Path],
    known: Mapping[str, AnyKernel],
) -> list[Summary]:
    summaries = []
    end_tidily()
    with progress_bar() as progress:
        session = open_session(device, known, progress.note)
        if device.link and choice.limit:  # few of each: all together keep all processors at work
            progress.note(f"{programs.compile_all(chosen, known, choice, device)} programs compiled for {device.arch}")
        for one in chosen:
            summaries.append(run_experiment(one, session, place(one.name), choice, progress))
        for line in phases.lines(session.work.phases.seconds):
            progress.note(line)
    return _tell(summaries, choice)


def _run_budget(
    chosen: list[Experiment],
    device: Device,
    choice: Choice,
    place: Callable[[str], Path],
    known: Mapping[str, AnyKernel],
    costs: Costs,
    seconds: float,
    started: float,
) -> list[Summary]:
    end_tidily()
    with progress_bar() as progress, ExitStack() as folders:
        session = open_session(device, known, progress.note)
        work = {one.name: plan_work(one, known, choice) for one in chosen}
        runs = {
            one.name: folders.enter_context(opened(one, session, place(one.name), choice, (), progress))
            for one in chosen
            if work[one.name]
        }
        spent = time.monotonic() - started
        plan = make_plan(
            [(one, runs[one.name], work[one.name]) for one in chosen if one.name in runs], costs, seconds, spent
        )
        for line in plan.lines(local_hands() if device.timer is not None else None):
            progress.note(line)
        done = carry_out(plan, runs, session.clock, session.clock() + seconds - spent, progress)
        for line in (*done.lines(plan), *phases.lines(session.work.phases.seconds)):
            progress.note(line)
        summaries = [run.summary() for run in runs.values()]
    return _tell(summaries, choice)


def _run_cluster(
    kind: str,
    workers: int | None,
    device: str | None,
    chosen: list[Experiment],
    choice: Choice,
    out: Path,
    known: Mapping[str, AnyKernel],
    budget: float | None,
    started: float,
) -> list[Summary]:
    end_tidily()
    timed = device != "cpu"
    ends = None if budget is None else started + budget
    with ThreadPoolExecutor(1) as meanwhile:  # both take seconds
        learning = None if budget is None else meanwhile.submit(learn, (paths.reports(), out), timed)
        with connected(kind, workers, timed) as client, progress_bar() as progress:
            crew = Crew(
                client,
                chosen,
                choice,
                known,
                lambda gpu, name: _place(out / gpu, choice, "", name),
                device,
                learning.result() if learning else Costs(),
                progress,
                ends,
                started,
                queued=kind == "slurm",
            )
            summaries = crew.run()
    return _tell(summaries, choice)


def _tell(summaries: list[Summary], choice: Choice) -> list[Summary]:
    for summary in summaries:
        counts = ", ".join(f"{count} {status}" for status, count in sorted(summary.statuses.items()))
        click.echo(f"{records_file(summary.folder)}: {counts or 'nothing new'}")
        for line in summary.explain():
            click.echo(f"  {line}")
    require_plans(summaries, choice)
    return summaries


def end_tidily() -> None:
    """Has SIGTERM end this process as tidily as Ctrl-C: it is what a time limit sends."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
