"""What the prediction knows of a GPU: rates from its data sheet and its architecture, none of them fitted."""

from __future__ import annotations

import csv
import difflib
import functools
from dataclasses import dataclass

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
