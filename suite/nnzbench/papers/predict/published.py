"""Times that others published of several GPUs, as the rows that `model.transfer` takes."""

from __future__ import annotations

import functools
from pathlib import Path

import pandas as pd

from nnzbench.data.problems import tables
from nnzbench.papers.nnzbench import dlmc_n512
from nnzbench.report import published
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import geometric_mean

COLUMNS = ["gpu", "problem", "kernel", "kind", "math", "m", "k", "n", "flops", "bytes", "launch_us", "us"]
FOUR = {
    "V100": "tesla-v100-sxm2-16gb",
    "RTX 2080 Ti": "nvidia-geforce-rtx-2080-ti",
    "A100": "nvidia-a100-sxm4-40gb",
    "RTX 4090": "nvidia-geforce-rtx-4090",
}
"""The names of four GPUs in SSpMM's results, which say no more: these forms have the rates that are taken."""
SIX = {
    "A100": "nvidia-a100-80gb-pcie",
    "H100 PCIe": "nvidia-h100-pcie",
    "B200": "nvidia-b200",
    "RTX 4090": "nvidia-geforce-rtx-4090",
    "RTX 5080": "nvidia-geforce-rtx-5080",
    "GB10": "nvidia-gb10",
}
"""Those of SlideSparse's tables. Its log of the A100 names the 80 GB PCIe card."""
LIBRARIES = ("sputnik", "cusparse", "cublas")
GEMM_START_US = 5.0
"""Of a product among a hundred in one pair of events: start and end, which no neighbour hides."""
GRAPH_SAVES_US = 0.9
"""Of that, where launches follow each other in a graph: what the policy `loop` takes longer than hot (one H100)."""
LAUNCH_SHARE = 0.6
"""Of the fastest published time of Sputnik, over matrices of nearly no nonzeros, what is launch."""
ITEM, RESULT = {"f16": 2, "bf16": 2, "i8": 1, "f8": 1}, {"f16": 2, "bf16": 2, "i8": 4, "f8": 2}
"""Bytes of an element of the operands and of the result."""


def products(sparse: bool) -> pd.DataFrame:
    """Searched times of cuBLASLt, or of cuSPARSELt on 2:4 weights, on six GPUs. FP4 is left out: its dense times
    are beyond the peak of the data sheet on all three GPUs that have some."""
    rows = published.read("gemm_2to4_six_gpus", ("gpu", "dtype", "model", "m", "k", "n", "dense_us", "sparse_us"))
    rows = rows[rows["dtype"].isin(list(ITEM))].assign(us=lambda table: table["sparse_us" if sparse else "dense_us"])
    rows = rows[rows["us"] > 0].rename(columns={"dtype": "math"})
    return gemm_work(rows, sparse).assign(gpu=rows["gpu"].map(SIX), launch_us=GEMM_START_US)[COLUMNS]


def gemm_work(rows: pd.DataFrame, sparse: bool) -> pd.DataFrame:
    """Rows with m, k, n and `math` beside the columns that follow from them; 2:4 keeps half of the weights."""
    m, k, n, item = rows["m"], rows["k"], rows["n"], rows["math"].map(ITEM).astype(float)
    weights = m * k * (item / 2 + 1 / 8 if sparse else item)
    sizes = rows["math"] + "_" + m.astype(str) + "x" + k.astype(str) + "x" + n.astype(str)
    return rows.assign(
        problem=sizes,
        kernel="cusparselt" if sparse else "cublaslt",
        kind="dense",
        flops=2.0 * m * k * n / (2 if sparse else 1),
        bytes=weights + k * n * item + m * n * rows["math"].map(RESULT).astype(float),
    )


@functools.cache
def floors() -> dict[str, float]:
    """By slug: what a launch costs in the times of four GPUs, from Sputnik's fastest."""
    frame = published.read("dlmc_n512_fastest", ("gpu", "library", "fastest_us")).query("library == 'sputnik'")
    return dict(zip(frame["gpu"].map(FOUR), LAUNCH_SHARE * frame["fastest_us"].astype(float), strict=True))


def strata(library: str) -> pd.DataFrame:
    """The committed means on four GPUs: a stratum is a pruning method and level, of mean sizes."""
    problems = tables.rows(dlmc_n512.NAME, full=True)
    matrices = [
        (*dlmc_n512.stratum(one.name), one.m, one.k, max((1 - one.sparsity) * one.m * one.k, 1.0)) for one in problems
    ]
    sizes = pd.DataFrame(matrices, columns=["method", "level", "m", "k", "nnz"]).groupby(["method", "level"])
    means = dlmc_n512.printed(of_all=True).query("library == @library").drop(columns="count")
    means = means.join(sizes.agg(geometric_mean), on=["method", "level"]).reset_index(drop=True)
    work = dlmc_work(library, means["method"] + means["level"].map(" {:g}".format), means)
    slugs = means["gpu"].map(FOUR)
    return work.assign(gpu=slugs, us=means["geomean_us"], launch_us=slugs.map(floors()))


def by_matrix(path: Path, library: str) -> pd.DataFrame:
    """Every matrix of the published file of four GPUs. Raises `RecordError` where it is not that file."""
    try:
        table = pd.read_csv(path).rename(columns={"rows": "m", "cols": "k"})
        work, operations = dlmc_work(library, table["path"], table), 2e-3 * 512 * table["nnz"]
        parts = [
            work.assign(
                gpu=slug,
                launch_us=floors()[slug],
                us=operations / table[f"{library}_{name.lower().replace(' ', '')}_gflops"],
            )
            for name, slug in FOUR.items()
        ]
    except (KeyError, ValueError) as error:
        raise RecordError(f"{path}: not the table of four GPUs ({error})") from None
    return pd.concat(parts, ignore_index=True)


def dlmc_work(library: str, names: pd.Series[str], sizes: pd.DataFrame) -> pd.DataFrame:
    """Rows of the work on matrices (m, k, nnz) times 512 columns in fp16; the published cuBLAS sums in fp16."""
    dense, n, (m, k, nnz) = library == "cublas", 512, (sizes[name].astype(float) for name in ("m", "k", "nnz"))
    stored = m * k if dense else nnz
    work = pd.DataFrame({"problem": names, "m": m, "k": k, "n": n, "flops": 2.0 * stored * n})
    moved = 2.0 * (stored + k * n + m * n) + (0.0 if dense else 4.0 * nnz)
    kind, math = ("dense", "f16_sums") if dense else ("sparse", "f16")
    return work.assign(bytes=moved, kernel=library, kind=kind, math=math)
