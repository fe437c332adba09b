"""From the long table of all GPUs to what their comparison says: groups of problems, means, gains and shares."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from nnzbench.facts.results import each, geometric_mean, percent
from nnzbench.kernels.registry import about
from nnzbench.site.generations import peaks
from nnzbench.site.generations.comparison import gpu_order
from nnzbench.site.generations.peaks import Ceilings
from nnzbench.site.generations.published import UNNAMED

SPLIT_LEVELS, SPLIT_CASES = 3, 3
"""A group keeps its sparsity levels apart where there are at most so many, each with at least so many problems."""

MEANS = (
    "group", "policy", "gpu", "kind", "baseline", "geometric_mean", "smallest", "largest", "faster", "count", "of",
    "untuned",
)  # fmt: skip
GAINS = (
    "group", "policy", "gpu_from", "kind_from", "gpu_to", "count", "speedup_from", "speedup_to", "dense_gain",
    "sparse_gain", "dense_over_sparse", "expected_dense", "expected_sparse", "in_l2_from", "in_l2_to", "floor_of_dense",
    "floor_of_sparse", "dense_kernel", "untuned_from", "untuned_to", "untuned_dense", "untuned_sparse",
)  # fmt: skip
ARITHMETIC = ("group", "policy", "gpu", "math", "geometric_mean", "faster", "count", "untuned")
SHARES = (
    "group", "policy", "gpu", "kind", "role", "count", "share_of_bandwidth", "share_of_flops", "share_of_limit",
    "in_l2", "untuned",
)  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """What the problems that two or more GPUs have in common say. Columns: `MEANS`, `GAINS`, `ARITHMETIC`, `SHARES`.

    `untuned` and its like count the problems of a number on which a run did not tune what competes in it.
    """

    points: pd.DataFrame
    """Rows of the baseline, of the best sparse kernel and of the one that GPUs are compared by, with `group`.

    Of problems on one GPU too.
    """
    means: pd.DataFrame
    gains: pd.DataFrame
    arithmetic: pd.DataFrame
    """The best fp32 sparse kernel over the fastest dense product in fp32, TF32 and fp16, on each measured GPU."""
    shares: pd.DataFrame
    gaps: tuple[str, ...]
    """Sentences on problems that could not be compared."""


def compare(frame: pd.DataFrame) -> Comparison:
    """Compares the rows of `generations.tabulate`."""
    points = frame[(frame["role"] != "") | frame["alike"]].copy()
    points["compared"], gaps = _comparable(points)
    points["group"] = _groups(points)
    return Comparison(points, _means(points), _gains(points), _arithmetic(points, frame), _shares(points), tuple(gaps))


def _comparable(points: pd.DataFrame) -> tuple[pd.Series[bool], list[str]]:
    """Whether a row's problem has a like kernel on two GPUs, on one pattern and over one baseline."""
    keep = pd.Series(False, index=points.index)
    unlike: dict[str, set[str]] = {}
    for (experiment, case, _), rows in points.groupby(["experiment", "case", "policy"], sort=True):
        measured = rows[rows["kind"] == "measured"]
        newest = _newest(measured if len(measured) else rows)
        patterns = {"", *newest["pattern"]}
        same = rows["pattern"].isin(patterns) & rows["baseline"].isin(newest["baseline"]) & rows["speedup"].notna()
        if not rows["pattern"].isin(patterns).all():
            unlike.setdefault(str(experiment), set()).add(str(case))
        if len(rows[same & rows["alike"]][["gpu", "kind"]].drop_duplicates()) > 1:
            keep[rows.index[same]] = True
    gaps = [
        f"{len(cases)} problems of {experiment} were run on other patterns (real ones or stand-ins) on another GPU and "
        "are not compared."
        for experiment, cases in unlike.items()
    ]
    return keep, gaps


def _newest(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["gpu"] == gpu_order(list(rows["gpu"]))[-1]]


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


