"""All experiments: what is run, listed, benchmarked under pytest, reported and indexed. There is no other list."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nnzbench.papers import balanced, direct_conv, eie, lecture, own, sparsert, sputnik
from nnzbench.problems.experiment import Experiment, UnknownExperiment, unknown

if TYPE_CHECKING:
    from nnzbench.report.page_spec import PageSpec

PAPERS = (sparsert, sputnik, balanced, direct_conv, eie, lecture, own)

EXPERIMENTS: dict[str, Experiment] = {one.name: one for paper in PAPERS for one in paper.EXPERIMENTS}
"""By name, in the order of the papers; our own last."""


def experiment(name: str) -> Experiment:
    """The experiment of that name. Raises `UnknownExperiment`."""
    if name not in EXPERIMENTS:
        raise UnknownExperiment(unknown("experiment", name, EXPERIMENTS))
    return EXPERIMENTS[name]


def page_of(name: str) -> PageSpec[Any]:
    """How the experiment's page is made: as declared, else the generic page, also for a name that is not listed."""
    known = EXPERIMENTS.get(name)
    if known is None or not known.page:
        from nnzbench.report import generic

        return generic.PAGE
    module, _, attribute = known.page.partition(":")
    page: PageSpec[Any] = getattr(importlib.import_module(module), attribute)
    return page
