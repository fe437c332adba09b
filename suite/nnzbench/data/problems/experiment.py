"""What an experiment is: the problems, kernels and policies that make up one table or figure."""

from __future__ import annotations

import csv
import difflib
import fnmatch
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from nnzbench.core import paths
from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import DType, Problem

Policy = Literal["hot", "cold", "stream", "loop"]
"""Launches back to back with operands as the last one left them, each alone after L2 was overwritten, back to back
over copies of the weights that L2 can't hold, as a model runs them, or enqueued one by one, as many benchmarks do."""
POLICIES: tuple[Policy, ...] = get_args(Policy)
USUAL: tuple[Policy, ...] = ("hot", "cold")
OF_MODELS: tuple[Policy, ...] = (*USUAL, "stream")
CHECKS = "awkward_sizes"
"""The experiment that is for checking, not for speed: its times tell nothing of a layer's."""
WARM: tuple[Policy, ...] = ("hot", "loop")
"""Those that find in L2 what the last launch left there."""

AS_TABLE: tuple[DType, ...] = ()
"""A kernel runs each problem in the dtype that its table gives."""


class UnknownExperiment(ValueError):
    """No experiment has this name; the message suggests one, or lists those there are."""


FEW = 8
"""Names that are all listed where one was wrong."""


def unknown(kind: str, name: str, known: Collection[str]) -> str:
    """The sentence on a name that is none of `known`: what was probably meant out of many, else all there are."""
    near = difflib.get_close_matches(name, known, 3) if len(known) > FEW else []
    return f"unknown {kind} '{name}': " + (
        f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(known)}"
    )


@dataclass(frozen=True)
class Experiment:
    """One table or figure: every kernel runs on every problem of its op, in each dtype, under each policy."""

    name: str
    """Fixed name, which is also that of its problem table and results folder."""
    title: str
    paper: str
    figure: str
    """Where in the paper its published numbers stand, or that there are none."""
    kernels: Mapping[str, tuple[DType, ...]]
    """Dtypes per kernel name, `AS_TABLE` for that of each problem. An unregistered kernel is skipped with a note.

    Empty for what runs nothing: its page is drawn from the data sets and has no problem table.
    """
    policies: tuple[Policy, ...] = USUAL
    full: bool = False
    """All problems of its table where the default is a sample."""
    sample: int = tables.SAMPLE
    """At least so many matrices of a collection otherwise."""
    only: Mapping[str, str] = field(default_factory=dict)
    """Kernels that run some of the problems of their op alone: a pattern (`fnmatch`) of those problems' labels."""

    question: str = ""
    """What its page answers; without a number that is measured."""
    leads: bool = False
    """Whether it comes first where time is short."""

    def problems(self, real: bool | None = None) -> list[Problem]:
        """Those of its table: on real data where that is on disk (None), or on synthetic patterns alone (False)."""
        return tables.load(self.name, real, self.full, self.sample) if self.kernels else []

    def takes(self, kernel: str, problem: Problem) -> bool:
        """Whether the kernel is to run that problem, if it computes such at all."""
        return fnmatch.fnmatchcase(problem.label, self.only.get(kernel, "*"))


def read() -> dict[str, Experiment]:
    """Those of `datasets/experiments.csv` by name, in its order: by paper, this project's own last."""
    with (paths.datasets() / "experiments.csv").open(encoding="utf-8", newline="") as lines:
        return {row["name"]: _experiment(row) for row in csv.DictReader(lines)}


def _experiment(row: Mapping[str, str]) -> Experiment:
    kernels = {name: tuple(filter(None, types.split("+"))) for name, types in _pairs(row["kernels"], ":")}
    return Experiment(
        row["name"],
        row["title"],
        row["paper"],
        row["figure"],
        cast("dict[str, tuple[DType, ...]]", kernels),
        cast("tuple[Policy, ...]", tuple(row["policies"].split())) or USUAL,
        only=dict(_pairs(row["only"], "=")),
        question=row["question"],
        leads=bool(row["leads"]),
    )


def _pairs(cell: str, sign: str) -> list[tuple[str, str]]:
    """Of words `<name><sign><rest>`, or a name alone."""
    return [(name, rest) for name, _, rest in (word.partition(sign) for word in cell.split())]
