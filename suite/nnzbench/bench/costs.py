"""What candidates cost and what tuning brings, learnt from the tuning tables and records of earlier runs."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from nnzbench.core import paths
from nnzbench.data.problems.problem import ITEM_BYTES, Problem
from nnzbench.kernels.registry import about, kernels
from nnzbench.results.records.beside import TUNING, Tuning
from nnzbench.results.records.folder import records_file
from nnzbench.results.records.record import RecordError, read_frame

UNKNOWN_S = 1.0
"""Seconds of a candidate where nothing was ever recorded."""
UNKNOWN_COUNT = 10.0
"""Candidates of a kernel there."""
GPU_S = 0.036
"""Seconds of a candidate in which it needs the GPU, where none were recorded of the problem."""
GPU_S_PER_GB = 0.35
"""More of them there by what is uploaded, read and written; both as fitted to 1288 first choices on an H200."""
COMPILE_S_PER_NONZERO = 3e-4
"""Of a program that holds the weights, compiled alone: 30 s for 100,000 of them, as recorded."""
MOST_NONZEROS = 250_000
"""Kernels of such programs refuse larger matrices, which takes no time."""
OPERANDS_S = 0.05
"""Of making a problem's operands and its float64 result."""
OPERANDS_S_PER_MILLION = 0.025
"""More of them by a million elements of the operands and the result, zeros included, on the host of that H200."""
UNKNOWN_GAIN = 0.1
"""Logarithm of what tuning brings there."""
LIBRARY_DEFAULTS = 4
"""Default algorithms of a library: two layouts in two arithmetics."""
Name = tuple[str, ...]
T = TypeVar("T", float, None)


SUMS = {
    "candidate": ("seconds", "candidates"),
    "first": ("first_s", "firsts"),
    "untuned": ("untuned", "firsts"),
    "count": ("candidates", "candidates_of"),
    "gain": ("gain", "gains"),
    "first_gpu": ("first_gpu_s", "first_gpu_of"),
    "tuned_gpu": ("gpu_s", "gpu_of"),
}
"""What is learnt, as sums: each as the columns of `datasets/costs.csv` that have it and what it is over."""
OF_FIRSTS = ("first", "untuned", "first_gpu")
"""What runs that tuned nothing tell, too."""
COLUMNS = (
    "experiment", "kernel", "firsts", "untuned", "first_s", "candidates_of", "candidates", "seconds", "gains", "gain",
    "first_gpu_of", "first_gpu_s", "gpu_of", "gpu_s",
)  # fmt: skip
"""Of `datasets/costs.csv`: sums over the problems of an experiment, and how many each is over."""


