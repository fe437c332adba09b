"""The same pruned matrices on five generations of GPUs: what this suite measures beside what others published.

The page of the experiment, the comparison of generations and the prediction's hold-outs read both here.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import parse
from nnzbench.report import published
from nnzbench.report.page import Answer, Lines, Made, Page, Printed, Rows, View
from nnzbench.report.text import gpu_name
from nnzbench.results.data import Data
from nnzbench.results.groups import Group
from nnzbench.results.result_set import ResultSet, each, geometric_mean
from nnzbench.results.selector import CUSPARSE_F16, DEFAULT, FP16, kernel, own, written_here
from nnzbench.results.table import Comparison, compare

NAME, ALL = "dlmc_n512", 246
"""Of the experiment, and how many matrices its whole table has."""
ATTRIBUTES = r"(?P<method>\w+)\.(?P<pruned>0\.\d+)\..+"
"""What labels tell: the pruning method, and the share of zeros that it was asked for."""
DENSE = "cublas"
SIDES = {
    "sputnik": kernel("sputnik", "f16", DEFAULT),
    "cusparse": CUSPARSE_F16,
    "ours": written_here("f16"),
    DENSE: FP16,
}
"""By the published files' name of a library; `ours` is in none of them."""


def stratum(problem: str) -> tuple[str, float]:
    """Pruning method and level of a problem, which its label starts with: `magnitude_pruning.0.9.body_...`."""
    parts = parse(problem)
    found = re.fullmatch(ATTRIBUTES, parts["label"]) if parts else None
    return (found["method"], float(found["pruned"])) if found else ("", math.nan)


def printed(of_all: bool) -> pd.DataFrame:
    """The published means of all matrices, or of those of the sample.

    Columns kind, gpu, policy (none), method, level, library, count, geomean_us, faster_than_cublas.
    """
    columns = ["gpu", "method", "level", "library", "count", "geomean_us", "faster_than_cublas"]
    names = ("target_sparsity", "matrices", *(one for one in columns if one != "level"))
    frame = published.read("dlmc_n512_four_gpus", names).rename(columns={"target_sparsity": "level"})
    frame = frame[frame["matrices"] == ("all" if of_all else "sample")]
    return frame[columns].assign(kind="published", policy="").reset_index(drop=True)


def whole(data: Data) -> bool:
    """Whether all matrices are recorded, not a sample."""
    return bool(data.times(FP16)["problem"].nunique() >= ALL)


def complete(results: ResultSet) -> bool:
    """Whether the sample's matrices are all there and the published ones: means over others are no comparison."""
    timed = results.frame[results.frame["median_us"].notna() & results.frame["source"].str.startswith("dlmc:")]
    return bool(timed["problem"].nunique() >= len(tables.rows(NAME)))


def by_gpu(results: ResultSet) -> pd.DataFrame:
    """Published means, and those of records over the same matrices, where these have a dense time and Sputnik's."""
    data = Data(results, ATTRIBUTES)
    rows = data.cells(list(SIDES.values()))
    rows["library"] = rows["subject"].map({one.label: name for name, one in SIDES.items()})
    known = rows[rows["library"].isin(["sputnik", DENSE])].groupby(["problem", "policy"])["library"].nunique()
    rows = rows.join(known.rename("known"), on=["problem", "policy"]).query("known == 2")
    means = rows.groupby(["policy", "method", "pruned", "library"], sort=False)["median_us"]
    found = means.agg(count="count", geomean_us=geometric_mean).reset_index()
    found = found.rename(columns={"pruned": "level"})
    found = found.assign(kind="measured", gpu=gpu_name(results.gpu, results.environment))
    return pd.concat([printed(whole(data)), found], ignore_index=True)


def published_gains(of_all: bool) -> pd.DataFrame:
    """By GPU, library and level: dense over sparse time (`gain`), matrices (`count`), and on how many sparse is faster.

    Every matrix counts once, whatever its method.
    """
    frame = printed(of_all)
    frame = frame.assign(logs=frame["count"] * np.log(frame["geomean_us"]))
    keys = ["gpu", "level", "library"]
    sums = frame.groupby(keys, sort=False)[["logs", "count", "faster_than_cublas"]].sum().reset_index()
    sums = sums.assign(us=np.exp(sums["logs"] / sums["count"]))
    dense = sums[sums["library"] == DENSE].set_index(["gpu", "level"])["us"].rename("dense_us")
    sparse = sums[sums["library"] != DENSE].join(dense, on=["gpu", "level"])
    return sparse.assign(gain=sparse["dense_us"] / sparse["us"], policy="", tuned=True)


