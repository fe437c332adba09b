"""How far the prediction is off on numbers that it has not seen: published times of GPUs that nobody here has."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nnzbench.facts.results import each, geometric_mean, load
from nnzbench.papers.nnzbench import four_gpus
from nnzbench.predict.model import Floats, Gpu, Work, calibrate, gpu, listed, refused, scaled
from nnzbench.predict.records import kind_of
from nnzbench.problems import tables
from nnzbench.records.files import folders
from nnzbench.records.record import RecordError
from nnzbench.report.data import published
from nnzbench.site.generations import comparison

GPUS = {
    "V100": "tesla-v100-sxm2-16gb",
    "RTX 2080 Ti": "nvidia-geforce-rtx-2080-ti",
    "A100": "nvidia-a100-sxm4-40gb",
    "RTX 4090": "nvidia-geforce-rtx-4090",
}
"""The published names. Their source says no more; these forms have the rates that are taken."""
FILE_KEYS = {"V100": "v100", "RTX 2080 Ti": "rtx2080ti", "A100": "a100", "RTX 4090": "rtx4090"}
LIBRARIES = ("sputnik", "cusparse", "cublas")
RECORDS = "records of dlmc_n512"
AS_PUBLISHED = {"sparsert": "sparsert_paper", "sparsert_conv": "sparsert_conv_paper"}
"""The kernel here that is the paper's mapping as published, where another has its name."""
CALIBRATION, DRAWS = 20, 60
WITHOUT = 0.20
"""Largest mean error that is called good without a measurement on the target."""
BARS = {("V100", "A100"): 0.069, ("A100", "V100"): 0.074, ("A100", "RTX 4090"): 0.116, ("A100", "RTX 2080 Ti"): 0.131}
"""Of Sputnik with 20 calibration problems: what a power law reaches over all 2,662 published matrices."""
COLUMNS = (
    *("data", "source", "target", "kernel", "what", "calibration", "count", "refused", "mean", "p90", "bias", "bar"),
)


@dataclass(frozen=True)
class Times:
    """The same problems timed on several GPUs by one library."""

    works: tuple[Work, ...]
    by_gpu: Mapping[str, Sequence[float]]
    floor_us: Mapping[str, float]
    """Cost of a launch as these times have it."""


