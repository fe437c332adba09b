"""`nnzbench list`: experiments, kernels and problems."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from nnzbench.cli import options
from nnzbench.papers.catalogue import EXPERIMENTS, experiment


@click.group("list")
def command() -> None:
    """List what there is to run."""


as_json = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")


def show(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Prints rows as JSON, or as aligned columns."""
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        return
    texts = ([", ".join(one) if isinstance(one, list) else str(one) for one in row.values()] for row in rows)
    cells = [list(rows[0]), *texts]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _told(one: object, *names: str) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}


@command.command("experiments")
@as_json
def list_experiments(as_json: bool) -> None:
    """Every experiment with its place in the paper."""
    rows = []
    for one in EXPERIMENTS.values():
        more = {"kernels": list(one.kernels)} if as_json else {}
        rows.append(_told(one, "name", "title", "paper", "figure") | more)
    show(rows, as_json)


@command.command("kernels")
@as_json
def list_kernels(as_json: bool) -> None:
    """Every kernel: its role, what it computes, where it is from."""
    from nnzbench.kernels.registry import about, kernels

    columns = ("name", "role", "computes", "dtypes", "paper")
    told = ((name, about(name).role, sorted(k.ops), sorted(k.dtypes), k.paper) for name, k in kernels().items())
    show([dict(zip(columns, row, strict=True)) for row in told], as_json)


@command.command("problems")
@click.argument("experiments", nargs=-1, metavar="[EXPERIMENT]...", shell_complete=options.experiments)
@click.option("--full", is_flag=True, help="All problems where the default is a sample.")
@as_json
def list_problems(experiments: tuple[str, ...], full: bool, as_json: bool) -> None:
    """Problems of each EXPERIMENT, and where their data is from.

    Default: of all experiments. The source is what each would use on this machine.
    """
    rows = [
        _told(problem, "experiment", "name", "op", "m", "k", "n", "shape", "sparsity", "source")
        for name in experiments or EXPERIMENTS
        for problem in replace(experiment(name), full=full).problems()
    ]
    show(rows, as_json)
