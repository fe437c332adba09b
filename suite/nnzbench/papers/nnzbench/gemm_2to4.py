"""Dense and 2:4 products of language models in every arithmetic, beside times that others published of six GPUs."""

from __future__ import annotations

import pandas as pd

from nnzbench.data.problems import tables
from nnzbench.report import published
from nnzbench.report.page import Answer, Lines, Made, Page, RatioTable, Rows, View
from nnzbench.results.crossover import times_as_fast
from nnzbench.results.groups import Group
from nnzbench.results.result_set import each, geometric_mean
from nnzbench.results.selector import FP16, MATHS, best_dense, kernel
from nnzbench.results.table import Comparison, facts_of_pairs

NAME = "gemm_2to4"
CASES = r"(?:2to4|dense)_(\w+?_\d+x\d+x\d+)_"
TYPES = ("f16", "bf16", "i8", "f8")
TOKENS = (64, 256, 1024, 4096)


def group(tokens: int) -> Group:
    """The products with so many tokens, each 2:4 matrix beside the dense one of its sizes."""
    return Group(words="layers and cubes", cases=CASES, columns=tokens)


def six_gpus() -> pd.DataFrame:
    """The published times of this experiment's problems: gpu, dtype, m, k, n, dense_us, sparse_us (NaN: none).

    Each the fastest algorithm that a search found; 25 launches, then 100 in one pair of events. Raises `RecordError`.
    """
    rows = published.read("gemm_2to4_six_gpus", ("gpu", "dtype", "model", "m", "k", "n", "dense_us", "sparse_us"))
    asked = {(one.dtype, one.label.partition("_")[2], one.m, one.k, one.n) for one in tables.rows(NAME, full=True)}
    keys = zip(rows["dtype"], rows["model"], rows["m"], rows["k"], rows["n"], strict=True)
    return rows[[key in asked for key in keys]].reset_index(drop=True)


def published_facts() -> pd.DataFrame:
    """By GPU, type and tokens: 2:4 over dense in one type, and dense in other types over dense fp16.

    The columns of `facts.csv`, with the published GPU in the place of `policy`; all are hot.
    """
    rows = six_gpus()
    rows["dense"] = rows["dtype"].map({math: best_dense(math).label for math in TYPES})
    rows["sparse"] = rows["dtype"].map({math: kernel("cusparselt", math).label for math in TYPES})
    sparse = rows.assign(subject=rows["sparse"], us=rows["sparse_us"])
    sparse = sparse.assign(baseline=rows["dense"], over_us=rows["dense_us"])
    keys = ["gpu", "model", "m", "k", "n"]
    half = rows.loc[rows["dtype"] == "f16", [*keys, "dense_us"]].rename(columns={"dense_us": "over_us"})
    other = rows[rows["dtype"] != "f16"].merge(half, on=keys)
    other = other.assign(subject=other["dense"], us=other["dense_us"], baseline=FP16.label)
    pairs = pd.concat([sparse, other], ignore_index=True)
    labels = [group(tokens).label for tokens in pairs["n"]]
    named = pairs.assign(experiment=NAME, group=labels, policy=pairs["gpu"])
    return facts_of_pairs(named.assign(printed=float("nan"), tuned=True, one_run=True))


def _gains(view: View | None = None) -> pd.DataFrame:
    """A line per GPU and comparison, a column per number of tokens."""
    facts = published_facts()
    facts["cell"] = [f"{row.ratio:.2f} ({row.wins} of {row.n})" for row in each(facts)]
    heads = {group(tokens).label: f"{tokens} columns" for tokens in TOKENS}
    found = facts.pivot(index=["policy", "subject", "baseline"], columns="group", values="cell")
    order = facts[["policy", "subject", "baseline"]].drop_duplicates()
    found = found.reindex(index=pd.MultiIndex.from_frame(order), columns=list(heads)).fillna("").reset_index()
    return found.set_axis(["GPU", "", "over", *heads.values()], axis=1)


def _looped(view: View) -> Rows:
    """Times of the policy `loop`, as the published ones were taken, over hot ones: geometric means, and how many."""
    tokens = view.problems.set_index("problem")["n"]
    for side in (one for math in TYPES for one in (best_dense(math), kernel("cusparselt", math))):
        us = view.times(side).pivot(index="problem", columns="policy", values="median_us")
        us = us.reindex(columns=["hot", "loop"]).dropna()
        over = pd.Series(list(map(times_as_fast, us["hot"], us["loop"])), index=us.index, dtype=float)
        cells = {n: f"{geometric_mean(some):.2f} ({len(some)})" for n, some in over.groupby(tokens.reindex(us.index))}
        if cells:
            yield {"": side.label, **{f"{n} columns": cells.get(n, "") for n in TOKENS}}


def gemm_2to4() -> Page:
    """Its page."""
    dense = {math: best_dense(math) for math in TYPES}
    sparse = {math: kernel("cusparselt", math) for math in TYPES}
    groups = tuple(map(group, TOKENS))
    return Page(
        attributes=r"(?P<kept>dense|2to4)_(?P<network>\w+)",
        answers=(
            Answer(groups[0], sparse["f8"], dense["f8"], (sparse["f16"],), FP16),
            Answer(groups[2], sparse["f8"], dense["f8"], (), FP16),
            Answer(groups[0], dense["f8"], FP16, (dense["i8"],)),
        ),
        comparison=Comparison((*sparse.values(), *(dense[math] for math in TYPES[2:])), (FP16,), groups),
        figures=(
            Lines("gain", "Over the best dense fp16 product, by the columns (tokens)",
                  (dense["f8"], sparse["f8"], dense["i8"], sparse["i8"], sparse["f16"]), baseline=FP16, x="n",
                  group=Group(words="layers and cubes", cases=CASES), log_x=True),
        ),
        tables=(
            *(RatioTable(f"2:4 over dense products in {MATHS[math]}",
                         Comparison((sparse[math],), (dense[math],), groups)) for math in TYPES),
            Made("25 launches, then 100 in one pair of events, over launches in a graph: times as long", _looped,
                 "sets one policy over another"),
            Made("Six GPUs, published: geometric means, and on how many products the first is faster", _gains,
                 "divides times that others print"),
        ),
        baseline=FP16,
        arithmetic="fp16 and bf16 with sums in fp32, INT8 with 32-bit integers, and e4m3 (FP8) with fp16 results",
    )  # fmt: skip
