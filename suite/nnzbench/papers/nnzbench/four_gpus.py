"""The matrices of `dlmc_n512` by pruning method and level: times that others published of four GPUs, and recorded ones.

The page of the experiment, the comparison of generations and the prediction's hold-outs read them here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from nnzbench.facts.data import Data
from nnzbench.facts.results import ResultSet, geometric_mean
from nnzbench.facts.selector import CUSPARSE_F16, DEFAULT, FP16, kernel, written_here
from nnzbench.facts.table import Comparison, compare
from nnzbench.problems.problem import label_of
from nnzbench.report.data import context, published

EXPERIMENT = "dlmc_n512"
ALL = 246
"""Matrices of the whole table."""
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
CAVEATS = (
    "The times of V100, RTX 2080 Ti, A100 and RTX 4090 were published by others (results committed with SSpMM, GitHub "
    "`xuezy-mmi/SSpMM`, CUDA 11.8): one pair of events around each launch, so that 5 to 24 µs of every time are the "
    "launch; the authors' Sputnik in fp16, one cuSPARSE algorithm, and a cuBLAS that sums in fp16, where the one "
    "measured here sums in fp32. Launches measured here follow each other, or find the L2 cache overwritten."
)


def stratum(problem: str) -> tuple[str, float]:
    """Pruning method and level of a problem, which its label starts with: `magnitude_pruning.0.9.body_...`."""
    found = re.fullmatch(ATTRIBUTES, label_of(problem) or "")
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
    found = found.assign(kind="measured", gpu=context.gpu_name(results.gpu, results.environment))
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
            gpu = context.gpu_name(one.results.gpu, one.results.environment)
            parts.append(facts.assign(gpu=gpu, library=library))
    kept = ["gpu", "policy", "library", "level", "count", "gain", "tuned"]
    return pd.concat([published_gains(all(map(whole, data)))[kept], *(part[kept] for part in parts)], ignore_index=True)
