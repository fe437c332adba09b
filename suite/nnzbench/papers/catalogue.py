"""All experiments: what is run, listed, benchmarked under pytest, reported and indexed. There is no other list.

An experiment is a module of its paper's package that has `EXPERIMENT` and, unless the generic page will do, `page`;
some are still listed by their package, with a `PageSpec`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nnzbench.papers import balanced, direct_conv, eie, han_lecture, nnzbench, sparsert, sputnik
from nnzbench.problems.experiment import Experiment, UnknownExperiment, unknown
from nnzbench.problems.tables import experiments_with_tables

if TYPE_CHECKING:
    from nnzbench.report.page_spec import PageSpec
    from nnzbench.report.pages.page import Page

PAPERS = (sparsert, sputnik, balanced, direct_conv, eie, han_lecture, nnzbench)


def _modules() -> Iterator[ModuleType]:
    """Those named after an experiment, so that what draws is loaded when it is asked for."""
    listed = {one.page.partition(":")[0] for paper in PAPERS for one in getattr(paper, "EXPERIMENTS", ())}
    with_table = set(experiments_with_tables())
    for paper in PAPERS:
        for one in pkgutil.iter_modules(paper.__path__, f"{paper.__name__}."):
            name = one.name.rpartition(".")[2]
            own = name in with_table or name.startswith(f"{paper.__name__.rpartition('.')[2]}_")
            module = importlib.import_module(one.name) if own and one.name not in listed else None
            if module is not None and isinstance(getattr(module, "EXPERIMENT", None), Experiment):
                yield module


_MODULES = {module.EXPERIMENT.name: module for module in _modules()}
EXPERIMENTS: dict[str, Experiment] = {
    **{name: module.EXPERIMENT for name, module in _MODULES.items()},
    **{one.name: one for paper in PAPERS for one in getattr(paper, "EXPERIMENTS", ())},
}
"""By name, in the order of the papers; our own last."""


def experiment(name: str) -> Experiment:
    """The experiment of that name. Raises `UnknownExperiment`."""
    if name not in EXPERIMENTS:
        raise UnknownExperiment(unknown("experiment", name, EXPERIMENTS))
    return EXPERIMENTS[name]


@functools.cache
def page_of(name: str) -> Page | PageSpec[Any] | None:
    """The page that the experiment declares; None for the generic one, also for a name that is not listed."""
    if (declared := getattr(_MODULES.get(name), "page", None)) is not None:
        made: Page = declared()
        return made
    known = EXPERIMENTS.get(name)
    if known is None or not known.page:
        return None
    module, _, attribute = known.page.partition(":")
    page: PageSpec[Any] = getattr(importlib.import_module(module), attribute)
    return page
