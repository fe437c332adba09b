"""All experiments: what is run, listed, benchmarked under pytest, reported and indexed. There is no other list.

An experiment is a module of its paper's package that has `EXPERIMENT` and, unless the generic page will do, `page`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from nnzbench.papers import balanced, direct_conv, eie, han_lecture, nnzbench, patdnn, sparsert, sputnik
from nnzbench.problems.experiment import Experiment, UnknownExperiment, unknown
from nnzbench.problems.tables import experiments_with_tables

if TYPE_CHECKING:
    from nnzbench.report.pages.page import Page

PAPERS = (sparsert, sputnik, balanced, direct_conv, eie, patdnn, han_lecture, nnzbench)


def _modules() -> Iterator[ModuleType]:
    """Those named after an experiment, so that what draws is loaded when it is asked for."""
    with_table = set(experiments_with_tables())
    for paper in PAPERS:
        for one in pkgutil.iter_modules(paper.__path__, f"{paper.__name__}."):
            name = one.name.rpartition(".")[2]
            if name in with_table or name.startswith(f"{paper.__name__.rpartition('.')[2]}_"):
                module = importlib.import_module(one.name)
                if isinstance(getattr(module, "EXPERIMENT", None), Experiment):
                    yield module


_MODULES = {module.EXPERIMENT.name: module for module in _modules()}
EXPERIMENTS: dict[str, Experiment] = {name: module.EXPERIMENT for name, module in _MODULES.items()}
"""By name, in the order of the papers; our own last."""


def experiment(name: str) -> Experiment:
    """The experiment of that name. Raises `UnknownExperiment`."""
    if name not in EXPERIMENTS:
        raise UnknownExperiment(unknown("experiment", name, EXPERIMENTS))
    return EXPERIMENTS[name]


@functools.cache
def page_of(name: str) -> Page | None:
    """The page that the experiment declares; None for the generic one, also for a name that is not listed."""
    declared = getattr(_MODULES.get(name), "page", None)
    made: Page | None = declared() if declared is not None else None
    return made
