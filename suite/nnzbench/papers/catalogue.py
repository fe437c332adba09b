"""All experiments: what is run, listed, benchmarked under pytest, reported and indexed. There is no other list.

An experiment is an `Experiment` that a paper's module, or a module of a paper's package, declares. Its page is what the
function of its name beside it returns; without one it has the generic page.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from nnzbench.data.problems.experiment import Experiment, UnknownExperiment, unknown
from nnzbench.papers import balanced, direct_conv, eie, han_lecture, nnzbench, patdnn, sparsert, sputnik

if TYPE_CHECKING:
    from nnzbench.report.page import Page

PAPERS = (sparsert, sputnik, balanced, direct_conv, eie, patdnn, han_lecture, nnzbench)


def _modules(paper: ModuleType) -> Iterator[ModuleType]:
    yield paper
    for one in pkgutil.iter_modules(getattr(paper, "__path__", ()), f"{paper.__name__}."):
        yield importlib.import_module(one.name)


def _declared(paper: ModuleType) -> list[tuple[str, Experiment, ModuleType]]:
    found = ((module, one) for module in _modules(paper) for one in vars(module).values())
    return sorted((one.name, one, module) for module, one in found if isinstance(one, Experiment))


_DECLARED = {name: (one, module) for paper in PAPERS for name, one, module in _declared(paper)}
EXPERIMENTS: dict[str, Experiment] = {name: one for name, (one, _) in _DECLARED.items()}
"""By name, in the order of the papers; our own last."""


def experiment(name: str) -> Experiment:
    """The experiment of that name. Raises `UnknownExperiment`."""
    if name not in EXPERIMENTS:
        raise UnknownExperiment(unknown("experiment", name, EXPERIMENTS))
    return EXPERIMENTS[name]


@functools.cache
def page_of(name: str) -> Page | None:
    """The page that the experiment declares; None for the generic one, also for a name that is not listed."""
    _, module = _DECLARED.get(name, (None, None))
    declared = getattr(module, name, None)
    made: Page | None = declared() if declared is not None else None
    return made
