"""What options of several commands share, and what a shell completes; all that is slow is loaded when a shell asks."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from click.shell_completion import CompletionItem

from nnzbench.papers.catalogue import EXPERIMENTS

FOLDER = click.Path(file_okay=False, path_type=Path)
"""A folder, which need not be there yet."""


class _Late(ModuleType):
    """Stands for a module that is loaded when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def late_pandas() -> None:
    """Lets pandas be loaded when something of it is used: it takes as long to load as all the rest."""
    sys.modules.setdefault("pandas", _Late("pandas"))


def experiments(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Experiments that begin so."""
    return [name for name in EXPERIMENTS if name.startswith(incomplete)]


def kernels(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kernels that begin so, else files."""
    from nnzbench.kernels import registry

    found = [CompletionItem(name) for name in registry.kernels() if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def seconds_of(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Option callback: a time such as `90s`, `25m` or `2h`."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)(s|m|min|h|)", value.strip())
    seconds = float(found[1]) * {"m": 60, "min": 60, "h": 3600}.get(found[2], 1) if found else 0.0
    if not seconds:
        raise click.BadParameter(f"'{value}' is not a time such as 90s, 25m or 2h", ctx, param)
    return seconds


def refuse(refusals: Mapping[str, object]) -> None:
    """Raises `UsageError` with the first sentence that is true."""
    for sentence, true in refusals.items():
        if true:
            raise click.UsageError(sentence)


def gpus(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """GPUs of `datasets/gpus.csv` that begin so, of those that kernels here are made for."""
    from nnzbench.core.gpus import gpus as known

    return [slug for slug in known() if slug.startswith(incomplete)]


def kernel_option(
    help: str = "Only this kernel; repeatable.", metavar: str = "NAME", name: str = "kernels"
) -> Callable[[Any], Any]:
    """`--kernel`, as often as there are kernels to name; `name` is the command's parameter."""
    return click.option("--kernel", name, multiple=True, metavar=metavar, help=help, shell_complete=kernels)