@dataclass
class Costs:
    """Means by problem and kernel where those were recorded, else by experiment and kernel, by kernel, over all."""

    amounts: defaultdict[tuple[str, Name], float] = field(default_factory=lambda: defaultdict(float))
    """By what of `SUMS` was learnt, and whose."""
    counts: defaultdict[tuple[str, Name], float] = field(default_factory=lambda: defaultdict(float))
    """What each is over."""
    _compile: dict[Name, float] = field(default_factory=dict)

    def add(self, experiment: str, row: Tuning) -> None:
        """Learns from one line of an experiment's `tuning.csv`.

        Not from a few candidates that a run tried of many: what is made once for all of them is in their seconds.
        """
        if row.scope == "some":
            return
        first, names = row.scope == "first", _names(experiment, row.problem, row.dtype, row.kernel)
        if row.gpu_seconds and row.candidates:
            self._add("first_gpu" if first else "tuned_gpu", names, row.gpu_seconds, row.candidates)
        if first:
            self._add("first", names, row.seconds)
            self._add("untuned", names, row.candidates)
        elif row.candidates:
            self._add("candidate", names, row.seconds, row.candidates)
            self._add("count", names, row.candidates)

    def _add(self, what: str, names: Iterable[Name], amount: float, count: float = 1.0) -> None:
        for name in names:
            self.amounts[what, name] += amount
            self.counts[what, name] += count

    def add_gain(self, experiment: str, problem: str, dtype: str, kernel: str, first_us: float, best_us: float) -> None:
        """Learns how much faster the best candidate was than the first."""
        self._add("gain", _names(experiment, problem, dtype, kernel), math.log(first_us / best_us))

    def add_compiling(self, experiment: str, problem: str, dtype: str, kernel: str, seconds: float) -> None:
        """Learns how long a program takes that is generated for one problem alone."""
        self._compile[experiment, problem, dtype, kernel] = seconds

    def _mean(self, what: str, names: tuple[Name, ...], otherwise: T) -> float | T:
        """Of the first of these names that there is something of."""
        key = next(((what, name) for name in names if (what, name) in self.counts), None)
        return self.amounts[key] / self.counts[key] if key else otherwise

    def first(self, experiment: str, problem: Problem, kernel: str) -> float:
        """Seconds that a kernel's first choices take."""
        names = _names(experiment, problem.name, problem.dtype, kernel)
        gpu_s = self.first_gpu(experiment, problem, kernel)
        if (exact := self._mean("first", names[:1], None)) is not None:
            return max(exact, gpu_s)
        seconds = self._mean("first", names[1:-1], None)
        if seconds is None or ("candidate", names[0]) in self.counts:
            seconds = self._firsts(names, kernel) * self._mean("candidate", names, UNKNOWN_S)
        # many of a search compile at once, and it looks as if each took less than it does alone
        return max(seconds, self._compiling(names, problem, kernel), gpu_s)

    def _compiling(self, names: tuple[Name, ...], problem: Problem, kernel: str) -> float:
        """Seconds of one program alone that is generated for the problem."""
        nonzeros = problem.m * problem.k * (1 - problem.sparsity)
        generated = about(kernel).weights_in_code and nonzeros <= MOST_NONZEROS and self._firsts(names, kernel) >= 0.5
        return self._compile.get(names[0], nonzeros * COMPILE_S_PER_NONZERO if generated else 0.0)

    def first_gpu(self, experiment: str, problem: Problem, kernel: str) -> float:
        """Of those seconds, the ones in which the GPU is needed."""
        names = _names(experiment, problem.name, problem.dtype, kernel)
        return self._firsts(names, kernel) * self._candidate_gpu(names, problem, "first_gpu", "tuned_gpu")

    def tuning_gpu(self, experiment: str, problem: Problem, kernel: str) -> float:
        """Of the seconds that the other candidates take, the ones in which the GPU is needed."""
        names = _names(experiment, problem.name, problem.dtype, kernel)
        count = self._mean("count", names, UNKNOWN_COUNT) - self._firsts(names, kernel)
        gpu_s = max(count, 0.0) * self._candidate_gpu(names, problem, "tuned_gpu", "first_gpu")
        return min(gpu_s, self.tuning(experiment, problem, kernel))

    def _candidate_gpu(self, names: tuple[Name, ...], problem: Problem, what: str, other: str) -> float:
        """Seconds of a GPU that one candidate takes: recorded, else the mean of its kernel, else by the problem's size.

        `other` is of the candidates of the other pass, which are better than nothing of the same problem.
        """
        by_size = GPU_S + GPU_S_PER_GB * ITEM_BYTES[problem.dtype] * elements(problem) / 1e9
        elsewhere = self._mean(what, names[1:-1], by_size)
        return self._mean(what, names[:1], self._mean(other, names[:1], elsewhere))

    def _firsts(self, names: tuple[Name, ...], kernel: str) -> float:
        """Candidates that run untuned."""
        said = about(kernel)
        tried = LIBRARY_DEFAULTS if said.role == "library" else 2 if said.paper_variants else 1
        return self._mean("untuned", names[:-1], min(tried, self._mean("count", names, tried)))

    def tuning(self, experiment: str, problem: Problem, kernel: str) -> float:
        """Seconds that its other candidates take: none of a kernel that had no first one to run."""
        names = _names(experiment, problem.name, problem.dtype, kernel)
        if self._mean("untuned", names[:1], None) == 0.0:
            return 0.0
        whole = self._mean("count", names, UNKNOWN_COUNT) * self._mean("candidate", names, UNKNOWN_S)
        return max(whole - self.first(experiment, problem, kernel), 0.0)

    def gain(self, experiment: str, problem: Problem, kernel: str) -> float:
        """Logarithm of how much faster tuning makes it."""
        return self._mean("gain", _names(experiment, problem.name, problem.dtype, kernel), UNKNOWN_GAIN)

    def known(self, what: str) -> set[Name]:
        """Experiments and kernels of which there is a mean."""
        return {name for one, name in self.counts if one == what and len(name) == 2}