def errors(reports: Path, matrices: Path | None = None) -> pd.DataFrame:
    """Every hold-out (`COLUMNS`): mean and 90th percentile of |predicted / published - 1|, the geometric mean of that
    quotient (`bias`), and the bar if there is one.

    From committed data: the means of 28 strata of matrices on four GPUs, each pair in both directions; H200 records to
    the same; H200 records to the papers' T4, V100 and Titan X. `matrices`: the published file with every matrix's
    GFLOP/s (not part of this repository), for the same per matrix.
    """
    rows = [row for library in LIBRARIES for row in _between("strata", strata(library), library)]
    if matrices is not None:
        rows += [row for library in LIBRARIES for row in _between("matrices", by_matrix(matrices, library), library)]
    rows += [*_recorded(reports), *_papers(reports)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def strata(library: str) -> Times:
    """The committed means: a stratum is a pruning method and level, its work the geometric mean of its matrices'."""
    means = four_gpus.printed(of_all=True)
    means = means[means["library"] == library]
    groups: dict[tuple[str, float], list[Work]] = {}
    for row in tables.rows(four_gpus.EXPERIMENT, full=True):
        one = row.problem
        groups.setdefault(four_gpus.stratum(one.name), []).append(_work(library, one.m, one.k, one.sparsity))
    names = _names()
    works = tuple(
        Work(*(geometric_mean([getattr(one, field) for one in groups[name]]) for field in vars(groups[name][0])))
        for name in names
    )
    told = {(row.gpu, row.method, row.level): float(row.geomean_us) for row in each(means)}
    times = {name: [told[name, method, level] for method, level in names] for name in GPUS}
    return Times(works, times, floors())


def by_matrix(path: Path, library: str) -> Times:
    """Every matrix of the published file. Raises `RecordError` where it is not that file."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        sizes = [(int(row["rows"]), int(row["cols"]), int(row["nnz"])) for row in rows]
        times = {
            name: [2e-3 * int(row["nnz"]) * 512 / float(row[f"{library}_{key}_gflops"]) for row in rows]
            for name, key in FILE_KEYS.items()
        }
    except (KeyError, ValueError) as error:
        raise RecordError(f"{path}: not the table of four GPUs ({error})") from None
    works = tuple(_work(library, m, k, 1 - nnz / (m * k)) for m, k, nnz in sizes)
    return Times(works, times, floors())


def floors() -> dict[str, float]:
    """By GPU: Sputnik's fastest published time, which is nearly all launch."""
    frame = published.read("dlmc_n512_fastest", ("gpu", "library", "fastest_us"))
    frame = frame[frame["library"] == "sputnik"]
    return {str(row.gpu): float(row.fastest_us) for row in each(frame)}


def _work(library: str, m: int, k: int, sparsity: float) -> Work:
    nnz, n = max((1 - sparsity) * m * k, 1.0), 512
    stored = m * k if library == "cublas" else nnz
    index = 0.0 if library == "cublas" else 4.0 * nnz
    return Work(2.0 * stored * n, 2.0 * (stored + k * n + m * n) + index, nnz, m, k)


def _between(data: str, times: Times, library: str) -> Iterator[tuple[object, ...]]:
    """Each pair of GPUs in both directions, without calibration and with 20 problems."""
    for source, target in itertools.permutations(GPUS, 2):
        truth = np.asarray(times.by_gpu[target])
        told = _scaled(times, library, source, target)
        known = ~np.isnan(told)
        bar = WITHOUT if library == "sputnik" else math.nan
        lost = int((~known).sum())
        yield _line(data, source, target, library, "time", 0, (told[known] / truth[known]).tolist(), lost, bar)
        bar = BARS.get((source, target), math.nan) if (library, data) == ("sputnik", "matrices") else math.nan
        quotients = _calibrated(times, source, target).tolist()
        yield _line(data, source, target, library, "time", CALIBRATION, quotients, 0, bar)


def _scaled(times: Times, library: str, source: str, target: str) -> Floats:
    kind = kind_of(library, "f16")
    ends: tuple[Gpu, Gpu] = (gpu(GPUS[source]), gpu(GPUS[target]))
    floor = times.floor_us[source], times.floor_us[target]
    told = [scaled(kind, work, us, *ends, *floor) for work, us in zip(times.works, times.by_gpu[source], strict=True)]
    return np.asarray([math.nan if refused(us, floor[1]) else us for us in told])


def _calibrated(times: Times, source: str, target: str) -> Floats:
    """Predicted over published of what each draw leaves out."""
    rng = np.random.default_rng(0)
    us, truth = np.asarray(times.by_gpu[source]), np.asarray(times.by_gpu[target])
    quotients = []
    for _ in range(DRAWS):
        drawn = rng.choice(len(us), CALIBRATION, replace=False)
        rest = np.setdiff1d(np.arange(len(us)), drawn)
        fitted = calibrate(us[drawn].tolist(), [times.works[at] for at in drawn], truth[drawn].tolist())
        quotients.append(fitted(us[rest].tolist(), [times.works[at] for at in rest]) / truth[rest])
    return np.concatenate(quotients)


def _recorded(reports: Path) -> Iterator[tuple[object, ...]]:
    """This suite's records of the same matrices to each of the four GPUs, stratum by stratum, hot."""
    for folder in folders(reports, f"*/{four_gpus.EXPERIMENT}"):
        results = load(folder)
        means = four_gpus.by_gpu(results)
        mine = means[(means["kind"] == "measured") & (means["policy"] == "hot")]
        floor = float(results.frame[results.frame["policy"] == "hot"]["floor_us"].median())
        works = dict(zip(_names(), strata("sputnik").works, strict=True))
        for library, target in itertools.product(LIBRARIES, GPUS):
            theirs = means[(means["gpu"] == target) & (means["library"] == library)]
            truth = {(row.method, row.level): row.geomean_us for row in each(theirs)}
            told, lost = [], 0
            ends = (gpu(results.gpu), gpu(GPUS[target]))
            here = {(row.method, row.level): row.geomean_us for row in each(mine[mine["library"] == library])}
            both = [key for key in here if key in truth]
            if len(both) > CALIBRATION:
                names = {ends[0].name: [here[key] for key in both], target: [truth[key] for key in both]}
                times = Times(tuple(works[key] for key in both), names, {})
                quotients = _calibrated(times, ends[0].name, target).tolist()
                yield _line(RECORDS, ends[0].name, target, library, "time", CALIBRATION, quotients, 0, math.nan)
            for row in each(mine[mine["library"] == library]):
                key = (row.method, row.level)
                us = scaled(kind_of(library, "f16"), works[key], row.geomean_us, *ends, floor, floors()[target])
                if refused(us, floors()[target]):
                    lost += 1
                else:
                    told.append(us / truth[key])
            bar = WITHOUT if library == "sputnik" else math.nan
            yield _line(RECORDS, ends[0].name, target, library, "time", 0, told, lost, bar)


def _papers(reports: Path) -> Iterator[tuple[object, ...]]:
    """Records of the papers' own problems to the papers' GPUs: times, or speed-ups where they print no times."""
    frame = comparison.tabulate(reports)
    frame = frame[frame["policy"] == "hot"]
    mine = frame[frame["kind"] == "measured"]
    ours = {(r.gpu, r.experiment, r.case, r.kernel, r.math): r for r in each(mine)}
    found: dict[tuple[str, str, str, str, str], list[tuple[float, float]]] = {}
    for row in each(frame[frame["kind"] == "published"]):
        if row.gpu not in listed():
            continue
        for source in sorted(set(mine["gpu"]) & set(listed())):
            kernel = AS_PUBLISHED.get(row.kernel, row.kernel)
            here = ours.get((source, row.experiment, row.case, kernel, row.math))
            told = math.nan if here is None else _one(here, source, row.gpu)
            truth, what = row.time_us, "time"
            if math.isnan(truth):
                base_kernel, _, base_math = str(row.baseline).rpartition("-")
                base = ours.get((source, row.experiment, row.case, base_kernel, base_math))
                told = math.nan if base is None else _one(base, source, row.gpu) / told
                truth, what = row.speedup, "speed-up"
            if not math.isnan(told):
                key = (f"{row.paper}, {row.experiment}", source, row.gpu, kernel, what)
                found.setdefault(key, []).append((told, truth))
    for (data, source, target, kernel, what), pairs in found.items():
        names = gpu(source).name, gpu(target).name
        yield _line(data, *names, kernel, what, 0, [told / truth for told, truth in pairs], 0, math.nan)


def _one(row: Any, source: str, target: str) -> float:
    """A recorded time of the generations' table on another GPU; launches there cost what they cost on the source."""
    kernel, math_class = str(row.kernel), str(row.math)
    flops, moved, us = (float(getattr(row, name)) for name in ("flops", "bytes", "time_us"))
    floor = float(row.floor_us)
    work = Work(flops, moved, 1.0, 1.0, 1.0)
    return scaled(kind_of(kernel, math_class), work, us, gpu(source), gpu(target), floor, floor)


def _names() -> list[tuple[str, float]]:
    """Method and level of every stratum, in the order of `strata`."""
    return sorted({four_gpus.stratum(row.problem.name) for row in tables.rows(four_gpus.EXPERIMENT, full=True)})


def _line(
    data: str,
    source: str,
    target: str,
    kernel: str,
    what: str,
    calibration: int,
    quotients: Sequence[float],
    lost: int,
    bar: float,
) -> tuple[object, ...]:
    off = np.abs(np.asarray(quotients, dtype=np.float64) - 1)
    mean, p90 = (float(off.mean()), float(np.quantile(off, 0.9))) if off.size else (math.nan, math.nan)
    bias = geometric_mean(quotients) if off.size else math.nan
    return (data, source, target, kernel, what, calibration, int(off.size), lost, mean, p90, bias, bar)
