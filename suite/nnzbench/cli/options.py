"""What options of several commands share, and what a shell completes; all that is slow is loaded when a shell asks."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from nnzbench import paths

FOLDER = click.Path(file_okay=False, path_type=Path)
"""A folder, which need not be there yet."""


def experiments(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Experiments that begin so."""
    from nnzbench.papers.catalogue import EXPERIMENTS

    return [name for name in EXPERIMENTS if name.startswith(incomplete)]


def kernels(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kernels that begin so, else files."""
    from nnzbench.kernels import registry

    found = [CompletionItem(name) for name in registry.kernels() if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def gpus(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """GPUs of `datasets/gpus.csv` that begin so."""
    with (paths.datasets() / "gpus.csv").open(newline="", encoding="utf-8") as file:
        slugs = [row["slug"] for row in csv.DictReader(file)]
    return [slug for slug in slugs if slug.startswith(incomplete)]


def kernel_option(
    help: str = "Only this kernel; repeatable.", metavar: str = "NAME", name: str = "kernels"
) -> Callable[[Any], Any]:
    """`--kernel`, as often as there are kernels to name; `name` is the command's parameter."""
    return click.option("--kernel", name, multiple=True, metavar=metavar, help=help, shell_complete=kernels)
