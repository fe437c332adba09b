"""One experiment's records on a GPU turned into another GPU's times."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from nnzbench.core.architectures import architecture
from nnzbench.core.gpus import Gpu, gpu, gpus
from nnzbench.core.plan import Unsupported
from nnzbench.kernels.registry import VendorKernel, about, kernels
from nnzbench.kernels.samples import sample_plans
from nnzbench.papers.predict import holdouts, published
from nnzbench.papers.predict.model import FEWEST, alike, bound, carried, transfer
from nnzbench.results.records.folder import folders
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import ResultSet, load
from nnzbench.results.selector import selected

KEY = ("problem", "kernel", "math", "policy")
SAME_CHIP = 0.12
"""Error bar between GPUs that differ in memory alone: nine in ten times recorded on H100 and H200 are within."""
UNJUDGED = "no times of such a kernel on several architectures are published to tell how far this is off"
COLUMNS = ("problem", "kernel", "math", "policy", "variant", "source_us", "predicted_us", "within", "how")
AS_PUBLISHED = {"cublas": "cublaslt", **dict.fromkeys(("row_stream", "ring", "sparsert", "sparsert_paper"), "sputnik")}
"""Whose published times tell how far a kernel's prediction is off that has none: the same library's, or those of the
kernel that multiplies on CUDA cores as it does."""


@dataclass(frozen=True)
class Prediction:
    """Times on the target, one row per problem, kernel, arithmetic and policy (`COLUMNS`).

    `within` is the error bar as a fraction of the time, NaN of measured times; `predicted_us` is NaN where there is
    none to tell, and `how` then says why.
    """

    source: Gpu
    target: Gpu
    rows: pd.DataFrame


def error_bar(kernel: str, math_class: str, source: Gpu, target: Gpu) -> float:
    """What nine in ten times are within, as a fraction of the time, where nothing of the target is known.

    NaN where no times of the kernel, or of one that is bound as it is, were published of several architectures; within
    one architecture the widest known in fp16 stands for it, since the same program runs there.
    """
    if (source.arch, source.sms, source.power_w) == (target.arch, target.sms, target.power_w):
        return SAME_CHIP
    known = holdouts.bars()
    named = AS_PUBLISHED.get(kernel, kernel)
    found = known.get((named, math_class), known.get((named, "f16"), math.nan) if math_class != "i8" else math.nan)
    if math.isnan(found) and source.arch == target.arch:
        return max(bar for (_, of), bar in known.items() if of == "f16")
    return found


@functools.cache
def library_factor(kernel: str, math_class: str, source: Gpu, target: Gpu) -> float:
    """By what a dense or 2:4 library's times on `target` are off beyond what data sheets say, on `source` likewise.

    From the products that others published of six GPUs: those of the GPU itself, or what the others tell of it. 1 for
    a kernel or an arithmetic without any.
    """
    named = AS_PUBLISHED.get(kernel, kernel)
    if named not in ("cublaslt", "cusparselt"):
        return 1.0
    rows = published.products(sparse=named == "cusparselt")
    rows = rows[rows["math"] == math_class]
    work = rows.drop_duplicates("problem").set_index("problem")

    def over(gpu: Gpu) -> float:
        mine = rows[rows["gpu"] == gpu.slug].drop_duplicates("problem").set_index("problem")["us"]
        us = mine if len(mine) else transfer(rows, gpu)
        least = pd.Series(bound(work, gpu), index=work.index).reindex(us.index)
        return float(np.log((us - published.GEMM_START_US).clip(lower=1.0) / least).mean())

    if rows.empty or not source.rate(math_class) or not target.rate(math_class):
        return 1.0
    return math.exp(over(target) - over(source))


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
        return "" if next(iter(sample_plans(known, arch)), None) else f"{kernel} has no plan for {arch}"
    except Unsupported as reason:
        return str(reason)


def predict(reports: Path, experiment: str, target: str, source: str | None = None) -> Prediction:
    """The experiment's times on the GPU `target` from the records of `source` (where None, of the GPU most like it).

    Where `target` has records of at least `FEWEST` problems of a kernel, they calibrate that kernel's other problems,
    and measured times stand as they are. Raises `RecordError` for a GPU that is not listed or has no records.
    """
    goal = gpu(target)
    found = [folder.parent.name for folder in folders(reports, f"*/{experiment}")]
    others = [name for name in found if name != goal.slug and name in gpus()]
    unlisted = [name for name in found if name not in gpus()]
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
    base = load(reports / max(others, key=lambda name: alike(gpus()[name], goal)) / experiment)
    measured = load(reports / goal.slug / experiment) if goal.slug in found else None
    return Prediction(gpus()[base.gpu], goal, _rows(base, measured, gpus()[base.gpu], goal))


def _rows(base: ResultSet, measured: ResultSet | None, source: Gpu, target: Gpu) -> pd.DataFrame:
    known = pd.DataFrame(columns=[*KEY, "known_us"])
    if measured is not None:
        known = selected(measured.frame).rename(columns={"median_us": "known_us"})[[*KEY, "known_us"]]
    parts = []
    for (kernel, math_class, policy), group in selected(base.frame).groupby(["kernel", "math", "policy"], sort=False):
        rows = holdouts.work_of(group).assign(problem=group["problem"])
        us, launch = rows["us"].to_numpy(float), rows["launch_us"].to_numpy(float)
        rows["predicted"] = carried(us, launch, rows, source, target, str(policy))
        rows["predicted"] *= library_factor(str(kernel), str(math_class), source, target)
        rows = rows.merge(known, on=list(KEY), how="left")
        both = rows["known_us"].notna()
        how, within = "scaled", error_bar(str(kernel), str(math_class), source, target)
        if impossible := cannot(str(kernel), str(math_class), target.arch):
            rows["predicted"], how, within = math.nan, impossible, math.nan
        elif both.sum() < FEWEST and math.isnan(within):
            rows["predicted"], how = math.nan, UNJUDGED
        elif both.sum() >= FEWEST:
            some = rows[both].assign(us=rows["known_us"])
            how, within = f"calibrated with {len(some)} problems", holdouts.left_out(some)
            rows.loc[~both, "predicted"] = holdouts.put_right(some, rows[~both])
        rows = rows.assign(source_us=rows["us"], within=within, how=how)
        rows = rows.assign(predicted_us=rows["known_us"].fillna(rows["predicted"]).replace(math.inf, math.nan))
        rows.loc[both, ["within", "how"]] = math.nan, "measured"
        parts.append(rows[list(COLUMNS)])
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS))
