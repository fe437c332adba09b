"""Two runs on one GPU, row by row: SAME, FASTER, SLOWER, UNCLEAR or FAILED. Two runs of one build must say SAME.

A difference counts only where the medians' intervals are further apart than what changes from run to run without a
cause in the code, in time and in clock cycles. Samples of one run don't show that part: operands lie where the
allocator put them, and every sample of the run pays for it alike. It was measured: of 3,102 pairs of unchanged kernels
in two runs of one table on an H200, half differ by less than 0.3 % (hot) or 1.1 % (cold), 99 in 100 by 4.1 % or 6.8 %,
the worst by 14 %. On an H100 99.4 % of 5,052 pairs of kernels of this suite are the same, and none is called different;
of 6,219 pairs of libraries' algorithms 96.7 % are, and 22 are called different: all hot, of one column, 3 to 18 us.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nnzbench.results.crossover import times_as_fast
from nnzbench.results.records import shown
from nnzbench.results.records.beside import ENVIRONMENTS
from nnzbench.results.records.folder import folders, records_file
from nnzbench.results.records.record import NOT_TIMED, Record, RecordError, read_table, records_of
from nnzbench.results.result_set import ResultSet, geometric_mean, load, read_environments
from nnzbench.results.selector import standing

Verdict = Literal["SAME", "FASTER", "SLOWER", "UNCLEAR", "FAILED"]

REPEATED = "repeated"
"""Folder of `reports/` with sets that another machine of a GPU's model measured, `<gpu>/<experiment>/`."""
SAME_WITHIN = {"hot": 0.04, "cold": 0.07, "stream": 0.04, "loop": 0.04}
"""Relative difference up to which two medians are called the same: 99 of 100 pairs of one build, hot and cold; streamed
and looped launches are taken as hot ones, which they are timed like."""
DIFFERENT_BEYOND = 0.15
"""Smallest relative difference that is ever called one: of one build, no pair of this suite's kernels."""
Z = 3.5
"""Half width of a median's interval in standard errors: one false call in some 2,000 if noise were normal."""
RESOLUTION_US = {"hot": 0.025, "cold": 0.25, "stream": 0.025, "loop": 0.025}
"""Half a step of the event timer (0.5 us as documented); all but cold samples spread it over ten launches or more."""


@dataclass(frozen=True)
class Comparison:
    """One key present in both runs. `ratio` is B's median over A's, None where B has no time.

    `low` and `high` bound the ratio by the medians' intervals: what the samples of the two runs leave open.
    """

    before: Record
    after: Record
    verdict: Verdict
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Comparisons:
    """All keys timed in A and present in B, and how many were in one run only."""

    rows: tuple[Comparison, ...]
    only_before: int
    only_after: int

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(row.verdict for row in self.rows))

    @property
    def fastest(self) -> dict[str, int]:
        """The same of those that were the fastest of their kernel before."""
        least: dict[tuple[str, ...], Comparison] = {}
        for row in sorted(self.rows, key=lambda row: -(row.before.median_us or 0.0)):
            one = row.before
            least[one.gpu, one.experiment, one.problem, one.dtype, one.kernel, one.device, one.math, one.policy] = row
        return dict(Counter(row.verdict for row in least.values()))

    def moved(self) -> list[tuple[str, int, float, float, float, int]]:
        """By kernel and policy: rows, geometric mean, least and most of their times after over before, and how many are
        not the SAME. What moved most first."""
        of: dict[str, list[Comparison]] = {}
        for row in self.rows:
            if row.ratio is not None:
                of.setdefault(f"{row.before.kernel} {row.before.policy}", []).append(row)
        found = []
        for name, rows in of.items():
            ratios = [row.ratio for row in rows if row.ratio is not None]
            other = sum(row.verdict != "SAME" for row in rows)
            found.append((name, len(rows), geometric_mean(ratios), min(ratios), max(ratios), other))
        return sorted(found, key=lambda one: -abs(math.log(one[2])))

    @property
    def regressed(self) -> bool:
        """Whether anything got slower or stopped being correct."""
        return any(row.verdict in ("SLOWER", "FAILED") for row in self.rows)


def compare_files(before: Path, after: Path) -> Comparisons:
    """Compares two records files, or all files below two folders.

    Raises `RecordError` where one has no rows or the GPUs differ.
    """
    a, b = _read(before), _read(after)
    old, new = (", ".join(sorted({gpu for gpu, _ in _measured(run)})) for run in (a, b))
    if old != new:
        raise RecordError(f"{before} was measured on {old} and {after} on {new}: only runs on one GPU compare")
    return compare(_records(a), _records(b))


def compare_with_results(before: Path, results: Path) -> Comparisons:
    """Compares a run with what the folder `results` has of the same GPUs and experiments.

    Raises `RecordError` where one has no rows.
    """
    a = _read(before)
    there = [folder for folder in sorted(results / gpu / name for gpu, name in _measured(a)) if folder.is_dir()]
    if not there:
        raise RecordError(f"{results} has no run of the experiments and the GPU of {before}: name the run to compare")
    return compare(_records(a), _records([table for folder in there for table in _read(folder)]))


