"""The one place that divides times: from records to rows of `facts.csv`.

Each row is a ratio, the baseline's time over the subject's: above 1 the subject is faster.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnzbench.core import paths
from nnzbench.results.data import Data, least_tuned
from nnzbench.results.groups import ALL, Group
from nnzbench.results.records.record import FLOORS, apart
from nnzbench.results.selector import Selector, rows_of

FILE = "facts.csv"
APART = 0.02
"""Share by which the SM clocks of a pair differ, or by which its empty launches change its ratio, from which on that is
of the machines, too."""
RESAMPLES = 2000
"""Bootstrap samples of each interval; their seed is fixed."""
UNITS = {"n": " columns", "level": " % zeros"}


class Fact(NamedTuple):
    """One ratio; the columns of `facts.csv`, in its order."""

    experiment: str
    group: str
    """The problems, in words."""
    subject: str
    baseline: str
    policy: str
    n: int
    """Problems (cases) that have both times."""
    wins: int
    """Of them, those on which the subject is faster."""
    ratio: float
    """Baseline's time over subject's: geometric mean over the problems, unless `group` names another statistic."""
    low: float
    """95 % bootstrap interval over the problems; `ratio` itself for one problem, or a ratio of sums."""
    high: float
    worst: float
    """Least ratio of a problem."""
    best: float
    tuned: bool
    """Whether every kernel that competes on either side was tuned on all these problems."""
    one_run: bool
    """Whether both times of every pair are of one commit on one GPU."""


COLUMNS = list(Fact._fields)
KEY = ["experiment", "group", "subject", "baseline", "policy"]


@dataclass(frozen=True)
class Comparison:
    """Every subject over every baseline, in every group; `by` attributes of `Data.problems` split each group."""

    subjects: tuple[Selector, ...]
    baselines: tuple[Selector, ...]
    groups: tuple[Group, ...] = (ALL,)
    by: tuple[str, ...] = ()
    """Such as `("n", "level")`: a row for each pair of values; `("stem",)`: a row for each problem."""
    same_variant: tuple[Selector, ...] = ()
    """Of `baselines`, those taken at the variant that is the subject's own fastest, as where a part is left out."""


def attribute(name: str) -> str:
    """The column of `compare` that holds an attribute: `n`, the columns of a product, gives way to a fact's count."""
    return "columns" if name == "n" else name


def compare(data: Data, asked: Comparison) -> pd.DataFrame:
    """The facts of a comparison, with the attributes `by` as further columns; none for what has no pair of times.

    `apart`: of how many pairs clocks or empty launches differ by `APART` and more.
    """
    found: list[dict[str, Any]] = []
    for group in asked.groups:
        side = _sides(data, group)
        for subject in asked.subjects:
            below = side(subject, by=asked.by)
            for baseline, policy in itertools.product(asked.baselines, data.policies):
                like = subject if baseline in asked.same_variant else None
                over = side(baseline, like, baseline=True)
                if subject == baseline or policy not in below or policy not in over:
                    continue
                pairs = _paired(group, below[policy], over[policy])
                named = {"subject": subject.label, "baseline": baseline.label, "policy": policy}
                found += [{**one, **named} for one in _rows(group, pairs, asked.by)]
    facts = pd.DataFrame(found, columns=[*map(attribute, asked.by), *COLUMNS[1:], "apart"])
    facts.insert(0, "experiment", data.results.experiment)
    return facts


def pairs(data: Data, subjects: Sequence[Selector], baselines: Sequence[Selector]) -> pd.DataFrame:
    """The ratios of single problems, without more: what `compare` has by `problem`, for many selectors at once.

    One row per problem, policy, subject and baseline: those, stem, ratio, tuned, one_run, `kernel` and `median_us` of
    the subject and the same of the baseline (`over_kernel`, `over_us`). A subject over itself is 1.
    """
    keys = ["stem", "policy"]
    names = [*keys, "kernel", "median_us", "run", "tuned"]
    mine = pd.concat([data.times(one)[["problem", *names]].assign(subject=one.label) for one in subjects])
    theirs = pd.concat([least_tuned(data.times(one)[names], keys).assign(baseline=one.label) for one in baselines])
    theirs = theirs.rename(columns={name: f"over_{name}" for name in names[2:]})
    found = mine.merge(theirs, on=keys).rename(columns={"over_median_us": "over_us"})
    return found.assign(
        ratio=found["over_us"] / found["median_us"],
        tuned=found["tuned"].astype(bool) & found["over_tuned"].astype(bool),
        one_run=found["run"] == found["over_run"],
    ).drop(columns=["run", "over_run", "over_tuned"])


