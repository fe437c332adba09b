"""Computes every row of facts.csv again from the records, by other code than the package's.

    python runners/recompute.py [--reports reports]

Of each page the facts.csv beside it is checked, as `nnzbench report` left it; where there is none, as git keeps none,
the one that the page is drawn with now. The pages say which problems and rows are compared (`Comparison`, `Selector`,
`Group`: data). Reading the records, what counts of them, the least time of each problem, pairs, means, sums and whether
all were tuned are computed here a second time. Ends with status 1 and names each row that says something else than the
records.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import operator
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd

from nnzbench.core import paths
from nnzbench.core.host import processors
from nnzbench.papers.catalogue import page_of
from nnzbench.papers.predict.published import SIX
from nnzbench.report import render
from nnzbench.report.draw import style
from nnzbench.results import table
from nnzbench.results.data import Data
from nnzbench.results.groups import Group
from nnzbench.results.result_set import each, load
from nnzbench.results.selector import Selector
from nnzbench.results.table import Comparison
from nnzbench.site.generations import products

pd.set_option("mode.string_storage", "python")  # texts that are Python objects are taken in two thirds of the time
REAL = {"dlmc", "weights"}
CASE = ["label", "m", "k", "n", "shape", "level", "dtype"]
NAMES = ["group", "subject", "baseline", "policy"]
TOLD = ["n", "wins", "ratio", "worst", "best", "tuned", "one_run"]
"""Columns of facts.csv that are computed again; of the interval, whether it holds the mean."""


@functools.cache
def rows(folder: Path) -> pd.DataFrame:
    """Times that count: of one device, of kernels that a run came to the end of, a stand-in as the real pattern."""
    frame = pd.read_parquet(folder / "records.parquet")
    device = next((name for name in ("cupy", "pycuda", "cuda-core") if name in set(frame["device"])), "")
    timed = (frame["status"] == "ok") & frame["median_us"].notna()
    frame = of_one_pattern(frame[timed & (frame["device"] == device) & (frame["search"] != "")])
    texts = pd.read_parquet(folder / "environments.parquet").set_index("name")["text"]
    runs = {name: run_of(name, texts[name]) for name in frame["environment"].unique()}
    alike = frame[CASE[:-1]].assign(kind=frame["kind"].mask(frame["kind"].isin(REAL | {"standin"}), ""))
    return frame.assign(
        cut=frame["search"].isin(["first", "some"]),
        pruned=of_pruned(frame),
        run=frame["environment"].map(runs),
        stem=alike.apply(tuple, axis=1),  # the same of a problem in each type, and of a stand-in
    )


def of_pruned(frame: pd.DataFrame) -> pd.Series[bool]:
    """Whether a row is a dense product with the pruned matrix, where its library has a time with the unpruned one."""
    unpruned = frame["weights"] == "unpruned"
    either = unpruned.groupby([frame[name] for name in ("problem", "kernel", "math", "policy")]).transform("any")
    return either.astype(bool) & (frame["work"] == "dense") & ~unpruned


def run_of(name: str, snapshot: str) -> str:
    content = json.loads(snapshot)
    return f"{(content.get('source') or {}).get('commit', '')} {content.get('worker', name)}"


def of_one_pattern(frame: pd.DataFrame) -> pd.DataFrame:
    """Stand-ins under the name of the real pattern's problem, without the kernels that were recorded on that too."""
    problems = frame[["problem", "kind", *CASE]].drop_duplicates("problem")
    pairs = problems[problems["kind"] == "standin"].merge(problems[problems["kind"].isin(REAL)], on=CASE)
    names = dict(zip(pairs["problem_x"], pairs["problem_y"], strict=True))
    on_real = set(frame.loc[frame["problem"].isin(set(names.values())), ["problem", "kernel"]].itertuples(index=False))
    keys = zip(frame["problem"].map(names), frame["kernel"], strict=True)
    frame = frame[[key not in on_real for key in keys]]
    return frame.assign(problem=frame["problem"].replace(names))