def table(costs: Costs) -> Iterator[tuple[str | float, ...]]:
    """The rows of `datasets/costs.csv`: what was learnt, by experiment and kernel that there still is."""
    for name in sorted(name for name in costs.known("first") | costs.known("candidate") if name[1] in kernels()):
        cells: dict[str, float] = {}
        for what, (amount, of) in SUMS.items():  # candidates: of those of whole searches
            cells |= {of: costs.counts.get((what, name), 0.0), amount: costs.amounts.get((what, name), 0.0)}
        yield (*name, *(cells[column] for column in COLUMNS[2:]))


def _add_shipped(costs: Costs, path: Path) -> None:
    """Adds what is known of experiments and kernels that nothing was learnt of; nothing where there is no file."""
    rows: list[dict[str, str]] = []
    with suppress(OSError, ValueError, csv.Error), path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    known = {what: costs.known("first" if what in OF_FIRSTS else "candidate") for what in SUMS}
    for row in rows:
        here = (row["experiment"], row["kernel"])
        for what, columns in SUMS.items():
            amount, of = (float(row.get(column) or 0.0) for column in columns)
            if of and here not in known[what]:
                costs._add(what, (here, here[1:], ()), amount, of)


def elements(problem: Problem) -> int:
    """Of the operands with their zeros and of the result."""
    if problem.conv is None:
        return problem.m * problem.k + problem.k * problem.n + problem.m * problem.n
    conv = problem.conv
    return conv.batch * conv.channels * conv.height * conv.width + math.prod(conv.output) + problem.m * problem.k


def operands_s(problem: Problem) -> float:
    """Seconds that making operands and the float64 result takes."""
    return OPERANDS_S + OPERANDS_S_PER_MILLION * elements(problem) / 1e6


def learn(folders: Iterable[Path], timed: bool) -> Costs:
    """From folders of result sets, of the runs that timed (or of those that did not); unreadable files are skipped.

    What those runs did not do is predicted from `datasets/costs.csv`, where something is timed.
    """
    costs, known = Costs(), kernels()
    for folder in sorted({path.parent for root in folders for path in root.glob("*/*/tuning.*")}):
        try:
            rows = [row for row in TUNING.read(folder) if (row.device != "cpu") == timed]
        except (RecordError, OSError):
            continue
        for row in rows:
            costs.add(folder.name, row)
        if rows and timed:
            for (problem, dtype, kernel), (first, best, compiling) in _times(folder).items():
                costs.add_gain(folder.name, problem, dtype, kernel, first, best)
                if compiling and kernel in known and about(kernel).weights_in_code:
                    costs.add_compiling(folder.name, problem, dtype, kernel, compiling)
    if timed:
        _add_shipped(costs, paths.datasets() / "costs.csv")
    return costs


def _times(folder: Path) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    """First and least hot median, and seconds of the first one's compilation, by problem, dtype and kernel."""
    try:
        rows = read_frame(records_file(folder))
    except (OSError, RecordError):
        return {}
    rows = rows[(rows["policy"] == "hot") & (rows["status"] == "ok") & rows["median_us"].notna()]
    grouped = rows.fillna({"compile_ms": 0.0}).groupby(["problem", "dtype", "kernel"], sort=False)
    found = grouped.agg(first=("median_us", "first"), best=("median_us", "min"), compile=("compile_ms", "first"))
    return {
        (str(problem), str(dtype), str(kernel)): (float(first), float(best), float(compile_ms) / 1e3)
        for (problem, dtype, kernel), first, best, compile_ms in found.itertuples()
    }


def _names(experiment: str, problem: str, dtype: str, kernel: str) -> tuple[Name, ...]:
    return (experiment, problem, dtype, kernel), (experiment, kernel), (kernel,), ()
