"""`nnzbench tune`: searches all tilings of the generated kernels and keeps the winners for later runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache, partial

import click
from rich.progress import Progress, TaskID

from nnzbench.bench.timing import QUICK, warm_up
from nnzbench.bench.trial import Conditions, try_candidate
from nnzbench.cli import options
from nnzbench.cli.chosen import matching
from nnzbench.core.plan import Candidate, Unsupported
from nnzbench.core.progress import terminal
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.problems.operands import Operands, make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import reference
from nnzbench.devices import DEVICES, Device, DeviceLost, open_device
from nnzbench.devices.build.cache import Compiled, Job
from nnzbench.devices.build.pool import TIMEOUT_S, compile_many
from nnzbench.kernels.sparsert.schedule import Tiling, Tuned, remember, search_name
from nnzbench.kernels.sparsert.spmm import make_plan, planned
from nnzbench.papers.catalogue import experiment

BATCH = 64
"""Candidates generated, assembled and measured at a time, which bounds the memory their texts take."""
Told = Callable[[int, int, float], None]
"""Called with candidates done, candidates in all, and the best time so far (microseconds; infinity at first)."""


def tune(
    problem: Problem,
    operands: Operands,
    device: Device,
    told: Told = lambda done, total, best: None,
    timeout_s: float = TIMEOUT_S,
    workers: int | None = None,
    limit: int | None = None,
) -> Tuned:
    """Measures every feasible tiling (SparseRT, section 3.7), or the `limit` most promising ones, and remembers the
    fastest correct one.

    Assembly is parallel, each candidate within `timeout_s`; one that fails, is late or computes something wrong is
    no candidate. Raises `Unsupported` where the matrix is beyond sensible code size, the device has no timer, or
    nothing ran.
    """
    if (timer := device.timer) is None:
        raise Unsupported(f"tuning needs a GPU: the times of the {device.name} device mean nothing for one")
    planner, dense, output = planned(problem, operands, device.arch)
    tilings = sorted(planner.grid(), key=planner.cycles)[:limit]
    conditions = Conditions(("hot",), QUICK)
    phases, truth = conditions.work.phases, cache(lambda: reference(problem, operands))
    times: dict[Tiling, float] = {}
    for start in range(0, len(tilings), BATCH):
        plans = []
        with phases.of("planning"):
            for tiling in tilings[start : start + BATCH]:
                with suppress(Unsupported):
                    plans.append((tiling, make_plan(planner, tiling, dense, device.arch, output)))
        with phases.of("compiling"):
            made = dict(compile_many([Job.of(plan, device.arch) for _, plan in plans], workers, timeout_s))
        for tiling, plan in (one for at, one in enumerate(plans) if isinstance(made[at], Compiled)):
            candidate = Candidate(plan.variant, plan.math, partial(device.prepare, plan), plan)
            outcome = try_candidate(
                candidate, timer, truth, conditions, lambda run: None if times else warm_up(timer, run)
            )
            if outcome.lost:
                raise DeviceLost(outcome.reason)
            if outcome.status == "ok":
                times[tiling] = outcome.measurements["hot"].median
        told(min(start + BATCH, len(tilings)), len(tilings), min(times.values(), default=float("inf")))
    if not times:
        raise Unsupported(f"none of {len(tilings)} tilings assembled in time and computed the right result")
    best = min(times, key=times.__getitem__)
    generate_s, assemble_s = (phases.seconds.pop(one) for one in ("planning", "compiling"))
    took = generate_s, assemble_s, sum(phases.seconds.values())
    found = Tuned(best, times[best], len(tilings), len(times), *took)
    remember(search_name(operands.pattern, problem, device.arch), found)
    return found


def _show(bar: Progress, task: TaskID, done: int, total: int, best: float) -> None:
    bar.update(task, completed=done, total=total, description=f"{best:.2f} us")


@click.command()
@click.argument("name", metavar="EXPERIMENT", shell_complete=options.experiments)
@click.option("--problem", "problems", multiple=True, metavar="GLOB", help="Only problems of this name; repeatable.")
@click.option("--limit", type=click.IntRange(min=1), help="Measure only so many of the most promising tilings.")
@click.option("--timeout", "timeout_s", default=60.0, show_default=True, help="Seconds to assemble one candidate.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes that assemble. Default: one per processor.")
@click.option("--device", default="cupy", type=click.Choice(sorted(DEVICES)), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="What was found, as JSON.")
def command(
    name: str,
    problems: tuple[str, ...],
    limit: int | None,
    timeout_s: float,
    workers: int | None,
    device: str,
    as_json: bool,
) -> None:
    """Measure every feasible tiling of SparseRT's generator on each problem of EXPERIMENT and remember the fastest."""
    able = [p for p in experiment(name).problems() if p.op in ("spmm", "conv2d", "conv1d")]
    refusal = f"{name} has no sparse product or convolution named like"
    chosen = matching(able, lambda p: (p.name,), problems, refusal)
    if not chosen:
        raise click.UsageError(f"{name} has no sparse product or convolution: the generator makes nothing else")
    console = terminal()
    refused: Counter[str] = Counter()
    won: list[dict[str, object]] = []
    with closing(open_device(device)) as opened:
        if opened.timer is None:
            raise Unsupported(f"tuning needs a GPU: the times of the {opened.name} device mean nothing for one")
        for problem in chosen:
            with Progress(console=console, transient=True) as bar:
                show = partial(_show, bar, bar.add_task(problem.name))
                try:
                    found = tune(problem, make_operands(problem), opened, show, timeout_s, workers, limit)
                except (Unsupported, MatrixError) as error:
                    console.print(f"{problem.name}: {error}", markup=False)
                    refused[str(error)] += 1
                    continue
            if as_json:
                won.append({"problem": problem.name, "tiling": found.tiling.name, "median_us": found.median_us,
                            "correct": found.correct, "candidates": found.candidates})  # fmt: skip
                continue
            seconds = found.generate_s + found.assemble_s + found.measure_s
            console.print(
                f"{problem.name}: {found.tiling.name} {found.median_us:.2f} us, best of {found.correct} correct "
                f"of {found.candidates} candidates in {seconds:.0f} s (generate {found.generate_s:.0f}, "
                f"assemble {found.assemble_s:.0f}, measure {found.measure_s:.0f})"
            )
    if sum(refused.values()) == len(chosen):
        why = "; ".join(f"{reason} ({count} times)" for reason, count in refused.most_common(3))
        raise Unsupported(f"none of {len(chosen)} problems was tuned: {why}")
    if as_json:
        click.echo(json.dumps(won, indent=2))
