"""How a time on one GPU becomes one on another.

Without a measurement on the target: what a time has above the cost of a launch is work that some resource bounds, and
it shrinks with that resource's rate. Sparse kernels on CUDA cores are bound by issue slots and by loads from L1 at
once, so their rate is the geometric mean of both; dense products by the rate of their arithmetic or by device memory,
whichever takes longer. The efficiency of each problem and kernel on the source, its imbalance and its waves, is in
the source's own time and is taken along.

With some problems measured on the target: a power law of the source's time, times powers of the problem's nonzeros,
rows and columns, which are held near 0 (ridge): two GPUs differ by their rates, which the time tells, before they
differ by how a size suits them.
"""

from __future__ import annotations

import csv
import difflib
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nnzbench import paths
from nnzbench.plans.architectures import architecture
from nnzbench.plans.plan import Unsupported
from nnzbench.records.files import gpu_among
from nnzbench.records.record import RecordError

SCHEDULERS, LANES = 4, 32
"""Of an SM: warps that issue in a clock, and threads of a warp."""


@dataclass(frozen=True)
class Gpu:
    """Rates of one GPU by its data sheet, at its boost clock."""

    slug: str
    name: str
    arch: str
    sms: int
    clock_ghz: float
    fp32_tflops: float
    f16_tflops: float
    """Of tensor cores; NaN-free: 0 where there are none."""
    bandwidth_gbs: float

    @property
    def issue(self) -> float:
        """Instructions of a lane per nanosecond that its schedulers can issue."""
        return self.sms * SCHEDULERS * LANES * self.clock_ghz

    @property
    def l1(self) -> float:
        """Bytes per nanosecond that its SMs can load from L1 cache or shared memory."""
        return self.sms * architecture(self.arch).l1_clock_bytes * self.clock_ghz


@functools.cache
def listed() -> dict[str, Gpu]:
    """The GPUs of `datasets/gpus.csv` that the table of architectures has, by slug."""
    found = {}
    with (paths.datasets() / "gpus.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            try:
                architecture(row["arch"])
            except Unsupported:  # older than what kernels here are made for
                continue
            rates = [float(row[name] or 0) for name in ("fp32_tflops", "fp16_tensor_tflops", "bandwidth_gbs")]
            clock = float(row["boost_mhz"]) / 1e3
            found[row["slug"]] = Gpu(row["slug"], row["name"], row["arch"], int(row["sms"]), clock, *rates)
    return found


def gpu(name: str) -> Gpu:
    """The GPU of that slug, or the one whose slug has all of its words. Raises `RecordError` naming those there are."""
    known = listed()
    if found := gpu_among(name, known):
        return known[found]
    near = difflib.get_close_matches(name.lower(), known, 3)
    meant = f" (did you mean {' or '.join(near)}?)" if near else ""
    raise RecordError(f"no GPU '{name}' in datasets/gpus.csv: choose from {', '.join(known)}{meant}")


Kind = Literal["sparse", "dense_f32", "dense_f16"]
"""What bounds a kernel: CUDA cores and loads, or a dense product in one arithmetic."""
FLOORS = 3.0
"""A time below so many costs of a launch is mostly launch: what work does there is not predicted."""
FEWEST = 8
"""Calibration problems from which on a fit is tried."""
RIDGE = 0.5
"""Weight that holds the powers of sizes near 0. Any from 0.3 to 1 serves the published times of four GPUs alike; much
less takes noise for a law, much more leaves a power law of the time."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Work:
    """What one launch does, for the resources that may bound it."""

    flops: float
    """Executed, zeros included."""
    bytes: float
    """Moved once."""
    nnz: float
    rows: float
    columns: float
    """Of the sparse matrix."""


def slower(kind: Kind, work: Work, source: Gpu, target: Gpu) -> float:
    """By what the work's share of a time is multiplied from `source` to `target`."""
    if kind == "sparse":
        return math.sqrt(source.issue / target.issue * source.l1 / target.l1)

    def bound(gpu: Gpu) -> float:
        rate = gpu.fp32_tflops if kind == "dense_f32" else gpu.f16_tflops
        arithmetic = work.flops / (rate * 1e6) if rate else math.inf
        return max(arithmetic, work.bytes / (gpu.bandwidth_gbs * 1e3))

    return bound(target) / bound(source)


def scaled(
    kind: Kind, work: Work, us: float, source: Gpu, target: Gpu, source_floor_us: float, target_floor_us: float
) -> float:
    """Microseconds on `target`, nothing measured there but the cost of a launch."""
    return max(us - source_floor_us, 0.0) * slower(kind, work, source, target) + target_floor_us


def refused(us: float, floor_us: float) -> bool:
    """Whether a predicted time is too near the cost of a launch to be told."""
    return us < FLOORS * floor_us


@dataclass(frozen=True)
class Fitted:
    """A calibrated prediction."""

    weights: Floats
    centre: Floats
    offset: float
    error: float
    """Mean relative error of the calibration problems, each left out in turn."""

    def __call__(self, us: Sequence[float], works: Sequence[Work]) -> Floats:
        """Microseconds on the target, from those on the source."""
        predicted: Floats = np.exp((_features(us, works) - self.centre) @ self.weights + self.offset)
        return predicted


def calibrate(us: Sequence[float], works: Sequence[Work], measured_us: Sequence[float]) -> Fitted:
    """The law fitted to problems measured on both GPUs.

    Raises ValueError for fewer than `FEWEST` problems.
    """
    if len(us) < FEWEST:
        raise ValueError(f"{len(us)} calibration problems are too few: {FEWEST} at least")
    features, target = _features(us, works), np.log(np.asarray(measured_us, dtype=np.float64))
    weights, centre, offset = _solve(features, target)
    left = []
    for at in range(len(target)):
        rest = np.arange(len(target)) != at
        w, c, o = _solve(features[rest], target[rest])
        left.append(abs(math.expm1(float((features[at] - c) @ w) + o - float(target[at]))))
    return Fitted(weights, centre, offset, float(np.mean(left)))


def _features(us: Sequence[float], works: Sequence[Work]) -> Floats:
    rows = [(t, work.nnz, work.rows, work.columns) for t, work in zip(us, works, strict=True)]
    return np.log(np.asarray(rows, dtype=np.float64))


def _solve(features: Floats, target: Floats) -> tuple[Floats, Floats, float]:
    """Least squares in logarithms; the weight of the time (the first feature) is free."""
    centre = features.mean(axis=0)
    centred = features - centre
    gram = centred.T @ centred + np.diag([1e-6, RIDGE, RIDGE, RIDGE])
    return np.linalg.solve(gram, centred.T @ (target - target.mean())), centre, float(target.mean())
