"""What can't be, whoever measured it: of one row sizes, work and times that contradict one another; of all of them
rates above the GPU's data sheet, limits that its rates do not make, clocks above its highest, caches that slow a kernel
down, one problem's samples that are another's too, and patterns that their source does not have."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import pandas as pd

from nnzbench.core.gpus import Gpu, data_sheets, peaks_of
from nnzbench.core.plan import one_line
from nnzbench.data.matrices import index
from nnzbench.data.problems.experiment import WARM
from nnzbench.data.problems.problem import NETWORKS, Op, Problem, parse
from nnzbench.data.problems.sources import load_sparse
from nnzbench.results.records.record import KEY, Record
from nnzbench.results.roofline import LEAST_OF_LIMIT, impossible
from nnzbench.site.contribute.published import Matrix, matrix

Snapshots = Mapping[str, Mapping[str, Any]]
LEAST_FLOOR_US = 0.2
"""Of an empty kernel, launched by a graph: 0.5 us on an H200."""
SHEET_MARGIN = 1.2
"""A measured peak over its data sheet's number, at most: boards differ in their clocks."""
NEWER_MARGIN = 4.0
"""A peak of a GPU that is not listed over the highest of all that are."""
LIMIT_SHARE = 0.25
"""Of the least time for a row's own work: kernels that store less than CSR does have a lower limit."""
L2_CLOCK_BYTES = 64
"""What one SM reads of the L2 cache in a clock."""
MEMORY_MARGIN = 1.3
"""Of the memory that a driver tells and the one of the data sheet, the one over the other, at most."""
CLOCK_MARGIN = 1.02
BOOST_MARGIN = 1.35
"""The highest clock that a driver tells, over its data sheet's boost clock."""
HOT_OVER_COLD = 1.5
"""Of one candidate: quartile against quartile. At most 1.29 of medians on record."""
HOT_SLOWER = 1.1
FEW = 0.05
"""Share of candidates, of 20 or more, that are so much slower with a warm cache. At most 0.4 % on record."""
LONG_US = 100.0
"""Of so long a time six digits don't repeat by chance; short ones are a few steps of the clock."""
SHARED, SHARED_COLD = {"hot": 0.06}, 0.4
"""Share of rows whose three times another problem has too, by chance: 2 % hot and 17 % cold at most on record, as cold
times are a few steps of the clock."""
_CLOSE = 1e-4
"""Relative: cells have six digits."""
_RATES = ("fp32_tflops", "tf32_tflops", "f16_tflops", "l2_gbs", "copy_gbs")
_SHEETS = {
    "copy_gbs": ("bandwidth_gbs",),
    "fp32_tflops": ("fp32_tflops",),
    "tf32_tflops": ("tf32_tflops", "fp16_tensor_tflops", "fp32_tflops"),
    "f16_tflops": ("fp16_tensor_tflops", "fp32_tflops"),
}
_REGENERATED = 1 << 20
"""Most elements of a generated pattern that is made again to be compared."""
_MOST_REGENERATED = 24
_MADE = frozenset({"uniform", "equal_rows", "cov", "banded", "balanced", "nm", "block"})


def faults(rows: pd.DataFrame, snapshots: Snapshots) -> Iterator[str]:
    """All of the below, of the rows as `read_frame` gives them."""
    yield from peaks(rows, snapshots)
    yield from floors(rows, snapshots)
    yield from limits(rows, snapshots)
    yield from caches(rows)
    yield from copies(rows)


