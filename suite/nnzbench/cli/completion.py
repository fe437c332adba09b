"""What a shell completes: experiments, kernels, GPUs. Everything is loaded when a shell asks."""

from __future__ import annotations

import csv

import click
from click.shell_completion import CompletionItem

from nnzbench import paths


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


kernel_option = click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="NAME|FILE.py",
    help="Only this kernel; repeatable.",
    shell_complete=kernels,
)
"""The option of commands that measure chosen kernels."""
