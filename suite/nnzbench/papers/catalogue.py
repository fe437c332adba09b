"""All experiments: what is run, listed, benchmarked under pytest, reported and indexed. There is no other list.

Each is a line of `datasets/experiments.csv`. Its page is what the function of its name in a module of its paper
returns, with what `datasets/experiments.md` says under its name; without one it has the generic page.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from nnzbench import papers
from nnzbench.core import paths
from nnzbench.data.problems.experiment import Experiment, UnknownExperiment, read, unknown

if TYPE_CHECKING:
    from nnzbench.report.page import Page

EXPERIMENTS = read()
_NO_PAPERS = ("catalogue", "claims", "predict", "typical")
"""What else lies beside the papers' modules."""


def experiment(name: str) -> Experiment:
    """The experiment of that name. Raises `UnknownExperiment`."""
    if name not in EXPERIMENTS:
        raise UnknownExperiment(unknown("experiment", name, EXPERIMENTS))
    return EXPERIMENTS[name]


@functools.cache
def page_of(name: str) -> Page | None:
    """The page that the experiment declares; None for the generic one, also for a name that is not listed."""
    for one in pkgutil.walk_packages(papers.__path__, f"{papers.__name__}."):
        if one.name.split(".")[2] not in _NO_PAPERS:
            made = getattr(importlib.import_module(one.name), name, None)
            if inspect.isfunction(made) and name in EXPERIMENTS:
                page: Page = made()
                intro = introductions().get(name, "").format(**introductions(), **page.words)
                return replace(page, question=EXPERIMENTS[name].question, intro=intro)
    return None


@functools.cache
def introductions() -> dict[str, str]:
    """By experiment, what its page says is run: Markdown, a line for a paragraph or an item of a list."""
    text = (paths.datasets() / "experiments.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"(?m)^## (\w+)$", text)
    return {
        name: re.sub(r"(?<=\S)\n *(?!\* )(?=\S)", " ", words.strip())
        for name, words in zip(parts[::2], parts[1::2], strict=True)
    }
