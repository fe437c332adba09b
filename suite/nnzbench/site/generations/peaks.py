"""What each GPU can do at most: measured beside the records, and as its vendor's data sheet has it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from nnzbench import paths
from nnzbench.plans.architectures import number
from nnzbench.records.record import RecordError


@dataclass(frozen=True)
class Ceilings:
    """Peak rates of one GPU; NaN where one is not known. Rates of products are dense, without structured sparsity."""

    bandwidth_gbs: float
    """Device memory, 1e9 bytes per second."""
    l2_gbs: float
    fp32_tflops: float
    tf32_tflops: float
    f16_tflops: float
    l2_bytes: float
    floor_hot_us: float = math.nan
    """Time of an empty kernel, which no rate shortens."""
    floor_cold_us: float = math.nan

    def tflops(self, math_class: str) -> float:
        """Peak rate of arithmetic class `f32`, `tf32`, `f16` or `bf16`."""
        return {"f32": self.fp32_tflops, "tf32": self.tf32_tflops}.get(math_class, self.f16_tflops)

    def bandwidth(self, moved: float, policy: str) -> tuple[float, str]:
        """(1e9 bytes per second, `L2` or `device`) for operands of `moved` bytes: hot ones that fit stay in L2."""
        if policy == "hot" and moved <= self.l2_bytes:
            return self.l2_gbs, "L2"
        return self.bandwidth_gbs, "device"

    def floor_us(self, policy: str) -> float:
        """Time of an empty kernel under `policy`, microseconds."""
        return {"hot": self.floor_hot_us, "cold": self.floor_cold_us}.get(policy, math.nan)


UNKNOWN = Ceilings(*[math.nan] * 6)


def measured(environment: Mapping[str, Any]) -> Ceilings:
    """The peaks that a run measured, from its snapshot."""
    found = environment.get("peaks")
    peaks = found if isinstance(found, dict) else {}

    def value(name: str) -> float:
        number = peaks.get(name)
        return float(number) if isinstance(number, int | float) else math.nan

    return Ceilings(
        bandwidth_gbs=value("copy_gbs"),
        l2_gbs=value("l2_gbs"),
        fp32_tflops=value("fp32_tflops"),
        tf32_tflops=value("tf32_tflops"),
        f16_tflops=value("f16_tflops"),
        l2_bytes=value("l2_bytes"),
        floor_hot_us=value("floor_hot_us"),
        floor_cold_us=value("floor_cold_us"),
    )


def median_of(several: Iterable[Ceilings]) -> Ceilings:
    """Each rate's median over the runs that measured it."""
    frame = pd.DataFrame([vars(one) for one in several])
    return UNKNOWN if frame.empty else Ceilings(**{str(name): float(frame[name].median()) for name in frame.columns})


@cache
def listed() -> dict[str, dict[str, Any]]:
    """The rows of `datasets/gpus.csv` by slug. Raises `RecordError` where it is missing."""
    path = paths.datasets() / "gpus.csv"
    if not path.is_file():
        raise RecordError(f"{path}: the peaks of the GPUs are missing")
    return {str(row["slug"]): {str(k): v for k, v in row.items()} for row in pd.read_csv(path).to_dict("records")}


def generation(gpu: str) -> float:
    """The number of its architecture, 90 for `sm_90`; infinity for a GPU that is not listed."""
    row = listed().get(gpu)
    return math.inf if row is None else number(row["arch"])


def data_sheet(gpu: str) -> Ceilings:
    """The vendor's rates of that slug; all NaN for a GPU that is not listed. Data sheets give no rate for L2."""
    row = listed().get(gpu)
    if row is None:
        return UNKNOWN
    return Ceilings(
        bandwidth_gbs=float(row["bandwidth_gbs"]),
        l2_gbs=math.nan,
        fp32_tflops=float(row["fp32_tflops"]),
        tf32_tflops=float(row["tf32_tflops"]),
        f16_tflops=float(row["fp16_tensor_tflops"]),
        l2_bytes=float(row["l2_mb"]) * 2**20,
    )
