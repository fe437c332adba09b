"""Names of problems, `<label>_<sizes>_<level in percent>_<kind of source>[_<type>]`: the one writer and the one parser.

Records keep names alone, so a name must tell what its problem is where the problem itself is not at hand.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from nnzbench.problems.problem import Problem

INTERCHANGEABLE = frozenset({"dlmc", "weights", "standin"})
"""Kinds of source that stand for one another: a real matrix, and what is generated where it is not on disk."""

_NAME = re.compile(
    r"(?P<label>.+?)_(?P<sizes>\d+x\d+x\d+|n\d+_c\d+_h\d+_w\d+_d\d+_r\d+_s\d+(?:_[a-z]+\d+)*)"
    r"_(?P<level>[0-9.]+)_(?P<kind>[a-z_]+?)(?:_(?P<dtype>f16|bf16|i8|f8))?"
)


@dataclass(frozen=True)
class ProblemName:
    """The parts of a name, each as it is written there."""

    label: str
    """The problem's row of its table, such as `dense_w1.2_pw05`."""
    sizes: str
    """`MxKxN`, or a convolution's shape."""
    level: str
    """Sparsity in percent."""
    kind: str
    """Where the pattern is from: the first word of a problem's source."""
    dtype: str = "f32"

    def __str__(self) -> str:
        name = f"{self.label}_{self.sizes}_{self.level}_{self.kind}"
        return name if self.dtype == "f32" else f"{name}_{self.dtype}"

    @property
    def batch(self) -> int:
        """What the label says of the batch (`..._b256`), 0 where it says nothing."""
        found = re.search(r"_b(\d+)$", self.label)
        return int(found[1]) if found else 0


def name_of(problem: Problem) -> str:
    """The name of a problem that has a label, sizes, a level, a source and a type."""
    sizes = str(problem.conv or f"{problem.m}x{problem.k}x{problem.n}")
    level, kind = f"{100 * problem.sparsity:g}", problem.source.partition(":")[0]
    return str(ProblemName(problem.label, sizes, level, kind, problem.dtype))


@functools.cache
def parse(name: str) -> ProblemName | None:
    """The parts of a name; None for one that `name_of` does not write."""
    found = _NAME.fullmatch(name)
    return ProblemName(**{**found.groupdict(), "dtype": found["dtype"] or "f32"}) if found else None


def label_of(name: str) -> str:
    """The label in a name, empty for a name of another form."""
    parts = parse(name)
    return parts.label if parts else ""


def case_of(name: str) -> str:
    """A name without its source: what the problem is called on real data and on synthetic patterns alike.

    This tells whether a problem of a table was recorded, in each type. A name of another form is its own case.
    """
    parts = parse(name)
    if parts is None:
        return name
    case = f"{parts.label}_{parts.sizes}_{parts.level}"
    return case if parts.dtype == "f32" else f"{case}_{parts.dtype}"


def stem_of(name: str) -> str:
    """A name without its type, and without its source only where that is one of `INTERCHANGEABLE`.

    This puts the types of one problem side by side, but keeps a uniformly random pattern apart from the network's own,
    as tables have both. A name of another form is its own stem.
    """
    parts = parse(name)
    if parts is None:
        return name
    stem = f"{parts.label}_{parts.sizes}_{parts.level}"
    return stem if parts.kind in INTERCHANGEABLE else f"{stem}_{parts.kind}"
