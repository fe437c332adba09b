"""One experiment's records on a GPU turned into another GPU's times."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from nnzbench.facts.results import ResultSet, each, load
from nnzbench.facts.selector import standing
from nnzbench.kernels.registry import VendorKernel, about, kernels
from nnzbench.kernels.samples import PlanLister
from nnzbench.plans.architectures import architecture
from nnzbench.plans.plan import Unsupported
from nnzbench.predict.model import FEWEST, Fitted, Gpu, Kind, Work, calibrate, gpu, listed, refused, scaled
from nnzbench.records.files import folders
from nnzbench.records.record import RecordError

COLUMNS = ("problem", "kernel", "math", "policy", "variant", "source_us", "predicted_us", "how", "floor_us")
TOO_SHORT = "too near the cost of a launch"
NEVER_FLOOR_US = 3.0
"""Cost of a launch taken for a GPU that nobody measured: nearer none, hot launches in a graph, are known below 0.5 us
and, cold between two events, above 3 us; the larger one refuses more."""


@dataclass(frozen=True)
class Prediction:
    """Times on the target, one row per problem, kernel, arithmetic and policy (`COLUMNS`).

    NaN where there is none to tell, and `how` then says why.
    """

    source: Gpu
    target: Gpu
    rows: pd.DataFrame


def kind_of(kernel: str, math_class: str) -> Kind:
    """What bounds the kernel's times."""
    if about(kernel).work != "dense":
        return "sparse"
    return "dense_f32" if math_class == "f32" else "dense_f16"


def work_of(row: Any) -> Work:
    """Of a record or a row of a frame with its columns; a dense kernel executes the zeros too."""
    m, k, n = (float(getattr(row, name)) for name in ("m", "k", "n"))
    nnz = max(float(row.nnz), 1.0)
    dense = about(str(row.kernel)).work == "dense"
    return Work(2.0 * (m * k if dense else nnz) * n, float(row.bytes), nnz, m, k)


@functools.cache
def cannot(kernel: str, math_class: str, arch: str) -> str:
    """Why the kernel has no such time on `arch`, empty where nothing speaks against one."""
    target = architecture(arch)
    if math_class in ("tf32", "bf16") and not target.has(f"mma_{math_class}"):
        return f"{arch} has no tensor cores of {math_class}"
    if about(kernel).pattern == "2:4" and not target.has("mma_sparse"):
        return f"{arch} has no tensor cores of 2:4 sparsity"
    known = kernels().get(kernel)
    if known is None or isinstance(known, VendorKernel):
        return ""
    try:
        return "" if next(iter(PlanLister().plans(known, arch)), None) else f"{kernel} has no plan for {arch}"
    except Unsupported as reason:
        return str(reason)


def predict(reports: Path, experiment: str, target: str, source: str | None = None) -> Prediction:
    """The experiment's times on the GPU `target` from the records of `source` (the only other GPU, where None).

    Where `target` has records of at least `FEWEST` problems of a kernel, they calibrate that kernel's other problems,
    and measured times stand as they are. Raises `RecordError` for a GPU that is not listed or has no records.
    """
    goal = gpu(target)
    found = [folder.parent.name for folder in folders(reports, f"*/{experiment}")]
    others = [name for name in found if name != goal.slug and name in listed()]
    unlisted = [name for name in found if name not in listed()]
    if source is not None:
        asked = gpu(source).slug
        if asked not in others:
            there = f"there are some of {', '.join(others)}" if others else "there are none of another GPU"
            raise RecordError(
                f"{asked} has no records of {experiment} in {reports} to predict {goal.slug} from: {there}"
            )
        others = [asked]
    if not others:
        there = (
            f" (there are some of {', '.join(unlisted)}: no GPU whose rates datasets/gpus.csv has)" if unlisted else ""
        )
        raise RecordError(
            f"{reports} has no records of {experiment} on another GPU than {goal.slug} to predict from{there}"
        )
    if len(others) > 1:
        raise RecordError(f"{experiment} is recorded on {', '.join(others)}: say which one with --from")
    base = load(reports / others[0] / experiment)
    measured = load(reports / goal.slug / experiment) if goal.slug in found else None
    return Prediction(gpu(others[0]), goal, _rows(base, measured, gpu(others[0]), goal))


def _rows(base: ResultSet, measured: ResultSet | None, source: Gpu, target: Gpu) -> pd.DataFrame:
    rows = standing(base.frame)
    known = _times(standing(measured.frame)) if measured is not None else {}
    floors = {} if measured is None else dict(standing(measured.frame).groupby("policy")["floor_us"].median())
    out = []
    for (kernel, math_class, policy), group in rows.groupby(["kernel", "math", "policy"], sort=False):
        mine = list(each(group))
        target_floor = float(floors.get(policy, NEVER_FLOOR_US))
        fitted = _fitted(mine, known)
        impossible = cannot(str(kernel), str(math_class), target.arch)
        for row in mine:
            floor = 0.0 if pd.isna(row.floor_us) else float(row.floor_us)
            kind = kind_of(str(kernel), str(math_class))
            if (time := known.get(_key(row))) is not None:
                us, how = time, "measured"
            elif impossible:
                us, how = math.nan, impossible
            elif fitted is not None:
                us = float(fitted([row.median_us], [work_of(row)])[0])
                how = f"calibrated (off by {100 * fitted.error:.0f} % where left out)"
            else:
                us = scaled(kind, work_of(row), row.median_us, source, target, floor, target_floor)
                how = "scaled"
            if how != "measured" and not math.isnan(us) and refused(us, target_floor):
                us, how = math.nan, TOO_SHORT
            out.append((*_key(row), row.variant, row.median_us, us, how, target_floor))
    return pd.DataFrame(out, columns=list(COLUMNS))


def _key(row: Any) -> tuple[str, str, str, str]:
    problem, kernel, math_class, policy = (str(getattr(row, name)) for name in ("problem", "kernel", "math", "policy"))
    return problem, kernel, math_class, policy


def _times(frame: pd.DataFrame) -> dict[tuple[str, str, str, str], float]:
    return {_key(row): float(row.median_us) for row in each(frame)}


def _fitted(rows: list[Any], known: dict[tuple[str, str, str, str], float]) -> Fitted | None:
    both = [row for row in rows if _key(row) in known]
    if len(both) < FEWEST:
        return None
    times = [float(row.median_us) for row in both]
    return calibrate(times, [work_of(row) for row in both], [known[_key(row)] for row in both])
