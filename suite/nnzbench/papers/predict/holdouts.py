"""How far the prediction is off on GPUs that it has not seen: each held out in turn, all of its times at once."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from nnzbench.core.gpus import gpus
from nnzbench.kernels.registry import about
from nnzbench.papers.nnzbench import dlmc_n512, gemm_2to4
from nnzbench.papers.predict import published
from nnzbench.papers.predict.model import FEWEST, LEAST, Floats, Work, calibrate, transfer
from nnzbench.report.text import gpu_name
from nnzbench.results.records.folder import folders
from nnzbench.results.result_set import ResultSet, each, geometric_mean, load
from nnzbench.results.selector import selected

CALIBRATION, DRAWS = 20, 12
INSIDE, ASKED = 0.9, 0.93
"""Share of a GPU's times that an error bar is to hold, and that of the others' errors which it holds: those of a GPU
that was not looked at are larger."""
AIMS = {"cublaslt": 0.10, "cublas": 0.10}
AIM, AIM_CALIBRATED = 0.15, 0.08
"""Mean errors that are called good: of dense products, of the rest, and of all with some problems measured."""
PRODUCTS, STRATA, MATRICES = "dense and 2:4 products", "strata of matrices on four GPUs", "matrices on four GPUs"
PAIRS, PROGRAMS = "records of two GPUs", "records to four GPUs"
COLUMNS = ("data", "kernel", "math", "target", "calibration", "count", "mean", "p90", "bias", "within", "inside", "aim")
"""A row per GPU held out: mean and 90th percentile of |predicted / taken - 1|, geometric mean of that quotient, the
error bar that was predicted beforehand (from the other GPUs' errors) and the share of times inside it."""
SAME_LEVEL = 0.005
PRODUCT_KERNELS = {False: ("cublaslt", "cublas"), True: ("cusparselt",)}
"""Dense, and on 2:4 weights."""


def told(times: pd.DataFrame, asked: pd.DataFrame) -> pd.DataFrame:
    """Rows asked for with `predicted`, microseconds from the times of other GPUs but for the cost of a launch."""
    parts = []
    for slug, rows in asked.groupby("gpu", sort=False):
        predicted = transfer(times, gpus()[str(slug)], float(rows["launch_us"].iloc[0]))
        parts.append(rows.assign(predicted=rows["problem"].map(predicted)))
    return pd.concat(parts, ignore_index=True).dropna(subset="predicted").reset_index(drop=True)


def held_out(times: pd.DataFrame) -> pd.DataFrame:
    """The rows with `predicted`, from the other GPUs alone, and `off`, its logarithm over what was taken."""
    found = told(times, times)
    return found.assign(off=np.log(found["predicted"] / found["us"]))


def within(off: Iterable[float]) -> float:
    """The error bar that such logarithms of errors ask for, as a fraction of the time."""
    return math.expm1(float(np.quantile(np.abs(np.asarray(list(off))), ASKED)))


@functools.cache
def products(sparse: bool) -> pd.DataFrame:
    """`held_out` of published products."""
    return held_out(published.products(sparse))


@functools.cache
def strata(library: str) -> pd.DataFrame:
    """`held_out` of published strata of matrices."""
    return held_out(published.strata(library))


def products_and_records(reports: Path, sparse: bool) -> pd.DataFrame:
    """The same, with what this suite recorded of these products on further GPUs."""
    found = [load(folder) for folder in folders(reports, f"*/{gemm_2to4.NAME}")]
    if not (measured := [recorded_products(one, sparse) for one in found if one.gpu in gpus()]):
        return products(sparse)
    every = pd.concat([published.products(sparse), *measured], ignore_index=True)
    return held_out(every[every["problem"].isin(published.products(sparse)["problem"])])


def recorded_products(results: ResultSet, sparse: bool) -> pd.DataFrame:
    """The least hot time of each product on one GPU, as rows of `published.products`, and whether it was tuned.

    Sparse ones are left out where they were not: published ones were searched, and a search halves cuSPARSELt's time.
    """
    rows = selected(results.frame)
    rows = rows[rows["cut_short"] == ""] if sparse else rows
    rows = rows[(rows["policy"] == "hot") & rows["kernel"].isin(PRODUCT_KERNELS[sparse])]
    rows = rows[rows["math"] == rows["dtype"]].sort_values("median_us", kind="stable")
    rows = rows.drop_duplicates(["math", "m", "k", "n"])
    work = published.gemm_work(rows[["math", "m", "k", "n"]], sparse)
    launch_us = published.GEMM_START_US - published.GRAPH_SAVES_US
    work = work.assign(gpu=results.gpu, us=rows["median_us"], launch_us=launch_us)
    return work[published.COLUMNS].assign(tuned=rows["cut_short"] == "")


def held_outs(reports: Path | None = None, matrices: Path | None = None) -> Iterator[tuple[str, pd.DataFrame]]:
    """`held_out` of all that is published, and with `reports` of what is recorded too: which data, its rows.

    `matrices`: the published file with every matrix's GFLOP/s (not part of this repository), for strata by matrix.
    """
    for sparse in (False, True):
        yield PRODUCTS, products(sparse) if reports is None else products_and_records(reports, sparse)
    for library in published.LIBRARIES:
        yield STRATA, strata(library)
        if matrices is not None:
            yield MATRICES, held_out(published.by_matrix(matrices, library))
    if reports is not None and (pairs := recorded(reports)) is not None:
        yield PAIRS, held_out(pairs)


def all_held_out(reports: Path | None = None) -> pd.DataFrame:
    """All of it at once, with the column `data`."""
    return pd.concat([found.assign(data=data) for data, found in held_outs(reports)])


@functools.cache
def bars() -> Mapping[tuple[str, str], float]:
    """By kernel and arithmetic of published times: the error bar of a GPU of which no time is known."""
    groups = all_held_out().groupby(["kernel", "math"])["off"]
    return {(str(kernel), str(math_class)): within(off) for (kernel, math_class), off in groups}


def errors(reports: Path, matrices: Path | None = None) -> pd.DataFrame:
    """Every hold-out (`COLUMNS`): products and strata of matrices that others published, the former with this suite's
    records, records on two GPUs to each other, and to the four GPUs whose programs differ by a factor."""
    every = [*held_outs(reports, matrices)]
    every += [(PROGRAMS, found) for one in published.LIBRARIES if (found := programs(reports, one)) is not None]
    return pd.DataFrame([line for data, found in every for line in _lines(data, found)], columns=list(COLUMNS))


def recorded(reports: Path) -> pd.DataFrame | None:
    """Hot times that this suite recorded on several listed GPUs of the same product, kernel and arithmetic, where these
    are `FEWEST` or more: of a dense one the fastest, else those of the same matrix and program, the fastest that the
    GPUs have in common."""
    parts = []
    for folder in folders(reports, "*/*"):
        if folder.parent.name in gpus():
            frame = load(folder).frame
            frame = frame[(frame["policy"] == "hot") & frame["op"].isin(["spmm", "gemm"]) & (frame["shape"] == "")]
            dense = frame["kernel"].map(_is_dense).astype(bool)
            fastest = selected(frame[dense]).assign(variant="", pattern_hash="")
            some = (fastest, frame[~dense & frame["median_us"].notna()])
            parts += [part.assign(gpu=folder.parent.name) for part in some]
    if not parts:
        return None
    rows = work_of(pd.concat(parts, ignore_index=True))
    program = ["kernel", "math", "problem", "pattern_hash", "variant"]
    rows = rows.drop_duplicates(["gpu", *program])
    rows = rows[rows.groupby(program)["gpu"].transform("nunique") > 1]
    if rows.empty:
        return None
    rows["of_all"] = rows.groupby(program)["us"].transform("mean")
    rows = rows.sort_values("of_all", kind="stable").drop_duplicates(["gpu", "kernel", "math", "problem"])
    many = rows.groupby(["kernel", "math"])["problem"].transform("nunique") >= FEWEST
    return rows[many] if many.any() else None


def _is_dense(kernel: str) -> bool:
    return about(kernel).work == "dense"


def work_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of records as `model.transfer` takes them; `problem` says sizes and counted zeros."""
    dense = frame["kernel"].map(_is_dense).to_numpy(bool)
    tensor = np.asarray([about(str(kernel)).pattern == "2:4" for kernel in frame["kernel"]], bool)
    nnz, elements = frame["nnz"].clip(lower=1).to_numpy(float), (frame["m"] * frame["k"]).to_numpy(float)
    level = np.where(dense, 0, np.round(np.round((1 - nnz / elements) / SAME_LEVEL) * SAME_LEVEL, 3))
    sizes = zip(frame["kernel"], frame["math"], frame["m"], frame["k"], frame["n"], level, strict=True)
    return frame.assign(
        problem=[" ".join(map(str, one)) for one in sizes],
        kind=np.where(dense | tensor, "dense", "sparse"),
        flops=2.0 * np.where(dense, elements, nnz) * frame["n"].to_numpy(float),
        launch_us=frame["floor_us"].fillna(0.0),
        us=frame["median_us"],
    )


def programs(reports: Path, library: str) -> pd.DataFrame | None:
    """Records of the strata's matrices, predicted for each of the four GPUs: with one factor between the published
    program and the recorded one, from the other three. `raw`: the logarithm of predicted over taken, without launches,
    before it."""
    parts = []
    for folder in folders(reports, f"*/{dlmc_n512.NAME}"):
        if folder.parent.name not in gpus() or not dlmc_n512.complete(results := load(folder)):
            continue
        means = dlmc_n512.by_gpu(results)
        name = gpu_name(results.gpu, results.environment)
        mine = means[(means["gpu"] == name) & (means["policy"] == "hot") & (means["library"] == library)]
        theirs = published.strata(library)
        work = theirs.drop_duplicates("problem").set_index("problem")
        keys = [f"{row.method} {row.level:g}" for row in each(mine)]
        floor = float(results.frame.loc[results.frame["policy"] == "hot", "floor_us"].median())
        here = work.loc[keys].assign(gpu=results.gpu, us=mine["geomean_us"].tolist(), launch_us=floor).reset_index()
        parts.append(told(here, theirs))
    if not parts:
        return None
    found = pd.concat(parts, ignore_index=True)
    launch = found["launch_us"]
    working = np.maximum(found["us"] - launch, LEAST * found["us"])
    found["raw"] = np.log((found["predicted"] - launch) / working)
    others = {slug: found.loc[found["gpu"] != slug, "raw"].mean() for slug in found["gpu"].unique()}
    found["predicted"] = launch + (found["predicted"] - launch) * np.exp(-found["gpu"].map(others))
    return found.assign(off=np.log(found["predicted"] / found["us"]))


def _lines(data: str, found: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """A row per kernel, arithmetic and GPU held out, without calibration and with some problems."""
    for (kernel, math_class), rows in found.groupby(["kernel", "math"], sort=False):
        for slug, mine in rows.groupby("gpu", sort=False):
            others = rows.loc[rows["gpu"] != slug, "off"]
            bar = within(others) if len(others) else math.nan
            said = (data, kernel, math_class, gpus()[str(slug)].name)
            aim = AIMS.get(str(kernel), AIM)
            yield (*said, 0, *_summary(mine["predicted"].to_numpy() / mine["us"].to_numpy(), bar), aim)
            if len(mine) > CALIBRATION:
                quotients, bars_told = _calibrated(mine)
                yield (*said, CALIBRATION, *_summary(quotients, bars_told), AIM_CALIBRATED)


def _calibrated(mine: pd.DataFrame) -> tuple[Floats, Floats]:
    """Told over taken of what each draw leaves out, and the error bar of that draw, beside it."""
    rng = np.random.default_rng(0)
    numbers = mine[["predicted", "us", "flops", "bytes", "m", "n"]].astype(float).to_records(index=False)
    quotients, bars_told = [], []
    for _ in range(DRAWS):
        order = rng.permutation(len(mine))
        some, rest = numbers[order[:CALIBRATION]], numbers[order[CALIBRATION:]]
        predicted = put_right(some, rest) / rest["us"]
        quotients.append(predicted)
        bars_told.append(np.full(len(rest), left_out(some)))
    return np.concatenate(quotients), np.concatenate(bars_told)


def put_right(some: Work, rest: Work) -> Floats:
    """`predicted` of `rest` by what was taken (`us`) of `some`."""
    told, taken, others = (np.asarray(one) for one in (some["predicted"], some["us"], rest["predicted"]))
    return calibrate(told, some, taken, others, rest)


def left_out(some: Work) -> float:
    """The error bar of a calibration: of its own problems, a quarter left out in turn."""
    at = np.arange(len(some)) % 4
    off = [np.log(put_right(some[at != one], some[at == one]) / np.asarray(some["us"][at == one])) for one in range(4)]
    return within(np.concatenate(off))


def _summary(quotients: Floats, bar: float | Floats) -> tuple[float, ...]:
    off = np.abs(quotients - 1)
    inside = np.mean(np.abs(np.log(quotients)) <= np.log1p(bar))
    return (
        int(off.size), float(off.mean()), float(np.quantile(off, 0.9)), geometric_mean(quotients.tolist()),
        float(np.mean(bar)), float(inside),
    )  # fmt: skip
