"""From the table of all GPUs to facts: speed-ups on each GPU, gains from one to the next, shares of their peaks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from nnzbench.core.gpus import Peaks, sheet_peaks
from nnzbench.kernels.registry import about
from nnzbench.results.result_set import each, geometric_mean, percent
from nnzbench.results.selector import MATHS
from nnzbench.results.table import KEY, facts_of_pairs
from nnzbench.site.generations.comparison import gpu_order
from nnzbench.site.generations.published import UNNAMED, collection_means

GpuKey = tuple[str, str]
"""Slug, and `measured` or `published`."""
Names = Mapping[GpuKey, str]
"""What each GPU is called, from the oldest."""
PROBLEM = ["experiment", "case", "policy"]
SPLIT_LEVELS, SPLIT_CASES = 3, 3
"""A group keeps its sparsity levels apart where there are at most so many, each with at least so many problems."""
LATER = {
    "dense": "the dense product",
    "sparse": "the sparse kernel",
    "quotient": "dense over sparse time",
    "dense sheet": "dense by data sheet",
    "sparse sheet": "sparse by data sheet",
}
"""What is told of a newer GPU over an older one: gains in time, the quotient of both, and what data sheets promise."""


@dataclass(frozen=True)
class Summary:
    """What the problems that two or more GPUs have in common say. All ratios are rows of `facts`."""

    points: pd.DataFrame
    """Rows of the baseline, of the best sparse kernel and of the one that GPUs are compared by, with `group` and
    whether they are `compared`; of problems on one GPU too."""
    facts: pd.DataFrame
    """Columns of facts.csv, and `kind` of fact (`speed-up`, `problem`, `arithmetic`, `collection`, one of `LATER`),
    `of` (the group) and the keys `gpu` and `older`."""
    shares: pd.DataFrame
    """Geometric means of shares of the peaks by group, policy, GPU and role."""
    gaps: tuple[str, ...]
    """Sentences on problems that could not be compared."""


def compare(frame: pd.DataFrame, names: Names) -> Summary:
    """Compares the rows of `comparison.tabulate`; `names` says what GPUs are called."""
    frame = frame.assign(on=" on " + frame["gpu_key"].map(names))
    points = frame[(frame["role"] != "") | frame["alike"]].copy()
    points["compared"], gaps = _comparable(points)
    points["group"] = _groups(points)
    points["cut"] = points["untuned"] != ""
    found = [*_speedups(points), *_gains(points, names), *_arithmetic(points, frame), *_collections(frame)]
    pairs = pd.concat([one for one in found if len(one)] or found)
    more = pairs.drop_duplicates(KEY)[[*KEY, "fact", "of", "gpu", "older"]]
    return Summary(points, facts_of_pairs(pairs).merge(more, on=KEY), _shares(points), tuple(gaps))


def _comparable(points: pd.DataFrame) -> tuple[pd.Series[bool], list[str]]:
    """Whether a row's problem has a like kernel on two GPUs, on one pattern and over one baseline: the newest GPU's."""
    order = gpu_order(list(points["gpu"]))
    rank = points["gpu"].map({gpu: at for at, gpu in enumerate(order)}) + len(order) * (points["kind"] == "measured")
    newest = points[rank == rank.groupby([points[name] for name in PROBLEM]).transform("max")]

    def as_newest(column: str) -> Any:
        keys = [*PROBLEM, column]
        return pd.MultiIndex.from_frame(points[keys]).isin(pd.MultiIndex.from_frame(newest[keys]))

    known = as_newest("pattern_hash") | (points["pattern_hash"] == "")
    same = known & as_newest("baseline") & points["speedup"].notna()
    gpus = points[same & points["alike"]].drop_duplicates([*PROBLEM, "gpu", "kind"]).groupby(PROBLEM).size()
    keep = same & pd.MultiIndex.from_frame(points[PROBLEM]).isin(gpus.index[gpus > 1])
    unlike = points[~known].groupby("experiment")["case"].nunique()
    gaps = [
        f"{count} problems of {experiment} were run on other patterns (real or synthetic ones) on another GPU and "
        "are not compared."
        for experiment, count in unlike.items()
    ]
    return keep, gaps


def _groups(points: pd.DataFrame) -> list[str]:
    """A name per row: the experiment, with op and arithmetic where it has several, and the levels of zeros."""
    ops = points.groupby("experiment")["op"].nunique()
    wanted = points["baseline"].str.rpartition("-")[2].where(points["baseline"] != "", points["dtype"])
    keys = list(zip(points["experiment"], points["op"], wanted, strict=True))
    levels: dict[tuple[str, str, str], dict[float, set[str]]] = {}
    chosen = points["compared"] if points["compared"].any() else pd.Series(True, index=points.index)
    for key, row, compared in zip(keys, each(points), chosen, strict=True):
        if compared:
            levels.setdefault(key, {}).setdefault(row.level, set()).add(row.case)
    names = []
    for key, level in zip(keys, points["level"], strict=True):
        experiment, op, math_class = key
        words = [experiment, op if ops[experiment] > 1 else "", "" if math_class == "f32" else math_class]
        found = levels.get(key, {})
        split = 1 < len(found) <= SPLIT_LEVELS and all(len(cases) >= SPLIT_CASES for cases in found.values())
        if split and level in found:
            words.append(percent(level))
        elif found and not split:
            words.append(_span(found))
        names.append(" ".join(word for word in words if word))
    return names


def _span(levels: Iterable[float]) -> str:
    low, high = min(levels), max(levels)
    return percent(low) if low == high else f"{100 * low:.4g}–{percent(high)}"


def _pairs(
    rows: pd.DataFrame, fact: str, us: Any, over_us: Any, subject: Any, baseline: Any, tuned: Any,
    group: Any = None, older: GpuKey | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Pairs of `table.facts_of_pairs`, of the groups and GPUs of `rows`; `older` is the GPU of the baseline where it is
    another."""
    said = {"group": rows["group"] if group is None else group, "subject": subject, "baseline": baseline}
    said |= {name: rows[name] for name in ("experiment", "policy")} | {"us": us, "over_us": over_us, "tuned": tuned}
    said |= {"fact": fact, "gpu": rows["gpu_key"], "of": rows["group"]}
    said |= {"printed": float("nan"), "one_run": older is None, "older": pd.Series([older] * len(rows), rows.index)}
    return pd.DataFrame(said, rows.index)