def peaks(rows: pd.DataFrame, snapshots: Snapshots) -> Iterator[str]:
    """Peaks of the snapshots against data sheets, and the highest clock."""
    timed = set(rows.loc[rows["limit_us"].notna(), "environment"])
    for name, snapshot in snapshots.items():
        found, gpu = snapshot.get("peaks") or {}, snapshot["gpu"]
        lacking = [one for one in (*_SHEETS, "l2_gbs", "floor_hot_us", "floor_cold_us") if not found.get(one)]
        if name in timed and lacking:
            yield f"the snapshot '{name}' lacks the peaks {', '.join(lacking)}, which the limits of its rows are from"
        for what, most in _most(str(gpu.get("slug"))).items():
            for told in (gpu.get(what) or 0, found.get(what) or 0):
                if told > most:
                    verb = "does" if what in _RATES else "has"
                    yield f"the snapshot '{name}' has {what} {told:g}, and no such GPU {verb} more than {most:g}"
        yield from (f"the snapshot '{name}' {other}" for other in _another(gpu))
        for policy in ("hot", "cold"):
            floor = found.get(f"floor_{policy}_us")
            if floor and floor < LEAST_FLOOR_US:
                yield f"the snapshot '{name}' has an empty kernel of {floor:g} us, and no GPU is so fast"


def _another(gpu: Mapping[str, Any]) -> Iterator[str]:
    """What in a snapshot is of another chip than the GPU that it names, where that has a data sheet."""
    sheets, margin = _sheets(str(gpu.get("slug")))
    if margin != SHEET_MARGIN:
        return
    sheet = sheets[0]
    capability = str(gpu.get("compute_capability") or "")
    if capability and f"sm_{capability.replace('.', '')}" != sheet.arch:
        yield f"is of compute capability {capability}, and {sheet.name} is {sheet.arch}"
    if gpu.get("mig"):  # a slice of it
        return
    if (sms := gpu.get("sms")) and sms != sheet.sms:
        yield f"has {sms:g} multiprocessors, and {sheet.name} {sheet.sms}"
    held = (gpu.get("memory_bytes") or 0) / 1e9 / sheet.memory_gb
    if held and not 1 / MEMORY_MARGIN < held < MEMORY_MARGIN:
        yield f"has {gpu['memory_bytes'] / 1e9:.0f} GB of memory, and {sheet.name} {sheet.memory_gb:g}"


def _sheets(slug: str) -> tuple[list[Gpu], float]:
    """The data sheet of a GPU and a margin above it; of one that is not listed, all sheets."""
    mine = data_sheets().get(slug)
    return ([mine], SHEET_MARGIN) if mine else ([*data_sheets().values()], NEWER_MARGIN)


@functools.cache
def _most(slug: str) -> Mapping[str, float]:
    """The highest believable peaks of a GPU, and of one that is listed its multiprocessors and its highest clock."""
    sheets, margin = _sheets(slug)
    most = {
        peak: margin * max(next(rate for one in names if (rate := getattr(sheet, one)) > 0) for sheet in sheets)
        for peak, names in _SHEETS.items()
    }
    cache = max(sheet.sms * sheet.clock_ghz for sheet in sheets)
    most["l2_gbs"] = margin * L2_CLOCK_BYTES * cache
    if margin == SHEET_MARGIN:
        most["sms"] = max(sheet.sms for sheet in sheets)
        most["sm_clock_max_mhz"] = BOOST_MARGIN * max(sheet.boost_mhz for sheet in sheets)
    return most


def floors(rows: pd.DataFrame, snapshots: Snapshots) -> Iterator[str]:
    """Floors in rows against those of the snapshot that the row names, which were measured once for all of them."""
    for (name, policy), some in rows.groupby(["environment", "policy"], sort=False):
        floor = peaks_of(snapshots.get(str(name), {})).floor_us(str(policy))
        if floor is not None and len(off := some[(some["floor_us"] - floor).abs() > _CLOSE * floor]):
            yield f"{name} has a {policy} floor of {floor:g} us, and its rows say {off['floor_us'].iloc[0]:g} us"