def divide(pairs: pd.DataFrame) -> pd.DataFrame:
    """Pairs of times with their `ratio`: `over_us` over `us`, or `printed` where a source prints no times."""
    return pairs.assign(ratio=(pairs["over_us"] / pairs["us"]).fillna(pairs["printed"]))


def facts_of_pairs(pairs: pd.DataFrame, group: Group = ALL) -> pd.DataFrame:
    """Facts of pairs of times that no one experiment has: of two GPUs, or of a paper.

    `pairs`: a row per pair with the columns `KEY`, `us`, `over_us`, `printed`, `tuned` and `one_run`. Facts are in the
    order of their first pairs; pairs without a ratio count for nothing. Of a `group` by matrices, `source` says which;
    of one that is counted, `count` how often.
    """
    known = divide(pairs).dropna(subset=["ratio"])
    rows = [dict(zip(KEY, key, strict=True)) | _statistics(group, some) for key, some in known.groupby(KEY, sort=False)]
    return pd.DataFrame(rows, columns=COLUMNS)


def tuning_gains(frame: pd.DataFrame) -> pd.DataFrame:
    """What tuning gained on the problems of an experiment where it was done, of kernels that it was not done with on
    others: columns kernel, math, policy, n and `gain`, the geometric mean of the fastest untuned time over the fastest.
    """
    timed = frame[frame["median_us"].notna() & ~frame["superseded"]]
    key = ["kernel", "math", "policy"]
    cut = timed.loc[timed["cut_short"] != "", key].drop_duplicates()
    whole = timed[timed["cut_short"] == ""].merge(cut, on=key)
    first = whole[whole["untuned"].astype(bool)].groupby([*key, "problem"])["median_us"].min().reset_index()
    best = whole.groupby([*key, "problem"])["median_us"].min().reset_index(name="best_us")
    both = first.merge(best, on=[*key, "problem"])
    gains = both.assign(log=np.log(both["median_us"] / both["best_us"])).groupby(key)["log"]
    return gains.agg(n="size", gain="mean").transform({"n": int, "gain": np.exp}).reset_index()


def write(facts: pd.DataFrame, folder: Path) -> Path:
    """Writes `facts.csv`, with the same six digits on every machine."""
    paths.write_csv(facts, folder / FILE)
    return folder / FILE


def ideal_us(dense_us: Any, zeros: Any, overhead_us: Any) -> Any:
    """Equation 9 of Balanced Sparsity: the overhead, and of the rest of the dense time the share of what is kept.

    Numbers or columns; `zeros` from 0 to 1.
    """
    return (dense_us - overhead_us) * (1 - zeros) + overhead_us


def _sides(data: Data, group: Group) -> Callable[..., dict[str, pd.DataFrame]]:
    """`data.fastest` of the group, parts that are added as one case; each side once, however many it is set against."""

    @functools.cache
    def fastest(*side: Any, **choice: Any) -> dict[str, pd.DataFrame]:
        found = data.fastest(group, *side, **choice)
        return {policy: _whole(group, rows) for policy, rows in found.items()} if group.parts else found

    return fastest


