"""Layers of language models: from how many zeros on a sparse product beats dense fp16 or FP8, and what bounds it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnzbench.core.architectures import sm_count
from nnzbench.core.gpus import peaks_of
from nnzbench.data.problems import tables
from nnzbench.data.problems.operands import I8_STEPS, Maker
from nnzbench.data.problems.problem import DType
from nnzbench.kernels.tensor.spmm import words_per_weight
from nnzbench.report import published
from nnzbench.report.page import Answer, Crossings, Lines, Made, Map, Page, Pivot, Printed, RatioTable, Rows, View
from nnzbench.results.crossover import times_as_fast
from nnzbench.results.groups import Group
from nnzbench.results.result_set import each, geometric_mean, percent
from nnzbench.results.selector import CUSPARSE_F16, FP16, FP16_PRUNED, MATHS, best_dense, kernel, written_here
from nnzbench.results.table import Comparison


def opt_layers() -> Page:
    """Flash-LLM's own benchmark: twelve layers of OPT models, few columns, against the dense product and Sputnik."""
    flash, sputnik = kernel("flash_llm", "f16"), kernel("sputnik", "f16")
    sparse = flash, kernel("spinfer", "f16"), kernel("tensor_spmm", "f16")
    levels = tuple(Group(level=level) for level in (70, 80, 90))
    return Page(
        answers=tuple(
            Answer(group, flash, FP16, sparse[1:], kernel("cublas", "f16"), f"flash-llm-cublas-{group.level}")
            for group in levels
        ),
        comparison=Comparison(sparse, (FP16, sputnik), levels),
        facts=(Comparison(sparse, (FP16,), by=("label", "level", "n")),),
        baseline=FP16,
        arithmetic="fp16 with sums in fp32",
    )  # fmt: skip


def _macko_authors(view: View) -> pd.DataFrame:
    """What MACKO's authors print: geometric means over their sizes, by GPU and zeros."""
    found = published.read("macko_three_gpus", ("gpu", "m", "k", "zeros", "macko_us", "cublas_us", "cusparse_us"))
    found["ratio"] = [*map(times_as_fast, found["macko_us"], found["cublas_us"])]
    found["level"] = [f"{percent(one)} zeros" for one in found["zeros"]]
    return found.pivot_table("ratio", "gpu", "level", geometric_mean).rename_axis("GPU").reset_index()


def macko_spmv() -> Page:
    """MACKO's own benchmark: products with one column, against the dense one, cuSPARSE and Sputnik."""
    macko, delta = kernel("macko", "f16"), kernel("delta_spmv", "f16")
    levels = tuple(Group(level=level) for level in (50, 70, 90))
    claims = "macko-cublas-50", "", "macko-cublas-90"
    return Page(
        answers=tuple(
            Answer(group, macko, FP16, (delta,), kernel("cublas", "f16"), claim)
            for group, claim in zip(levels, claims, strict=True)
        ),
        comparison=Comparison((macko, delta), (FP16, CUSPARSE_F16, kernel("sputnik", "f16")), levels),
        figures=(Lines("speedup", "Over dense fp16", (macko, delta), baseline=FP16),),
        tables=(
            Pivot("µs", (macko, delta, FP16, CUSPARSE_F16), rows=("size", "level")),
            Made("What the authors print: MACKO over cuBLAS, geometric means of 31 sizes", _macko_authors,
                 "printed numbers of other GPUs"),
        ),
        facts=(Comparison((macko, delta), (FP16,), by=("size", "level")),),
        baseline=FP16,
        arithmetic="fp16 with sums in fp32",
    )  # fmt: skip


def vnm_layers() -> Page:
    """V:N:M patterns by VENOM's kernel, against the dense product and kernels that see no structure or 2:4 in them."""
    venom = kernel("venom", "f16")
    sparse = venom, kernel("tensor_spmm", "f16"), kernel("cusparselt", "f16")
    patterns = ("64:2:8", "64:2:16", "128:2:10")
    groups = tuple(
        Group(like=f"*_v{one.replace(':', '_')}", words=one, columns=columns)
        for columns in (256, 1024, 64, 16)
        for one in patterns
    )
    return Page(
        answers=tuple(Answer(group, venom, FP16, sparse[1:], kernel("cublas", "f16")) for group in groups[:3]),
        comparison=Comparison((venom,), (FP16, *sparse[1:]), groups),
        tables=(Pivot("µs", (*sparse, FP16), rows=("label", "n")),),
        facts=(Comparison((venom,), (FP16,), by=("label", "n")),),
        baseline=FP16,
        arithmetic="fp16 with sums in fp32",
    )