def compare(before: Iterable[Record], after: Iterable[Record]) -> Comparisons:
    """Compares rows with equal keys; only rows timed in `before` can regress."""
    a = {(record.gpu, *record.key): record for record in before if record.median_us is not None}
    new = {(record.gpu, *record.key): record for record in after if not record.reason.startswith(NOT_TIMED)}
    rows = tuple(_judge(record, new[key]) for key, record in a.items() if key in new)
    only_after = sum(1 for key, record in new.items() if record.median_us is not None and key not in a)
    return Comparisons(rows, len(a) - len(rows), only_after)


def reproduced(results: ResultSet) -> tuple[ResultSet, int, int] | None:
    """The set of another run on the same GPU; of the rows that stand for their kernel those timed there, and how many
    of these are the SAME. None where there is no such set."""
    other = results.folder.parents[1] / REPEATED / results.gpu / results.experiment
    if not other.is_dir() or other == results.folder:
        return None
    key, again = ["problem", "dtype", "kernel", "variant", "policy"], load(other)
    rows = standing(results.frame).merge(again.frame[again.frame["status"] == "ok"], on=key, suffixes=("", "_again"))
    within = rows["policy"].map(SAME_WITHIN).fillna(0.0)
    off = (rows["median_us_again"].map(math.log) - rows["median_us"].map(math.log)).abs()
    return again, len(rows), int((off <= within.map(math.log1p)).sum())


def changed(before: Path, after: Path) -> dict[str, tuple[str, str]]:
    """What the snapshots of two runs say otherwise of software, by its name; of a run with several, all versions."""
    old, new = _software(before), _software(after)
    return {name: (old[name], new[name]) for name in sorted(old.keys() & new.keys()) if old[name] != new[name]}


def _software(path: Path) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for folder in folders(path) if path.is_dir() else [path.parent]:
        for said in read_environments(folder, ENVIRONMENTS.names(folder)).values():
            driver, commit = (
                said.get(table, {}).get(name) for table, name in (("gpu", "driver"), ("source", "commit"))
            )
            versions = {**said.get("packages", {}), **said.get("software", {}), "driver": driver, "commit": commit}
            for name, version in versions.items():
                if version:
                    found.setdefault(name, set()).add(str(version))
    return {name: " and ".join(sorted(versions)) for name, versions in found.items()}


def _read(path: Path) -> list[Any]:
    """Its records as Arrow tables: taking their rows apart takes ten times as long as reading them."""
    files = [records_file(folder) for folder in folders(path)] if path.is_dir() else [path]
    tables = [read_table(file) for file in files]
    if not any(table.num_rows for table in tables):
        raise RecordError(f"{path}: no records to compare")
    return tables


def _measured(tables: Iterable[Any]) -> set[tuple[str, str]]:
    """GPUs and experiments."""
    pairs = [pair for table in tables for pair in table.group_by(["gpu", "experiment"]).aggregate([]).to_pylist()]
    return {(shown.inert(one["gpu"]), shown.inert(one["experiment"])) for one in pairs}


def _records(tables: Iterable[Any]) -> list[Record]:
    return [record for table in tables for record in shown.records(records_of(table))]


def _judge(before: Record, after: Record) -> Comparison:
    """A difference stands where it is one in SM clock cycles, too."""
    assert before.median_us is not None
    if after.median_us is None:
        return Comparison(before, after, "FAILED")
    ratio, limit = times_as_fast(before.median_us, after.median_us), 1 + DIFFERENT_BEYOND
    old, new = _interval(before), _interval(after)
    low, high = times_as_fast(old[1], new[0]), times_as_fast(old[0], new[1])
    clocks = before.sm_clock_mhz, after.sm_clock_mhz
    cycles = ratio * clocks[1] / clocks[0] if clocks[0] and clocks[1] else ratio
    verdict: Verdict = "UNCLEAR"
    if low > limit or high < 1 / limit:
        verdict = "SLOWER" if min(low, cycles) > limit else "FASTER" if max(high, cycles) < 1 / limit else "UNCLEAR"
    elif abs(math.log(ratio)) <= math.log1p(SAME_WITHIN.get(before.policy, 0.0)):
        verdict = "SAME"
    return Comparison(before, after, verdict, ratio, low, high)


def _interval(record: Record) -> tuple[float, float]:
    """Interval of the median, microseconds, from quartiles and sample count (a normal's IQR is 1.349 sigma)."""
    assert record.median_us is not None
    median = record.median_us
    spread = (record.q3_us or median) - (record.q1_us or median)
    error = 1.2533 * spread / 1.349 / math.sqrt(record.samples or 1)
    half = Z * error + RESOLUTION_US.get(record.policy, 0.0)
    return max(median - half, median * 1e-3), median + half