def _speedups(points: pd.DataFrame) -> list[pd.DataFrame]:
    """The like sparse kernel over the baseline of the same GPU: of each group, and of each problem with its kernel."""
    rows = points[points["compared"] & points["alike"]]
    baseline, tuned = rows["baseline"] + rows["on"], ~rows["speedup_untuned"]
    alone = rows["group"] + ", " + rows["case"]
    return [
        _pairs(rows, "speed-up", 1.0, rows["speedup"], "sparse" + rows["on"], baseline, tuned),
        _pairs(rows, "problem", 1.0, rows["speedup"], rows["kernel"] + rows["on"], baseline, tuned, group=alone),
    ]


def _gains(points: pd.DataFrame, names: Names) -> list[pd.DataFrame]:
    """Per group and policy, from each GPU to the next newer one with the same problems. An unnamed GPU has no age."""
    rows = points[points["compared"] & (points["gpu"] != UNNAMED)]
    keys = [key for key in names if key in set(rows["gpu_key"])]
    order = gpu_order([gpu for gpu, _ in keys])
    out: list[pd.DataFrame] = []
    for _, here in rows.groupby(["group", "policy"], sort=False):
        there = set(here.loc[here["alike"], "gpu_key"])
        for old in keys:
            for newer in order[order.index(old[0]) + 1 :]:
                new = (newer, "measured" if (newer, "measured") in keys else "published")
                if {old, new} <= there and (found := _gain(here, old, new)):
                    out += found
                    break
    return out


def _gain(rows: pd.DataFrame, old: GpuKey, new: GpuKey) -> list[pd.DataFrame]:
    """Pairs of each of `LATER`, on the problems that both GPUs have the sparse kernel of; none without any."""

    def both(chosen: pd.Series[bool]) -> pd.DataFrame:
        sides = [rows[chosen & (rows["gpu_key"] == key)].set_index("case") for key in (new, old)]
        return sides[0].join(sides[1].add_suffix("_old"), how="inner")

    sparse, dense = both(rows["alike"]), both(rows["role"] == "dense")
    if sparse.empty:
        return []
    mine = rows[(rows["role"] == "dense") & (rows["gpu_key"] == new)].set_index("case")
    mine = mine[mine.index.isin(sparse.index)]
    sheets = sheet_peaks(old[0]), sheet_peaks(new[0])

    ends = [rows.loc[rows["gpu_key"] == key, "on"].iloc[0] for key in (new, old)]

    def pairs(some: pd.DataFrame, name: str, us: Any, over_us: Any, cut: str = "") -> pd.DataFrame:
        tuned = ~(some[cut] | some[f"{cut}_old"]) if cut else True
        return _pairs(some, name, us, over_us, LATER[name] + ends[0], LATER[name] + ends[1], tuned, older=old)

    return [
        pairs(dense, "dense", dense["time_us"], dense["time_us_old"], "cut"),
        pairs(sparse, "sparse", sparse["time_us"], sparse["time_us_old"], "cut"),
        pairs(sparse, "quotient", sparse["speedup"], sparse["speedup_old"], "speedup_untuned"),
        pairs(mine, "dense sheet", _least(mine, sheets[1]), _least(mine, sheets[0])),
        pairs(sparse, "sparse sheet", _least(sparse, sheets[1]), _least(sparse, sheets[0])),
    ]