def fp8_layers() -> Page:
    """Layers of language models in FP8: weights without structure, e4m3 values, against dense FP8."""
    dense, tensor, delta = best_dense("f8"), kernel("tensor_spmm", "f8"), kernel("delta_spmv", "f8")
    sparse = tensor, delta
    many = tuple(Group(level=level, columns=16) for level in (80, 90, 70))
    one = Group(level=90, columns=1)
    return Page(
        answers=(*(Answer(group, tensor, dense) for group in many), Answer(one, delta, dense)),
        comparison=Comparison(sparse, (dense,), (*many, one)),
        tables=(Pivot("Times as fast as the best dense FP8 product, by columns", sparse, "ratio", dense,
                      ("subject", "label", "level"), "n"),),
        energy=Comparison((written_here("f8"),), (dense,)),
        baseline=dense,
        arithmetic="e4m3 (FP8) weights with fp16 results",
    )  # fmt: skip


KERNELS = ("tensor_spmm", "delta_spmv", "flash_llm", "spinfer")
SHOWN = Group(where="layer == 'llama_70b_qo' and pattern == '' and n in (1, 16, 128)", words="8192×8192")
LANES = 32
_COUNTS_PER_CLOCK = 16
"""Population counts of a multiprocessor per clock (CUDA programming guide, arithmetic instructions, 8.0 to 9.0)."""


def _flash_llm_clocks(density: float, n: int) -> float:
    """Of a tile of 128 x 64: a wavefront of 128 bytes clears a row, places 32 nonzeros, and brings a row to a warp."""
    readers = 1 if n <= 32 else 2
    return (128 + 128 * 64 * density / LANES + 128 * readers) / (128 * 64) * math.ceil(n / 128)


def _spinfer_clocks(_: float, n: int) -> float:
    """Of a strip of 16 x 64, for at most 64 columns: 62 population counts of each lane."""
    return 62 * LANES / _COUNTS_PER_CLOCK / (16 * 64) * math.ceil(n / 64)


DECODE: Mapping[str, Callable[[float, int], float]] = {
    "flash_llm": _flash_llm_clocks,
    "spinfer": _spinfer_clocks,
    "tensor_spmm": lambda density, _: words_per_weight(density) / LANES,
    "delta_spmv": lambda density, _: density / LANES,
}
"""Clocks of a multiprocessor per weight, zeros counted, that the narrowest unit of a kernel's decoding takes at least,
for a share of nonzeros and a number of columns. Where lanes meet in a bank of shared memory it takes longer."""


def decode_us(name: str, density: float, weights: int, n: int, arch: str, clock_mhz: float) -> float:
    """Least time of decoding on all multiprocessors, microseconds; NaN for a kernel of which it is not known."""
    clocks = DECODE.get(name)
    return clocks(density, n) * weights / sm_count(arch) / clock_mhz if clocks else math.nan


def _bounds(view: View) -> Rows:
    """Times (hot), bytes and decoding per weight, and the roofline, of one layer."""
    cells = view.cells([FP16, *(kernel(name, "f16") for name in KERNELS)], SHOWN)
    cells = cells[cells["policy"] == view.policies[0]].sort_values(["order", "n", "level"], kind="stable")
    dense = cells["subject"] == FP16.label
    cells = cells[~(dense & cells.duplicated(["subject", "n"]))]  # one time stands for all levels
    yield from map(_line, each(cells))


def _line(row: Any) -> dict[str, object]:
    weights, density = row.m * row.k, row.nnz / (row.m * row.k)
    sparse = row.kernel in DECODE
    decoded = words_per_weight(density) if row.kernel == "tensor_spmm" else density
    moved = (row.bytes - 2.0 * row.n * (row.m + row.k)) / weights
    decoding = decode_us(row.kernel, density, weights, row.n, row.arch, row.sm_clock_mhz)
    return {
        "kernel": row.subject, "columns": str(row.n), "zeros (%)": f"{row.level:g}" if sparse else "any",
        "µs": row.median_us, "bytes a weight": moved, "decoded a weight": decoded if sparse else math.nan,
        "decoding, µs": decoding, "roofline, µs": row.limit_us, "of the roofline (%)": row.roofline,
    }  # fmt: skip