@functools.cache
def times(folder: Path, side: Selector, like: Selector | None = None) -> pd.DataFrame:
    """The least time of a side on each problem and policy; `tuned` is of all that competes."""
    found = rows(folder)
    found = found[found["math"].isin([side.math, side.also])]
    for column, wanted in (("kernel", side.kernels), ("role", side.roles)):
        found = found[found[column].isin(wanted)] if wanted else found
    over = found["pruned"]
    if not side.pruned:  # zeros multiplied by stand where these kernels have no time of the matrix before pruning
        cases = list(zip(found["problem"], found["policy"], strict=True))
        other = {case for case, pruned in zip(cases, over, strict=True) if not pruned}
        over = over & pd.Series([case in other for case in cases], over.index, dtype=bool)
    found = found[over == side.pruned]
    if side.source:
        found = found[found["source"].str.partition(":")[0] == side.source]
    if side.variants:
        found = found[found["variant"].str.match(side.variants)]
    if side.one_choice:
        product = found.groupby(["problem", "kernel", "variant"])["median_us"].agg(["prod", "count"])
        product = product[product["count"] == product.groupby("problem")["count"].transform("max")]
        chosen = set(product.groupby("problem")["prod"].idxmin())
        found = found[[one in chosen for one in zip(found["problem"], found["kernel"], found["variant"], strict=True)]]
    if like:
        best = times(folder, like).set_index(["problem", "policy"])["variant"].to_dict()
        keys = zip(found["problem"], found["policy"], found["variant"], strict=True)
        found = found[[best.get((problem, policy)) == variant for problem, policy, variant in keys]]
    cut = found["cut"] & (not side.untunable)
    tuned = ~cut.groupby([found["stem"], found["policy"]]).transform("any").astype(bool)
    order = {"median_us": True, "selected": False, "kernel": True, "variant": True}  # of equal times: whose run counts
    found = found.assign(tuned=tuned).sort_values(list(order), ascending=list(order.values()), kind="stable")
    return found.drop_duplicates(["problem", "policy"])


@functools.lru_cache(1000)
def cases(data: Data, group: Group, side: Selector, like: Selector | None, baseline: bool, by: tuple[str, ...]) -> Any:
    """Of each case of a group (and value of `by`), by policy: its least time, run, and whether tuned."""
    of = group.problems(data.problems, baseline)
    of = of[list(dict.fromkeys(["problem", "case", "label", "count", "sparsity", *by]))]
    found = times(data.results.folder, side, like)[["problem", "policy", "median_us", "floor_us", "run", "tuned"]]
    found = of.merge(found, on="problem").sort_values("median_us", kind="stable")
    keys = list(dict.fromkeys(["policy", "case", *by]))
    found["tuned"] = found.groupby(keys, dropna=False)["tuned"].transform("all")
    return found.drop_duplicates(keys)


def added(found: pd.DataFrame, case: str) -> dict[str, Any]:
    """Times of several problems as one."""
    runs = set(found["run"])
    run = runs.pop() if len(runs) == 1 else ""
    return {**found.iloc[0], "case": case, "median_us": math.fsum(found["median_us"]), "count": 1, "run": run,
            "tuned": bool(found["tuned"].all())}  # fmt: skip


def whole(group: Group, found: pd.DataFrame) -> pd.DataFrame:
    """Where the group adds times: all of its problems, or what has all of the group's parts."""
    if not group.parts:
        each = found["count"] if group.counted else 1
        return pd.DataFrame([added(found.assign(median_us=found["median_us"] * each), "all")] if len(found) else [])
    parts: dict[str, dict[str, Any]] = {}
    for (_, row), part in zip(found.iterrows(), map(group.part, found["label"]), strict=True):
        if part:
            parts.setdefault(part[0], {}).setdefault(part[1], row)
    every = [added(pd.DataFrame(of.values()), name) for name, of in parts.items() if set(of) == set(group.parts)]
    return pd.DataFrame(every, columns=found.columns)