def limits(rows: pd.DataFrame, snapshots: Snapshots) -> Iterator[str]:
    """Limits against what the work of their rows takes at the peaks of their snapshot, and clocks above the highest."""
    for name, some in rows.groupby("environment", sort=False):
        snapshot = snapshots.get(str(name), {})
        found, highest = snapshot.get("peaks") or {}, snapshot.get("gpu", {}).get("sm_clock_max_mhz")
        rates = [float(found.get(rate) or 0) for rate in _RATES]
        if all(rates):
            in_cache = some["policy"].isin(WARM) & (some["bytes"] <= (found.get("l2_bytes") or 0))
            moving = some["bytes"] / np.where(in_cache, rates[3], rates[4]) * 1e-3
            least = np.maximum(some["flops"] / max(rates[:3]) * 1e-6, moving)
            low = some["limit_us"] - some["floor_us"] < LIMIT_SHARE * least - _CLOSE * some["floor_us"]
            for row in some[low].head(1).itertuples():
                yield (
                    f"the limit of {low.sum()} rows is below what their work takes at the peaks of {name}: "
                    f"{row.limit_us:g} us for {row.problem}"
                )
        clocks = some.loc[some["sm_clock_mhz"] > CLOCK_MARGIN * (highest or np.inf), "sm_clock_mhz"]
        if len(clocks):
            yield f"{len(clocks)} rows ran above the highest clock in {name}, at {clocks.iloc[0]:g} MHz"


def caches(rows: pd.DataFrame) -> Iterator[str]:
    """Times with a warm cache against those of the same candidate with a cold one, beyond noise."""
    timed, candidate = rows[rows["median_us"].notna()], list(KEY[:-1])
    cold = timed[timed["policy"] == "cold"].drop_duplicates(candidate, keep="last")
    pairs = timed[timed["policy"] == "hot"].merge(cold, on=candidate, suffixes=("", "_cold"))
    far = pairs[pairs["q1_us"] > HOT_OVER_COLD * pairs["q3_us_cold"].fillna(0)]
    for row in far.head(1).itertuples():
        yield (
            f"{len(far)} candidates are far slower hot than cold: {row.kernel} {row.variant} takes {row.median_us:g} "
            f"and {row.median_us_cold:g} us for {row.problem}"
        )
    slower = (pairs["median_us"] > HOT_SLOWER * pairs["median_us_cold"]).sum()
    if len(pairs) >= 20 and slower > FEW * len(pairs):
        yield f"{slower} of {len(pairs)} candidates are slower hot than cold"


def copies(rows: pd.DataFrame) -> Iterator[str]:
    """Medians and quartiles that several problems share to the last digit, beyond chance."""
    timed = rows[rows["median_us"].notna()]
    alike = timed.groupby(["policy", "median_us", "q1_us", "q3_us"], dropna=False)["problem"].transform("nunique") > 1
    for policy, some in timed[alike].groupby("policy", sort=False):
        long = some[some["median_us"] > LONG_US]
        chance = SHARED.get(str(policy), SHARED_COLD) * (timed["policy"] == policy).sum()
        if len(some) > max(8, chance) or len(long) > max(4, 0.01 * len(rows)):
            us = (long if len(long) else some)["median_us"].iloc[0]
            yield f"{len(some)} rows of several problems have the same median and quartiles, such as {us:g} us"