UNIFORM = Group(where="pattern == ''", words="uniform patterns")
LARGE = Group(where="pattern == '' and 2 * m * k >= 2**26", words="uniform patterns of layers of 64 MB and more")
SMALL = Group(where="pattern == '' and 2 * m * k < 2**26", words="uniform patterns of layers of 32 MB")
MAGNITUDE = Group(where="pattern == '_mag'", words="patterns like magnitude pruning's")
TWO_OF_FOUR = Group(where="pattern == '_2of4'", words="2:4 patterns")
HALVED: tuple[DType, ...] = ("f16", "bf16", "i8", "f8")
"""Arithmetics in which 2:4 patterns are multiplied, and dense weights of the same layers."""
ROWS = 256


def against_all(level: int, n: int, sizes: Group = UNIFORM) -> Group:
    """Uniform patterns at a level beside the same layers in every arithmetic, dense and 2:4."""
    words = f"{sizes.words} at {level} % zeros"
    cases, where = rf"(\w+?)_(\d+x\d+x\d+)_{level}_uniform", sizes.where.partition(" and ")[2]
    other = r"(\w+?)_2of4_(\d+x\d+x\d+)_50_nm"
    return Group(words=words, columns=n, where=where, cases=cases, baseline_cases=other)


@functools.cache
def rounding_errors() -> dict[str, float]:
    """By arithmetic, the root mean square of what rounding the operands makes of a 2:4 layer's results, of the results'
    own: of sums in float64, for `ROWS` rows."""
    (problem,) = (
        one
        for one in tables.load("llm_layers", full=True)
        if one.label == "llama2_7b_qkvo_2of4" and one.n == 16 and one.dtype == "f16"
    )
    given = Maker().operands(replace(problem, dtype="f32"))

    def product(dtype: DType) -> NDArray[np.float64]:
        own, steps = given.cast(dtype), I8_STEPS if dtype == "i8" else 1
        weights = own.sparse.band(0, ROWS).to_scipy().toarray()
        return weights @ own.dense["b"].astype(np.float64) / steps**2

    exact = product("f32")
    return {math: float(np.linalg.norm(product(math) - exact) / np.linalg.norm(exact)) for math in HALVED}


def _errors(view: View) -> pd.DataFrame | None:
    """What rounding the operands costs, and the largest error of a product of rounded ones on this GPU."""
    right = view.frame[(view.frame["status"] == "ok") & view.frame["math"].isin(HALVED)]
    found = right.groupby("math", observed=True)["relative_error"].max()
    lines = [(MATHS[one], f"{rounding_errors()[one]:.2g}", f"{found[one]:.2g}") for one in HALVED if one in found]
    heads = ["arithmetic", "rounding the operands, of the results (root mean square)", "summing, largest of Σ|ab|"]
    return pd.DataFrame(lines, columns=heads) if len(lines) > 1 else None


INT4_FLOOR = "INT4 by its bytes alone"
INT4_BYTES = 0.5 + 2 / 128
"""Of a weight in a weight-only INT4 product, with a 16-bit scale for each 128 of a row."""


def _int4_floor(view: View) -> pd.DataFrame | None:
    """Streamed times at 90 % zeros beside what an INT4 product's bytes would take at the bandwidth of a copy."""
    bandwidth = peaks_of(view.results.environment).copy_gbs
    cells = view.cells((written_here("f16"), FP16), UNIFORM)
    cells = cells[(cells["policy"] == "stream") & (cells["level"] == 90) & cells["n"].isin((1, 16, 64))]
    if cells.empty or not bandwidth:
        return None
    found = cells.pivot(index=["layer", "m", "k", "n"], columns="subject", values="median_us").reset_index()
    moved = INT4_BYTES * found["m"] * found["k"] + 2 * found["n"] * (found["m"] + found["k"])
    found = found.assign(**{INT4_FLOOR: 1e-3 * moved / bandwidth, "columns": found["n"].astype(str)})
    return found.drop(columns=["m", "k", "n"])[["layer", "columns", *found.columns[4:-1]]]


def over_int4_bytes(view: View, sizes: Group, n: int) -> float:
    """How many times as fast the best sparse kernel is at 90 % zeros as an INT4 product's bytes; NaN for no time."""
    if (found := _int4_floor(view)) is None:
        return math.nan
    mine = found[found["layer"].isin(view.of(sizes)["layer"]) & (found["columns"] == str(n))]
    return geometric_mean(map(times_as_fast, mine[written_here("f16").label], mine[INT4_FLOOR]))


