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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from nnzbench.results.records import sanitise
from nnzbench.results.records.beside import ENVIRONMENTS
from nnzbench.results.records.folder import folders, records_file
from nnzbench.results.records.record import KEY, NOT_TIMED, RecordError, read_frame
from nnzbench.results.records.selection import least
from nnzbench.results.result_set import ResultSet, geometric_mean, load, read_environments
from nnzbench.results.selector import selected

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
class Comparisons:
    """All keys timed in A and present in B, and how many were in one run only."""

    rows: pd.DataFrame
    """A line per key with A's columns and, `_after`, B's; `verdict`; `ratio`, B's median over A's, NaN where B has no
    time; `low` and `high`, its bounds by the medians' intervals: what the samples of the two runs leave open."""
    only_before: int
    only_after: int

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(self.rows["verdict"]))

    @property
    def fastest(self) -> dict[str, int]:
        """The same of those that were the fastest of their kernel before."""
        contest = ["gpu", "experiment", "problem", "dtype", "kernel", "device", "math", "policy"]
        return dict(Counter(least(self.rows, contest)["verdict"]))

    def moved(self) -> list[tuple[str, int, float, float, float, int]]:
        """By kernel and policy: rows, geometric mean, least and most of their times after over before, and how many are
        not the SAME. What moved most first."""
        found = []
        for (kernel, policy), some in self.rows.dropna(subset=["ratio"]).groupby(["kernel", "policy"], sort=False):
            ratios, other = some["ratio"], int((some["verdict"] != "SAME").sum())
            ends = geometric_mean(ratios), float(ratios.min()), float(ratios.max())
            found.append((f"{kernel} {policy}", len(some), *ends, other))
        return sorted(found, key=lambda one: -abs(math.log(one[2])))

    @property
    def regressed(self) -> bool:
        """Whether anything got slower or stopped being correct."""
        return bool(self.rows["verdict"].isin(["SLOWER", "FAILED"]).any())


def compare_files(before: Path, after: Path) -> Comparisons:
    """Compares two records files, or all files below two folders.

    Raises `RecordError` where one has no rows or the GPUs differ.
    """
    a, b = _read(before), _read(after)
    old, new = (", ".join(sorted(run["gpu"].unique())) for run in (a, b))
    if old != new:
        raise RecordError(f"{before} was measured on {old} and {after} on {new}: only runs on one GPU compare")
    return compare(a, b)


def compare_with_results(before: Path, results: Path) -> Comparisons:
    """Compares a run with what the folder `results` has of the same GPUs and experiments.

    Raises `RecordError` where one has no rows.
    """
    a = _read(before)
    of = a[["gpu", "experiment"]].drop_duplicates().itertuples(index=False, name=None)
    there = [folder for folder in sorted(results / gpu / name for gpu, name in of) if folder.is_dir()]
    if not there:
        raise RecordError(f"{results} has no run of the experiments and the GPU of {before}: name the run to compare")
    return compare(a, pd.concat(map(_read, there)))


def compare(before: pd.DataFrame, after: pd.DataFrame) -> Comparisons:
    """Compares rows with equal keys; only rows timed in `before` can regress."""
    key = ["gpu", *KEY]
    old = before[before["median_us"].notna()].drop_duplicates(key, keep="last")
    new = after[~after["reason"].str.startswith(NOT_TIMED)].drop_duplicates(key, keep="last")
    rows = _judged(old.merge(new, on=key, suffixes=("", "_after")))
    only_after = new["median_us"].notna().sum() - rows["median_us_after"].notna().sum()
    return Comparisons(rows, len(old) - len(rows), int(only_after))


def _judged(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with what is said of them. A difference stands where it is one in SM clock cycles, too."""
    ratio, most = rows["median_us_after"] / rows["median_us"], 1 + DIFFERENT_BEYOND
    (least_old, most_old), (least_new, most_new) = _interval(rows, ""), _interval(rows, "_after")
    low, high = least_new / most_old, most_new / least_old
    cycles = (ratio * rows["sm_clock_mhz_after"] / rows["sm_clock_mhz"]).fillna(ratio)
    verdicts: dict[Verdict, Any] = {
        "FAILED": ratio.isna(),
        "SLOWER": np.minimum(low, cycles) > most,
        "FASTER": np.maximum(high, cycles) < 1 / most,
        "UNCLEAR": (low > most) | (high < 1 / most),
        "SAME": np.abs(np.log(ratio)) <= _within(rows["policy"]),
    }
    words = np.select([*verdicts.values()], [*verdicts], "UNCLEAR")
    return rows.assign(ratio=ratio, low=low, high=high, verdict=words)


def _within(policies: pd.Series[str]) -> pd.Series[float]:
    """How far apart the logarithms of two times of one build may lie."""
    return policies.map(SAME_WITHIN).astype(float).fillna(0.0).map(math.log1p)


def _interval(rows: pd.DataFrame, run: str) -> tuple[Any, Any]:
    """Intervals of the medians, microseconds, from quartiles and sample count (a normal's IQR is 1.349 sigma)."""
    median = rows[f"median_us{run}"]
    spread = rows[f"q3_us{run}"].fillna(median) - rows[f"q1_us{run}"].fillna(median)
    error = 1.2533 * spread / 1.349 / np.sqrt(rows[f"samples{run}"].fillna(1))
    half = Z * error + rows["policy"].map(RESOLUTION_US).astype(float).fillna(0.0)
    return np.maximum(median - half, median * 1e-3), median + half


def reproduced(results: ResultSet) -> tuple[ResultSet, int, int] | None:
    """The set of another run on the same GPU; of the rows that stand for their kernel those timed there, and how many
    of these are the SAME. None where there is no such set."""
    other = results.folder.parents[1] / REPEATED / results.gpu / results.experiment
    if not other.is_dir() or other == results.folder:
        return None
    key, again = ["problem", "dtype", "kernel", "variant", "policy"], load(other)
    rows = selected(results.frame).merge(again.frame[again.frame["status"] == "ok"], on=key, suffixes=("", "_again"))
    off = (rows["median_us_again"].map(math.log) - rows["median_us"].map(math.log)).abs()
    return again, len(rows), int((off <= _within(rows["policy"])).sum())


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


def _read(path: Path) -> pd.DataFrame:
    files = [records_file(folder) for folder in folders(path)] if path.is_dir() else [path]
    rows = pd.concat([sanitise.frame(read_frame(file)) for file in files]) if files else pd.DataFrame()
    if rows.empty:
        raise RecordError(f"{path}: no records to compare")
    return rows