def _means(points: pd.DataFrame) -> pd.DataFrame:
    """Per group, policy and GPU: geometric mean speed-up of the like sparse kernel over the compared problems."""
    best = points[points["compared"] & points["alike"]]
    sizes = best.groupby(["group", "policy"])["case"].nunique()
    out = []
    for key in _keys(best, ["group", "policy", "gpu", "kind"]):
        rows = _where(best, ["group", "policy", "gpu", "kind"], key)
        values = rows["speedup"].dropna()
        spread = (values.min(), values.max(), int((values > 1).sum()), len(values), int(sizes[key[0], key[1]]))
        cut = int(rows.loc[values.index, "speedup_untuned"].sum())
        out.append((*key, rows["baseline"].iloc[0], geometric_mean(values), *spread, cut))
    return pd.DataFrame(out, columns=list(MEANS))


def _gains(points: pd.DataFrame) -> pd.DataFrame:
    """Per group and policy, from each GPU to the next newer one with the same problems. An unnamed GPU has no age."""
    rows = points[points["compared"] & (points["gpu"] != UNNAMED)]
    out = []
    for group, policy in _keys(rows, ["group", "policy"]):
        here = _where(rows, ["group", "policy"], (group, policy))
        kinds = _keys(here, ["gpu", "kind"])
        for gpu, kind in kinds:
            for newer in gpu_order([g for g, _ in kinds])[gpu_order([g for g, _ in kinds]).index(gpu) + 1 :]:
                to_kind = "measured" if (newer, "measured") in kinds else "published"
                found = _gain(here, (gpu, kind), (newer, to_kind), policy)
                if found is not None:
                    out.append((group, policy, gpu, kind, newer, *found))
                    break
    return pd.DataFrame(out, columns=list(GAINS))


def _gain(rows: pd.DataFrame, old: tuple[str, str], new: tuple[str, str], policy: str) -> tuple[Any, ...] | None:
    def of(gpu: tuple[str, str], role: str) -> pd.DataFrame:
        mine = rows["role"] == "dense" if role == "dense" else rows["alike"]
        found = rows[(rows["gpu"] == gpu[0]) & (rows["kind"] == gpu[1]) & mine]
        return found.set_index("case")

    def both(role: str) -> pd.DataFrame:
        return of(old, role).merge(of(new, role), left_index=True, right_index=True, suffixes=("_from", "_to"))

    sparse = both("alike")
    if sparse.empty:
        return None
    dense = both("dense")
    before, after = geometric_mean(sparse["speedup_from"]), geometric_mean(sparse["speedup_to"])
    sheets = peaks.data_sheet(old[0]), peaks.data_sheet(new[0])
    new_dense = of(new, "dense").loc[[case for case in sparse.index if case in of(new, "dense").index]]
    return (
        len(sparse),
        before,
        after,
        _mean_ratio(dense),
        _mean_ratio(sparse),
        before / after,
        _expected(new_dense, *sheets),
        _expected(of(new, "alike").loc[list(sparse.index)], *sheets),
        *(int((sparse["bytes_to"] <= sheet.l2_bytes).sum()) for sheet in sheets),
        _floor_share(new_dense),
        _floor_share(of(new, "alike").loc[list(sparse.index)]),
        str(sparse["baseline_to"].iloc[0]),
        *(int(sparse[f"speedup_untuned_{end}"].sum()) for end in ("from", "to")),
        *(_count(pairs["untuned_from"] + pairs["untuned_to"]) for pairs in (dense, sparse)),
    )


def _count(untuned: pd.Series[str]) -> int:
    """On how many problems there are such kernels."""
    return int((untuned != "").sum())


def _mean_ratio(pairs: pd.DataFrame) -> float:
    """Geometric mean of the old time over the new one; NaN where a paper prints no times."""
    return geometric_mean((pairs["time_us_from"] / pairs["time_us_to"]).dropna())


