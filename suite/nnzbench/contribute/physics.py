"""What no GPU does, whoever measured it: rates above its data sheet, limits that its rates do not make, clocks above
its highest, caches that slow a kernel down, and one problem's samples that are another's too."""

from __future__ import annotations

import csv
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nnzbench import paths
from nnzbench.measure.roofline import peaks_of
from nnzbench.records.record import Key, Record

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


def faults(rows: Sequence[Record], snapshots: Snapshots) -> Iterator[str]:
    """All of the below."""
    yield from peaks(rows, snapshots)
    yield from floors(rows, snapshots)
    yield from limits(rows, snapshots)
    yield from caches(rows)
    yield from copies(rows)


def peaks(rows: Sequence[Record], snapshots: Snapshots) -> Iterator[str]:
    """Peaks of the snapshots against data sheets, and the highest clock."""
    timed = {row.environment for row in rows if row.limit_us is not None}
    for name, snapshot in snapshots.items():
        found, gpu = snapshot.get("peaks") or {}, snapshot["gpu"]
        lacking = [one for one in (*_SHEETS, "l2_gbs", "floor_hot_us", "floor_cold_us") if not found.get(one)]
        if name in timed and lacking:
            yield f"the snapshot '{name}' lacks the peaks {', '.join(lacking)}, which the limits of its rows are from"
        for peak, most in _most(str(gpu.get("slug"))).items():
            if (value := found.get(peak)) and value > most:
                yield f"the snapshot '{name}' has {peak} {value:g}, and no such GPU does more than {most:g}"
        for what, most in _chip(str(gpu.get("slug"))).items():
            for told in (gpu.get(what) or 0, found.get(what) or 0):
                if told > most:
                    yield f"the snapshot '{name}' has {what} {told:g}, and no such GPU has more than {most:g}"
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
    if capability and f"sm_{capability.replace('.', '')}" != sheet["arch"]:
        yield f"is of compute capability {capability}, and {sheet['name']} is {sheet['arch']}"
    if gpu.get("mig"):  # a slice of it
        return
    if (sms := gpu.get("sms")) and sms != int(sheet["sms"]):
        yield f"has {sms:g} multiprocessors, and {sheet['name']} {sheet['sms']}"
    held = (gpu.get("memory_bytes") or 0) / 1e9 / float(sheet["memory_gb"])
    if held and not 1 / MEMORY_MARGIN < held < MEMORY_MARGIN:
        yield f"has {gpu['memory_bytes'] / 1e9:.0f} GB of memory, and {sheet['name']} {sheet['memory_gb']}"


def _sheets(slug: str) -> tuple[list[dict[str, str]], float]:
    """The data sheet of a GPU and a margin above it; of one that is not listed, all sheets."""
    with (paths.datasets() / "gpus.csv").open(newline="", encoding="utf-8") as file:
        sheets = list(csv.DictReader(file))
    mine = [sheet for sheet in sheets if sheet["slug"] == slug]
    return (mine, SHEET_MARGIN) if mine else (sheets, NEWER_MARGIN)


@functools.cache
def _chip(slug: str) -> Mapping[str, float]:
    """The most multiprocessors and the highest clock of a GPU that is listed."""
    sheets, margin = _sheets(slug)
    if margin != SHEET_MARGIN:
        return {}
    clock = BOOST_MARGIN * max(float(sheet["boost_mhz"]) for sheet in sheets)
    return {"sms": max(int(sheet["sms"]) for sheet in sheets), "sm_clock_max_mhz": clock}


@functools.cache
def _most(slug: str) -> Mapping[str, float]:
    """The highest believable peaks of a GPU."""
    mine, margin = _sheets(slug)
    most = {
        peak: margin * max(float(next(sheet[one] for one in names if sheet[one])) for sheet in mine)
        for peak, names in _SHEETS.items()
    }
    cache = max(int(sheet["sms"]) * float(sheet["boost_mhz"]) * 1e-3 for sheet in mine)
    return {**most, "l2_gbs": margin * L2_CLOCK_BYTES * cache}


def floors(rows: Sequence[Record], snapshots: Snapshots) -> Iterator[str]:
    """Floors in rows against those of the snapshot that the row names, which were measured once for all of them."""

    def known(row: Record) -> float | None:
        found: float | None = peaks_of(snapshots.get(row.environment, {})).floor_us(row.policy)
        return found

    def differs(row: Record) -> bool:
        floor = known(row)
        return floor is not None and row.floor_us is not None and abs(row.floor_us - floor) > _CLOSE * floor

    for (name, policy), (row, _) in _worst(rows, lambda row: (row.environment, row.policy), differs):
        yield f"{name} has a {policy} floor of {known(row):g} us, and its rows say {row.floor_us:g} us"