def _least(rows: pd.DataFrame, sheet: Peaks) -> list[float]:
    """Least µs by data sheet: operations at their rate or bytes of device memory, whichever is longer.

    A kernel that uses two GPUs equally well gains what their least times do, with nothing kept in L2 and launches that
    cost nothing.
    """
    return [
        max(row.flops / sheet.tflops(row.math) * 1e-6, row.bytes / sheet.bandwidth(row.bytes, "cold") * 1e-3)
        for row in each(rows[["flops", "bytes", "math"]])
    ]


def _arithmetic(points: pd.DataFrame, frame: pd.DataFrame) -> list[pd.DataFrame]:
    """The best fp32 sparse kernel over the fastest dense product in fp32, TF32 and fp16, on each measured GPU."""
    best = points[(points["role"] == "best") & (points["kind"] == "measured") & (points["math"] == "f32")]
    multiplies_all = frame["kernel"].map(lambda name: about(name).work == "dense")
    dense = frame[multiplies_all & (frame["kind"] == "measured") & frame["time_us"].notna()]
    case = ["gpu", "experiment", "case", "policy"]
    out = []
    for math_class in ("f32", "tf32", "f16"):
        some = dense[dense["math"] == math_class].groupby(case)
        fastest = some["time_us"].min().to_frame("over_us").assign(over_cut=some["untuned"].agg("".join))
        both = best.merge(fastest.reset_index(), on=case)
        ends = "best sparse fp32" + both["on"], f"fastest dense {MATHS[math_class]}" + both["on"]
        tuned = (both["untuned"] + both["over_cut"]) == ""
        out.append(_pairs(both, "arithmetic", both["time_us"], both["over_us"], *ends, tuned))
    return out


def _collections(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Sputnik over the best cuSPARSE algorithm on each measured GPU, of the sets that the paper prints one mean of."""
    out = []
    rows = frame[(frame["kind"] == "measured") & (frame["policy"] == "hot")]
    for one in each(collection_means()):
        here = rows[(rows["experiment"] == one.experiment) & (rows["op"] == one.op) & (rows["math"] == one.math)]
        ours = here[here["kernel"] == ("sputnik" if one.op == "spmm" else "sputnik_sddmm")]
        library = here.loc[here["kernel"] == "cusparse", ["gpu", "case", "time_us", "untuned"]]
        both = ours.merge(library, on=["gpu", "case"], suffixes=("", "_over")).assign(group=collection(one))
        ends, tuned = ("sputnik" + both["on"], "cuSPARSE" + both["on"]), (both["untuned"] + both["untuned_over"]) == ""
        out.append(_pairs(both, "collection", both["time_us"], both["time_us_over"], *ends, tuned))
    return out


def collection(one: Any) -> str:
    """What a line of `published.collection_means` is of."""
    return f"{one.experiment}, {one.op} {'' if one.math == 'f32' else one.math}".strip()


def _shares(points: pd.DataFrame) -> pd.DataFrame:
    """Per group, policy, GPU and role, over all problems with a time: geometric means of the shares of the peaks, how
    many problems fit into L2, and the median share of an empty kernel in the times."""
    timed = points[points["time_us"].notna() & (points["role"] != "")]
    out = []
    for (group, policy, gpu, role), rows in timed.groupby(["group", "policy", "gpu_key", "role"], sort=False):
        means = [geometric_mean(rows[f"share_of_{name}"].dropna()) for name in ("bandwidth", "flops", "limit")]
        tuned = bool((rows["untuned"] == "").all())
        fit = int((rows["bytes"] <= (sheet_peaks(str(rows["gpu"].iloc[0])).l2_bytes or math.nan)).sum())
        overhead = float((rows["floor_us"] / rows["time_us"]).median())
        out.append((group, policy, gpu, role, len(rows), *means, fit, overhead, tuned))
    columns = ["group", "policy", "gpu_key", "role", "count", "of_bandwidth", "of_flops", "of_roofline", "fit_l2"]
    columns += ["launch_overhead", "tuned"]
    return pd.DataFrame(out, columns=columns).dropna(subset=["of_bandwidth", "of_flops"], how="all")