def _expected(rows: pd.DataFrame, old: Ceilings, new: Ceilings) -> float:
    """Geometric mean of the least times by data sheet, old over new: operations or device memory, whichever is longer.

    What a kernel would gain that uses both GPUs equally well, with nothing kept in L2 and launches that cost nothing.
    """

    def least(row: Any, ceilings: Ceilings) -> float:
        computing = float(row.flops / ceilings.tflops(row.math))
        return max(computing, float(row.bytes / ceilings.bandwidth_gbs * 1e3))

    ratios = [least(row, old) / least(row, new) for row in each(rows)]
    return geometric_mean(ratio for ratio in ratios if not math.isnan(ratio))


def _floor_share(rows: pd.DataFrame) -> float:
    """Median share of an empty kernel's time in the rows' times."""
    return float((rows["floor_us"] / rows["time_us"]).median())


def _arithmetic(points: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    best = points[(points["role"] == "best") & (points["kind"] == "measured") & (points["math"] == "f32")]
    libraries = {name for name in set(frame["kernel"]) if about(name).work == "dense"}
    dense = frame[frame["kernel"].isin(libraries) & (frame["kind"] == "measured") & frame["time_us"].notna()]
    rivals = dense.groupby(["gpu", "experiment", "case", "policy", "math"])
    fastest = rivals["time_us"].min().to_frame("rival_us").assign(rivals_untuned=rivals["untuned"].agg("".join))
    out = []
    for key in _keys(best, ["group", "policy", "gpu"]):
        mine = _where(best, ["group", "policy", "gpu"], key).set_index(["gpu", "experiment", "case", "policy"])
        for math_class in ("f32", "tf32", "f16"):
            if math_class not in fastest.index.get_level_values("math"):
                continue
            both = mine.join(fastest.xs(math_class, level="math"), how="inner")
            ratios = both["rival_us"] / both["time_us"]
            if len(ratios):
                cut = _count(both["untuned"] + both["rivals_untuned"])
                out.append((*key, math_class, geometric_mean(ratios), int((ratios > 1).sum()), len(ratios), cut))
    return pd.DataFrame(out, columns=list(ARITHMETIC))


def _shares(points: pd.DataFrame) -> pd.DataFrame:
    """Per group, policy, GPU and role, over all problems with a time: geometric means of the shares of the peaks."""
    timed = points[points["time_us"].notna() & (points["role"] != "")]
    out = []
    for key in _keys(timed, ["group", "policy", "gpu", "kind", "role"]):
        rows = _where(timed, ["group", "policy", "gpu", "kind", "role"], key)
        means = [geometric_mean(rows[f"share_of_{name}"].dropna()) for name in ("bandwidth", "flops", "limit")]
        out.append((*key, len(rows), *means, int((rows["memory"] == "L2").sum()), _count(rows["untuned"])))
    return pd.DataFrame(out, columns=list(SHARES)).dropna(subset=["share_of_bandwidth", "share_of_flops"], how="all")


def _keys(frame: pd.DataFrame, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The combinations there are, in the order of the table, GPUs from the oldest."""
    found = list(dict.fromkeys(zip(*(frame[name] for name in names), strict=True)))
    age = {gpu: at for at, gpu in enumerate(gpu_order(list(frame["gpu"])))}
    place = {name: at for at, name in enumerate(dict.fromkeys(frame["group"]))}
    policies = {"hot": 0, "cold": 1}

    def rank(key: tuple[Any, ...]) -> tuple[Any, ...]:
        order = dict(zip(names, key, strict=True))
        return tuple(
            {"group": place, "gpu": age, "policy": policies}.get(name, {}).get(value, value)
            for name, value in order.items()
        )

    return sorted(found, key=rank)


def _where(frame: pd.DataFrame, names: Sequence[str], key: Sequence[Any]) -> pd.DataFrame:
    keep = pd.Series(True, index=frame.index)
    for name, value in zip(names, key, strict=True):
        keep &= frame[name] == value
    return frame[keep]
