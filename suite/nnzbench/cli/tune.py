"""`nnzbench tune`: searches all tilings of the generated kernels and keeps the winners for later runs."""

from __future__ import annotations

import fnmatch
import json
from collections import Counter
from contextlib import closing
from functools import partial

import click
from rich.progress import Progress, TaskID

from nnzbench.bench.exhaustive import tune
from nnzbench.cli import options
from nnzbench.cli.chosen import nearest
from nnzbench.core.plan import Unsupported
from nnzbench.core.progress import terminal
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.problems.operands import make_operands
from nnzbench.devices import DEVICES, open_device
from nnzbench.papers.catalogue import experiment


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
    for pattern in problems:
        if not any(fnmatch.fnmatchcase(p.name, pattern) for p in able):
            near = nearest(pattern, (p.name for p in able))
            raise click.UsageError(f"{name} has no sparse product or convolution named like '{pattern}'{near}")
    chosen = [p for p in able if not problems or any(fnmatch.fnmatchcase(p.name, pattern) for pattern in problems)]
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