def numbers(row: Record) -> Iterator[str]:
    """Sizes, work and times that contradict one another."""
    if row.pattern_hash:
        for column in ("m", "k", "n"):
            if getattr(row, column) < 1:
                yield f"`{column}` is {getattr(row, column)}"
        elements = row.m * (row.n if row.op == "sddmm" else row.k)
        if row.nnz > elements:
            yield f"{row.nnz} nonzeros do not fit a matrix of {elements} elements"
        flops = _flops(row)
        if flops is not None and abs(row.flops - flops) > _CLOSE * flops:
            yield f"`flops` is {row.flops:g} where {row.nnz} nonzeros make {flops:g}"
    if row.median_us is None:
        return
    lacking = [name for name in ("q1_us", "q3_us", "samples", "floor_us") if getattr(row, name) is None]
    if lacking:
        yield f"there is a median, and no `{'`, `'.join(lacking)}`"
    if row.q1_us is not None and row.q3_us is not None and not row.q1_us <= row.median_us <= row.q3_us:
        yield f"the median {row.median_us:g} us is not between its quartiles {row.q1_us:g} and {row.q3_us:g}"
    if row.floor_us is not None and row.median_us < row.floor_us:
        yield f"the median {row.median_us:g} us is below the time of an empty kernel, {row.floor_us:g} us"
    if row.limit_us is not None:
        if row.floor_us is not None and row.limit_us < row.floor_us:
            yield f"the limit {row.limit_us:g} us is below the time of an empty kernel, {row.floor_us:g} us"
        if row.median_us < LEAST_OF_LIMIT * row.limit_us:
            yield impossible(row.median_us, row.limit_us)


def _flops(row: Record) -> float | None:
    """Useful operations as `records.md` defines them; None for a network or a step of one."""
    if row.op == "sparse_softmax":
        return 4.0 * row.nnz
    network = any(word in row.shape for word in ("attention", "bias_relu", *NETWORKS))
    if network or row.op == "gemm":
        return None
    return 2.0 * row.nnz * (row.k if row.op == "sddmm" else row.n)


def sources(rows: Sequence[Record]) -> Iterator[str]:
    """Patterns against the indices of the collections, and against what generates them."""
    made = [row for row in rows if row.pattern_hash]
    seen: dict[Matrix, str] = {}
    told: set[str] = set()
    again = 0
    for row in {(row.problem, row.source, row.pattern_hash, row.nnz): row for row in made}.values():
        kind, _, name = row.source.partition(":")
        if kind in ("dlmc", "weights"):
            key = matrix(row.source, row.op, row.shape)
            if seen.setdefault(key, row.pattern_hash) != row.pattern_hash and row.source not in told:
                told.add(row.source)
                yield f"{row.source} has two patterns, {seen[key]} and {row.pattern_hash}"
            yield from _indexed(row, kind, name)
        elif kind in _MADE and again < _MOST_REGENERATED and row.m * max(row.k, 1) <= _REGENERATED:
            again += 1
            yield from _generated(row)


def _indexed(row: Record, kind: str, name: str) -> Iterator[str]:
    entry: Any = index.dlmc().get(name) if kind == "dlmc" else index.weights().get(name)
    if entry is None:
        yield f"{row.source} is not in the index of that collection"
        return
    sizes = (row.m, row.n if row.op == "sddmm" else row.k)
    if sizes != (entry.rows, entry.cols):
        yield f"{row.source} is {entry.rows} x {entry.cols}, and {row.problem} has {sizes[0]} x {sizes[1]}"
    elif row.nnz != entry.nnz:
        yield f"{row.source} has {entry.nnz} nonzeros, and {row.problem} has {row.nnz}"


def _generated(row: Record) -> Iterator[str]:
    """What the source and the level in the problem's name make, made again."""
    parts = parse(row.problem)
    if parts is None or row.op not in get_args(Op):
        return
    op: Op = "sddmm" if row.op == "sddmm" else "spmm"
    level = float(parts["level"]) / 100
    try:
        matrix = load_sparse(Problem(row.experiment, row.problem, op, row.m, row.k, row.n, level, row.source))
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:  # numbers that fit no generator
        yield f"{row.source} can't be made for {row.problem} ({one_line(error)})"
        return
    if matrix.nnz != row.nnz:
        yield f"{row.source} makes {matrix.nnz} nonzeros for {row.problem}, and its rows have {row.nnz}"
    elif matrix.pattern_hash() != row.pattern_hash:
        made = matrix.pattern_hash()
        yield f"{row.source} makes the pattern {made} for {row.problem}, its rows have {row.pattern_hash}"