def computed(data: Data, asked: Comparison) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Names and numbers of each fact of a comparison."""
    for group, mine, other in itertools.product(asked.groups, asked.subjects, asked.baselines):
        if mine == other:
            continue
        like = mine if other in asked.same_variant else None
        below = cases(data, group, mine, None, False, tuple(asked.by))
        above = cases(data, group, other, like, True, ())
        for policy in data.policies:
            for values, pairs in paired(group, below, above, policy, asked.by):
                label = table._named(group, values)["group"] if values else group.label
                yield (label, mine.label, other.label, policy), statistics(group, pairs)


def paired(
    group: Group, below: pd.DataFrame, above: pd.DataFrame, policy: str, by: Sequence[str]
) -> Iterator[tuple[Mapping[str, object], pd.DataFrame]]:
    below, above = below[below["policy"] == policy], above[above["policy"] == policy]
    added_up = group.baseline_like or (group.statistic == "total" and not group.cases)
    if added_up and group.baseline_like in ("", group.like) and set(below["case"]) != set(above["case"]):
        return
    if group.parts or added_up:
        below, above = whole(group, below), whole(group, above)
    if below.empty or above.empty:
        return
    pairs = below.merge(above[["case", "median_us", "run", "tuned"]], on="case", suffixes=("", "_over"))
    over = pairs["median_us_over"]
    if group.ideal:
        pairs = pairs[pairs["floor_us"].notna()]
        over = (pairs["median_us_over"] - pairs["floor_us"]) * (1 - pairs["sparsity"]) + pairs["floor_us"]
    pairs = pairs.assign(over=over, ratio=over / pairs["median_us"])
    if not by or pairs.empty:
        yield from [({}, pairs)] * (len(pairs) > 0)
        return
    for values, some in pairs.groupby(list(by), sort=False, dropna=False):
        yield dict(zip(by, values, strict=True)), some


def statistics(group: Group, pairs: pd.DataFrame) -> dict[str, Any]:
    ratios, weights = list(pairs["ratio"]), list(pairs["count"] if group.counted else [1] * len(pairs))
    if group.statistic == "total":
        mean = summed(weights, pairs["over"]) / summed(weights, pairs["median_us"])
    elif group.statistic == "mean":
        mean = summed(weights, ratios) / sum(weights)
    else:
        mean = math.exp(summed(weights, map(math.log, ratios)) / sum(weights))
    return {
        "n": len(ratios),
        "wins": sum(one > 1 for one in ratios),
        "ratio": mean,
        "worst": min(ratios),
        "best": max(ratios),
        "tuned": bool((pairs["tuned"].astype(bool) & pairs["tuned_over"].astype(bool)).all()),
        "one_run": bool(((pairs["run"] == pairs["run_over"]) & (pairs["run"] != "")).all()),
    }


def summed(weights: Iterable[float], values: Iterable[float]) -> float:
    """Sum of the values, each as often as its weight says."""
    return math.fsum(map(operator.mul, weights, values))


def wrong_rows(
    path: Path, asked: Sequence[tuple[Data, Comparison]], beyond: Set[tuple[str, ...]]
) -> tuple[int, list[str]]:
    """How many rows of a facts.csv are computed again (all but those `beyond`), and those that are not as computed."""
    wanted: dict[tuple[str, ...], dict[str, Any]] = {}
    for data, one in asked:
        for key, numbers in computed(data, one):
            wanted.setdefault(key, numbers)
    count, wrong = 0, []
    for row in pd.read_csv(path).to_dict("records"):
        key = tuple(str(row[name]) for name in NAMES)
        if key in beyond:
            continue
        count += 1
        numbers = wanted.pop(key, {})
        where = f"{path}: {key[0]}, {key[1]} over {key[2]}, {key[3]}"
        if not numbers:
            wrong.append(f"{where}: no page asks for it, or no problem has both times")
        elif differ := [name for name in TOLD if not alike(row[name], numbers[name])]:
            wrong.append(f"{where}: " + ", ".join(f"{name} {row[name]}, wanted {numbers[name]}" for name in differ))
        elif not row["low"] * 0.99999 <= row["ratio"] <= row["high"] * 1.00001:
            wrong.append(f"{where}: {row['ratio']} is not within {row['low']} to {row['high']}")
    wrong += [f"{path}: {', '.join(key)} is missing" for key in wanted]
    return count, wrong


def wrong_products(path: Path) -> tuple[int, list[str]]:
    """The same of dense and 2:4 products that others published of six GPUs, from their times alone."""
    sizes = ["dtype", "m", "k", "n"]
    times = pd.read_csv(paths.datasets() / "published" / "gemm_2to4_six_gpus.csv").drop_duplicates(["gpu", *sizes])
    times = times.merge(pd.read_csv(paths.datasets() / "problems" / "gemm_2to4.csv")[sizes].drop_duplicates(), on=sizes)
    times = times.replace({"dense_us": {0: math.nan}, "sparse_us": {0: math.nan}})
    half = times[times["dtype"] == "f16"].set_index(["gpu", "m", "k", "n"])["dense_us"].rename("half_us")
    times = times.join(half, on=["gpu", "m", "k", "n"])
    keys = ["experiment", "group", "subject"]
    facts = products.facts(products.times([]))  # what the labels mean
    meant = facts.loc[facts["how"] == "published", [*keys, "gpu", "math", "tokens", "fact"]]
    told = pd.read_csv(path)[[*keys, "n", "wins", "ratio"]].merge(meant, on=keys)
    wrong = []
    for row in each(told):
        mine = (times["gpu"].map(SIX) == row.gpu) & (times["n"] == row.tokens) & (times["dtype"] == row.math)
        us = times.loc[mine, ["dense_us", "sparse_us"] if row.fact == "2:4" else ["half_us", "dense_us"]].dropna()
        ratios = us.iloc[:, 0] / us.iloc[:, 1]
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if len(ratios) else math.nan
        if (row.n, row.wins) != (len(ratios), int((ratios > 1).sum())) or not alike(row.ratio, mean):
            wrong.append(f"{path}: {row.group}, {row.subject}: {row.ratio}, wanted {mean} of {len(ratios)}")
    return len(told), wrong


def alike(told: float, wanted: float) -> bool:
    return math.isclose(told, wanted, rel_tol=6e-6)


def asked_of(folder: Path) -> tuple[list[tuple[Data, Comparison]], set[tuple[str, ...]]]:
    """What the page of an experiment compares, seen while it is drawn; and facts of more than its own records."""
    asked: list[tuple[Data, Comparison]] = []
    beyond: set[tuple[str, ...]] = set()
    compare, results = table.compare, load(folder)

    def seen(data: Data, comparison: Comparison) -> pd.DataFrame:
        facts = compare(data, comparison)
        if data.results.frame is results.frame:
            asked.append((data, comparison))
        else:
            beyond.update(facts[NAMES].itertuples(index=False, name=None))
        return facts

    with mock.patch.object(table, "compare", seen), mock.patch.object(style, "save"):  # what figures ask is enough
        render.write(page_of(results.experiment) or render.generic(results), results)
    return asked, beyond


def checked(folder: Path, copy: Path) -> tuple[int, int, list[str]]:
    """Of one page: how many facts are computed again, how many are of more than its records, and what is wrong."""
    asked, beyond = asked_of(copy)
    facts = [one / "facts.csv" for one in (folder, copy) if (one / "facts.csv").is_file()]
    if not facts:
        return 0, 0, [f"{folder}: there are records and no facts.csv"]
    of, found = wrong_rows(facts[0], asked, beyond)
    return of, len(beyond), found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=Path, default=paths.reports())
    reports = parser.parse_args().reports
    pages = sorted({path.parent for path in reports.glob("*/*/records.*")})
    if not pages:
        print(f"{reports}: no records", file=sys.stderr)
        return 2
    count, other = 0, 0
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(processors()) as pool:
        shutil.copytree(reports, scratch, dirs_exist_ok=True)
        copies = [Path(scratch) / folder.relative_to(reports) for folder in pages]
        for of, beyond, found in pool.map(checked, pages, copies):
            count, other, wrong = count + of, other + beyond, wrong + found
        generations = reports / "generations"
        if not (generations / table.FILE).is_file():
            generations = Path(scratch)
            table.write(products.facts(products.times([]))[table.COLUMNS], generations)
        of, found = wrong_products(generations / table.FILE)
        count, wrong = count + of, wrong + found
    for words in wrong:
        print(words, file=sys.stderr)
    said = f"{len(wrong)} wrong" if wrong else "all as the records say"
    print(f"{len(pages)} pages, {count} rows of facts.csv: {said}")
    if other:
        print(f"{other} more rows, of two runs put together, are not computed here")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