def _paired(group: Group, below: pd.DataFrame, above: pd.DataFrame) -> pd.DataFrame:
    """One row a pair, with `over_us`, `ratio`, `tuned`, `one_run` and the subject's attributes."""
    if not group.parts and (group.baseline_like or (group.statistic == "total" and not group.cases)):
        if group.baseline_like in ("", group.like) and set(below.index) != set(above.index):
            return pd.DataFrame()
        below, above = _summed(group, below), _summed(group, above)
    place = above.index.get_indexer(below.index)
    there = place >= 0
    if group.ideal:
        there &= below["floor_us"].notna().to_numpy()
    if not there.all():
        below, place = below[there], place[there]

    def over(name: str, kind: type) -> Any:
        return above[name].to_numpy(kind)[place]

    us, over_us = below["median_us"].to_numpy(float), over("median_us", float)
    if group.ideal:
        over_us = ideal_us(over_us, below["sparsity"].to_numpy(float), below["floor_us"].to_numpy(float))
    runs = below["run"].to_numpy(object)
    clocks = apart(below["sm_clock_mhz"].to_numpy(float), over("sm_clock_mhz", float), APART)
    floors = below["floor_us"].to_numpy(float), over("floor_us", float)
    shifted = np.abs(floors[0] - floors[1]) > APART * np.minimum(us, over_us)
    return below.assign(
        over_median_us=over_us,
        ratio=over_us / us,
        tuned=below["tuned"].to_numpy(bool) & over("tuned", bool),
        one_run=(runs == over("run", object)) & (runs != ""),
        apart=clocks | (shifted & apart(*floors, FLOORS)),
    )


def _summed(group: Group, rows: pd.DataFrame) -> pd.DataFrame:
    """All of a side as one case, each problem as often as its table says where the group counts."""
    us = rows["median_us"] * (rows["count"] if group.counted else 1)
    return _added(rows.assign(median_us=us).reset_index(drop=True).assign(case="all"))


def _whole(group: Group, rows: pd.DataFrame) -> pd.DataFrame:
    """Sums over the parts by how their labels begin, where all have a time."""
    named = [group.part(str(label)) or ("", "") for label in rows["label"]]
    rows = rows.reset_index(drop=True).assign(case=[case for case, _ in named], part=[part for _, part in named])
    rows = rows[rows["part"] != ""].sort_values("median_us", kind="stable").drop_duplicates(["case", "part"])
    return _added(rows[rows.groupby("case")["part"].transform("size") == len(group.parts)])