def _peaks(snapshots: Snapshots, row: Record) -> Mapping[str, Any]:
    found: Mapping[str, Any] = snapshots.get(row.environment, {}).get("peaks") or {}
    return found


def limits(rows: Sequence[Record], snapshots: Snapshots) -> Iterator[str]:
    """Limits against what the work of their rows takes at the peaks of their snapshot, and clocks above the highest."""

    def too_low(row: Record) -> bool:
        found = _peaks(snapshots, row)
        rates = [float(found.get(name) or 0) for name in _RATES]
        if row.limit_us is None or row.floor_us is None or not all(rates):
            return False
        in_cache = row.policy == "hot" and row.bytes <= (found.get("l2_bytes") or 0)
        least = max(row.flops / max(rates[:3]) * 1e-6, row.bytes / (rates[3] if in_cache else rates[4]) * 1e-3)
        return row.limit_us - row.floor_us < LIMIT_SHARE * least - _CLOSE * row.floor_us

    def too_quick(row: Record) -> bool:
        highest = snapshots.get(row.environment, {}).get("gpu", {}).get("sm_clock_max_mhz")
        return bool(highest) and row.sm_clock_mhz is not None and row.sm_clock_mhz > CLOCK_MARGIN * highest

    for _, (row, count) in _worst(rows, lambda row: row.environment, too_low):
        yield (
            f"the limit of {count} rows is below what their work takes at the peaks of {row.environment}: "
            f"{row.limit_us:g} us for {row.problem}"
        )
    for _, (row, count) in _worst(rows, lambda row: row.environment, too_quick):
        yield f"{count} rows ran above the highest clock in {row.environment}, at {row.sm_clock_mhz:g} MHz"


def _worst(
    rows: Sequence[Record], key: Callable[[Record], Any], wrong: Callable[[Record], bool]
) -> Iterator[tuple[Any, tuple[Record, int]]]:
    """The first wrong row of each key, and how many there are."""
    found: dict[Any, list[Record]] = defaultdict(list)
    for row in rows:
        if wrong(row):
            found[key(row)].append(row)
    for name, some in found.items():
        yield name, (some[0], len(some))


def caches(rows: Sequence[Record]) -> Iterator[str]:
    """Times with a warm cache against those of the same candidate with a cold one, beyond noise."""
    timed = [row for row in rows if row.median_us is not None]
    cold: dict[Key, Record] = {row.key[:-1]: row for row in timed if row.policy == "cold"}
    pairs = [(row, cold[row.key[:-1]]) for row in timed if row.policy == "hot" and row.key[:-1] in cold]
    far = [(hot, it) for hot, it in pairs if (hot.q1_us or 0) > HOT_OVER_COLD * (it.q3_us or 0)]
    if far:
        hot, it = far[0]
        yield (
            f"{len(far)} candidates are far slower hot than cold: {hot.kernel} {hot.variant} takes {hot.median_us:g} "
            f"and {it.median_us:g} us for {hot.problem}"
        )
    slower = sum((hot.median_us or 0) > HOT_SLOWER * (it.median_us or 0) for hot, it in pairs)
    if len(pairs) >= 20 and slower > FEW * len(pairs):
        yield f"{slower} of {len(pairs)} candidates are slower hot than cold"


def copies(rows: Sequence[Record]) -> Iterator[str]:
    """Medians and quartiles that several problems share to the last digit, beyond chance."""
    same: dict[tuple[object, ...], list[Record]] = defaultdict(list)
    timed = Counter(row.policy for row in rows if row.median_us is not None)
    for row in rows:
        if row.median_us is not None:
            same[row.policy, row.median_us, row.q1_us, row.q3_us].append(row)
    shared: dict[str, list[Record]] = defaultdict(list)
    for some in same.values():
        if len({row.problem for row in some}) > 1:
            shared[some[0].policy] += some
    for policy, some in shared.items():
        long = [row for row in some if (row.median_us or 0) > LONG_US]
        if len(some) > max(8, SHARED.get(policy, SHARED_COLD) * timed[policy]) or len(long) > max(4, 0.01 * len(rows)):
            us = f"{(long or some)[0].median_us:g} us"
            yield f"{len(some)} rows of several problems have the same median and quartiles, such as {us}"