def _flash_llm(view: View) -> pd.DataFrame:
    """Means over layers that Flash-LLM's authors print, at 8 to 64 columns on an A100."""
    found = published.read("tensor_core_kernels", ("kernel", "n", "zeros", "speedup"))
    found = found[found["kernel"] == "Flash-LLM"]
    return pd.DataFrame({"level": 100 * found["zeros"], "value": found["speedup"]})


def llm_layers() -> Page:
    """Layers of language models: from how many zeros on a sparse product beats dense fp16 on tensor cores."""
    tensor, delta, flash, spinfer, sputnik = (
        kernel(name, "f16") for name in ("tensor_spmm", "delta_spmv", "flash_llm", "spinfer", "sputnik")
    )
    best = written_here("f16")
    rivals = (*map(best_dense, HALVED), *(kernel("cusparselt", math) for math in HALVED))
    groups = tuple(
        Group(level=level, columns=n) for level, n in ((90, 16), (70, 16), (90, 1), (80, 16), (90, 64), (90, 256))
    )
    printed = Printed("Flash-LLM's authors, A100, 8 to 64 columns", _flash_llm)
    other = tuple(math for math in MATHS if math not in ("f16", "f8"))
    return Page(
        answers=(
            Answer(groups[0], tensor, FP16, (flash,)),
            Answer(groups[1], tensor, FP16, (flash,)),
            Answer(groups[2], delta, FP16, (tensor,)),
        ),
        comparison=Comparison((tensor, delta, flash, spinfer, sputnik), (FP16, CUSPARSE_F16), groups),
        figures=(
            Lines("speedup", "The best sparse kernel over dense fp16, layers of 64 MB and more", (best,),
                  baseline=FP16, lines="n", group=LARGE, printed=printed),
            Map("map", "Where sparsity pays"),
            Lines("layers", "The best sparse kernel over dense fp16, layer by layer", (best,), baseline=FP16,
                  lines="n", panels="layer", group=UNIFORM),
        ),
        tables=(
            Crossings("Zeros from which on the best sparse kernel is as fast as dense fp16, by columns", best, FP16,
                      ("layer",), group=UNIFORM),
            Crossings("The same on patterns like magnitude pruning's", best, FP16, ("layer",), group=MAGNITUDE,
                      collapsed=True),
            Pivot("Best sparse kernel over dense fp16, layers of 64 MB and more", (best,), "ratio", FP16, ("n",),
                  "level", LARGE),
            Pivot("Best sparse kernel over dense fp16, layers of 32 MB", (best,), "ratio", FP16, ("n",), "level",
                  SMALL),
            RatioTable("The best sparse fp16 kernel over the same layers dense and 2:4, in every arithmetic",
                       Comparison((best,), rivals, tuple(against_all(level, n) for n in (1, 16, 64)
                                                         for level in (90, 80, 70)))),
            Made("What rounding the same operands costs in each arithmetic", _errors, "rounding is no row of a kernel"),
            Made("INT4 weights by their bytes alone, beside what is measured: µs, streamed, 90 % zeros", _int4_floor,
                 "a floor is no row of a kernel"),
            Made("What bounds the kernels on 8192×8192, hot", _bounds,
                 "counts the work of decoding each format"),
        ),
        facts=(
            *(Comparison((one,), (FP16,), (UNIFORM,), ("layer", "n", "level")) for one in (tensor, flash)),
            Comparison((*rivals[1:], best), (FP16,), (TWO_OF_FOUR,), ("layer", "n")),
            *(Comparison((written_here(math),), (best_dense(math),), by=("layer", "n", "level")) for math in other),
            Comparison((FP16_PRUNED,), (FP16,), by=("layer", "level", "n")),
            Comparison((flash, spinfer, best), (FP16,), (UNIFORM,), ("layer", "level", "n")),
            Comparison((best,), (best_dense("f8"),),
                       tuple(against_all(90, n, sizes) for sizes in (LARGE, SMALL) for n in (1, 16, 64))),
        ),
        attributes=r"(?P<layer>.+?)(?P<pattern>_mag|_2of4|)",
        energy=Comparison((best,), (FP16, best_dense("f8"))),
        baseline=FP16,
        arithmetic="fp16 with sums in fp32 unless a row names another arithmetic",
    )  # fmt: skip