def _added(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each `case` as one of that name: the sum of their times."""
    if rows.empty:
        return rows
    cases = rows.groupby("case")
    one_run = cases["run"].nunique(dropna=False) == 1
    us, tuned = cases["median_us"].agg(math.fsum), cases["tuned"].all()
    whole = rows.drop_duplicates("case").set_index("case").sort_index()
    return whole.assign(median_us=us, tuned=tuned, count=1, run=whole["run"].where(one_run, ""))


def _rows(group: Group, pairs: pd.DataFrame, by: Sequence[str]) -> list[dict[str, Any]]:
    """Facts of the pairs, all together or by their attributes."""
    if pairs.empty:
        return []
    if not by:
        return [{"group": group.label, **_statistics(group, pairs)}]
    if not pairs.duplicated(list(by)).any():
        return _alone(group, pairs, by)
    parts = [
        (dict(zip(by, values, strict=True)), some) for values, some in pairs.groupby(list(by), sort=False, dropna=False)
    ]
    return [{**_named(group, values), **_statistics(group, some)} for values, some in parts]


def _alone(group: Group, pairs: pd.DataFrame, by: Sequence[str]) -> list[dict[str, Any]]:
    """The same where every problem stands alone."""
    ratio = pairs["ratio"]
    ends = dict.fromkeys(("low", "high", "worst", "best"), ratio)
    rows = pairs[[*by, "ratio", "tuned", "one_run", "apart"]].assign(wins=(ratio > 1).astype(int), **ends)
    found: list[dict[str, Any]] = rows.to_dict("records")  # type: ignore[assignment]
    return [{**one, **_named(group, {name: one[name] for name in by}), "n": 1} for one in found]


def _named(group: Group, values: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes, and `group` in words: `16 columns`, `90 % zeros`, or the value as it is."""
    words = [f"{one:g}" if isinstance(one, float) or name in UNITS else str(one) for name, one in values.items()]
    words = [word + UNITS.get(name, "") for name, word in zip(values, words, strict=True)]
    label = ", ".join([group.label] * (group != ALL) + words)
    return {**{attribute(name): value for name, value in values.items()}, "group": label}


def _statistics(group: Group, pairs: pd.DataFrame) -> dict[str, Any]:
    ratios = pairs["ratio"].to_numpy(float)
    weights = pairs["count"].to_numpy(float) if group.counted else np.ones(len(ratios))
    if group.statistic == "total":
        ratio = low = high = math.fsum(weights * pairs["over_median_us"]) / math.fsum(weights * pairs["median_us"])
    else:
        matrices = pairs["source"].to_numpy() if group.by_matrix else np.arange(len(ratios))
        ratio, low, high = _mean(ratios, weights, matrices, geometric=group.statistic == "geometric mean")
    return {
        "n": len(ratios),
        "wins": int((ratios > 1).sum()),
        "ratio": ratio,
        "low": low,
        "high": high,
        "worst": float(ratios.min()),
        "best": float(ratios.max()),
        "tuned": bool(pairs["tuned"].all()),
        "one_run": bool(pairs["one_run"].all()),
        "apart": int(pairs["apart"].sum()) if "apart" in pairs else 0,
    }


def _mean(
    ratios: NDArray[np.float64], weights: NDArray[np.float64], matrices: NDArray[Any], geometric: bool
) -> tuple[float, float, float]:
    """The weighted mean, and the 2.5th and 97.5th percentile of that of resampled matrices."""
    if len(ratios) == 1:
        return (float(ratios[0]),) * 3
    values = (np.log(ratios) if geometric else ratios) * weights
    of = np.unique(matrices, return_inverse=True)[1]
    sums, counts = np.bincount(of, values), np.bincount(of, weights)
    drawn = _draws(len(sums))
    alike = (counts == counts[0]).all()  # as where each stands for itself
    means = sums[drawn].sum(axis=1) / (counts.sum() if alike else counts[drawn].sum(axis=1))
    found = (math.fsum(values) / math.fsum(weights), *np.percentile(means, (2.5, 97.5)))
    mean, low, high = (math.exp(one) if geometric else float(one) for one in found)
    return mean, low, high


@functools.lru_cache(maxsize=16)
def _draws(count: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(count, size=(RESAMPLES, count))


def spread(data: Data, selectors: Sequence[Selector], alike: Sequence[str]) -> pd.DataFrame:
    """How far apart times are of what is said to take the same, such as other patterns of one size and level.

    A row for each selector, policy and combination of the attributes `alike` that has two problems or more: the mean
    of their times, the standard deviation over the mean, and the longest time over the shortest. In the order of the
    table.
    """
    cells = data.cells(selectors)
    groups = cells.groupby([*alike, "subject", "policy"], sort=False)["median_us"]
    found = groups.agg(instances="size", mean_us="mean", deviation="std", least="min", most="max").reset_index()
    found = found[found["instances"] > 1]
    found = found.assign(deviation=found["deviation"] / found["mean_us"], slowest=found["most"] / found["least"])
    return found[[*alike, "subject", "policy", "instances", "mean_us", "deviation", "slowest"]]


def one_tuning(data: Data, selector: Selector, alike: Sequence[str]) -> pd.DataFrame:
    """What problems lose by the candidate that is fastest on another one that is said to take the same.

    A row for each policy and ordered pair of problems with the same attributes `alike`: `over`, the time at the other's
    fastest candidate over the problem's least; NaN where that candidate did not run on it.
    """
    rows = rows_of(data.frame, selector)[["problem", "policy", "variant", "median_us"]]
    found = [pd.DataFrame({"policy": pd.Series(dtype=str), "over": pd.Series(dtype=float)})]
    for (policy, *_), some in rows.merge(data.problems[["problem", *alike]]).groupby(["policy", *alike], sort=False):
        times = some.pivot_table("median_us", "problem", "variant", "min")
        over = times[times.idxmin(axis=1)].to_numpy() / times.min(axis=1).to_numpy()[:, None]
        found.append(pd.DataFrame({"over": over[~np.eye(len(over), dtype=bool)]}).assign(policy=str(policy)))
    return pd.concat(found, ignore_index=True)