def gains(sets: Sequence[ResultSet]) -> pd.DataFrame:
    """`published_gains`, and below them those recorded of `SIDES` (facts) by GPU, policy, library and level."""
    parts = []
    data = [Data(results, ATTRIBUTES) for results in sets]
    for one in data:
        for library in ("sputnik", "cusparse", "ours"):
            facts = compare(one, Comparison((SIDES[library],), (FP16,), by=("pruned",)))
            facts = facts.rename(columns={"pruned": "level", "n": "count", "ratio": "gain"})
            gpu = gpu_name(one.results.gpu, one.results.environment)
            parts.append(facts.assign(gpu=gpu, library=library))
    kept = ["gpu", "policy", "library", "level", "count", "gain", "tuned"]
    return pd.concat([published_gains(all(map(whole, data)))[kept], *(part[kept] for part in parts)], ignore_index=True)


BANDS = (35, 65, 75, 85, 92.5, 97, 98.5, 100)
COUNTED = tuple(
    Group(words=f"{low:g} to {high:g} % zeros counted", where=f"{low / 100} <= sparsity < {high / 100}")
    for low, high in itertools.pairwise(BANDS)
)


def groups() -> tuple[Group, ...]:
    """One for each level that matrices are named after, sparsest first; its words tell what the zeros count to."""
    rows = [(stratum(problem.name)[1], problem) for problem in tables.rows(NAME, full=True)]
    found = []
    for level in sorted({level for level, _ in rows}, reverse=True):
        zeros = [100 * problem.sparsity for one, problem in rows if one == level]
        words = f"pruned to {100 * level:g} % ({min(zeros):.0f} to {max(zeros):.0f} % zeros counted)"
        found.append(Group(words=words, where=f"pruned == {level}"))
    return tuple(found)


def zeros(view: View) -> pd.DataFrame:
    """Percent of zeros, as counted, of the matrices recorded by the level that they are named after."""
    found = view.problems.assign(zeros=100 * view.problems["sparsity"]).groupby("pruned")["zeros"]
    table = found.agg(["count", "min", "mean", "max"]).reset_index()
    heads = ["named", "matrices", "least zeros (%)", "mean (%)", "most (%)"]
    return table.assign(pruned=[f"{100 * one:g} %" for one in table["pruned"]]).set_axis(heads, axis=1)


def _printed_sputnik(view: View) -> pd.DataFrame:
    """Dense over Sputnik's time on the four GPUs."""
    found = published_gains(whole(view)).query("library == 'sputnik'")
    return pd.DataFrame({"pruned": found["level"], "value": found["gain"]})


def _gains(view: View) -> Rows:
    """A line per GPU and library: dense over sparse time by level, and how many matrices are faster sparse."""
    found = published_gains(whole(view))
    for (gpu, library), some in found.groupby(["gpu", "library"], sort=False):
        wins = f"{some['faster_than_cublas'].sum():g} of {some['count'].sum()}"
        line = {f"{100 * row.level:g} %": float(row.gain) for row in each(some.sort_values("level"))}
        yield {"GPU": gpu, "kernel": library, **line, "faster than dense": wins}


def dlmc_n512() -> Page:
    """The same pruned matrices on five generations of GPUs: what this suite measures beside what others published."""
    rule, best, ours = SIDES["sputnik"], kernel("sputnik", "f16"), own("f16")
    levels = groups()
    every = (SIDES["ours"], *(kernel(name, "f16") for name in ("tensor_spmm", "ring", "row_stream")))
    return Page(
        words={"ALL": ALL},
        attributes=ATTRIBUTES,
        answers=tuple(Answer(group, ours, FP16, (best, rule)) for group in levels[:3]),
        comparison=Comparison((ours, best, rule), (FP16, CUSPARSE_F16), levels),
        figures=(
            Lines("gain", "Sparse over dense fp16 products with 512 columns, by the share of zeros asked for",
                  (every[0], best, rule, CUSPARSE_F16), baseline=FP16, x="pruned",
                  printed=Printed("Sputnik on V100, RTX 2080 Ti, A100, RTX 4090 (published)", _printed_sputnik)),
        ),
        tables=(
            Made("Zeros that matrices were pruned to, and those counted", zeros, "counts zeros"),
            Made("Dense over sparse time on four other GPUs, published, by the share of zeros asked for", _gains,
                 "divides times that others print"),
        ),
        facts=(
            Comparison((ours, best, rule), (FP16, CUSPARSE_F16), COUNTED),
            Comparison((*every, CUSPARSE_F16), (FP16, CUSPARSE_F16), levels),
        ),
        baseline=FP16,
        arithmetic="Inputs are fp16. Measured kernels sum in fp32; the published cuBLAS sums in fp16",
    )  # fmt: skip
