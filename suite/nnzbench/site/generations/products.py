"""Dense and 2:4 products on ten GPUs, type by type: times that others published, this suite's, and predicted ones."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nnzbench.core.gpus import Gpu, gpus
from nnzbench.data.problems import tables
from nnzbench.kernels.registry import about
from nnzbench.papers.nnzbench import gemm_2to4
from nnzbench.papers.predict import holdouts, published
from nnzbench.papers.predict.model import FEWEST, transfer
from nnzbench.papers.predict.records import cannot
from nnzbench.report.draw.canvas import grid, names_down, scale
from nnzbench.report.draw.style import INK
from nnzbench.report.published import read
from nnzbench.report.tables import ratio_text
from nnzbench.report.text import GAP, folded, markdown, number
from nnzbench.results.result_set import ResultSet, each, geometric_mean
from nnzbench.results.selector import MATHS
from nnzbench.results.table import facts_of_pairs

GPUS = (
    "tesla-v100-sxm2-16gb", "tesla-t4", "nvidia-geforce-rtx-2080-ti", "nvidia-a100-80gb-pcie",
    "nvidia-geforce-rtx-4090", "nvidia-h100-pcie", "nvidia-h100-80gb-hbm3", "nvidia-h200", "nvidia-geforce-rtx-5080",
    "nvidia-b200", "nvidia-gb10",
)  # fmt: skip
"""Rows of each table, H100 in both its forms; other measured GPUs follow."""
HOW = {"measured": "**measured**", "published": "published", "predicted": "*predicted*"}
MARKERS = {"measured": "o", "published": "o", "predicted": "x"}
TOKEN_COLOURS = dict(zip(gemm_2to4.TOKENS, ("#88CCEE", "#44AA99", "#CC6677", "#332288"), strict=True))
WIDTH_IN, ROW_IN, LEFT_IN = 4.6, 0.165, 1.35
"""Of a figure whose letters are read where a page shows it 420 pixels wide."""
KEYS = ["gpu", "how", "math", "m", "k", "n"]


def times(sets: Sequence[ResultSet]) -> pd.DataFrame:
    """A row per GPU, way of knowing (`how`: measured, published or predicted), type and product.

    Columns `KEYS`, `dense_us` and `sparse_us` (NaN: none), `dense_within` and `sparse_within` (error bars of predicted
    times, as fractions), `dense_least` and `sparse_least`, what the data sheet lets the product take, µs, `dense_tuned`
    and `sparse_tuned` (false of measured times of a search cut short).
    """
    measured = [one for one in sets if one.experiment == gemm_2to4.NAME and one.gpu in gpus()]
    return _times(measured) if measured else _unmeasured()


@functools.cache
def _unmeasured() -> pd.DataFrame:
    return _times([])


def _times(sets: Sequence[ResultSet]) -> pd.DataFrame:
    asked = {(one.dtype, one.m, one.k, one.n) for one in tables.rows(gemm_2to4.NAME, full=True)}
    sides = []
    for sparse, name in ((False, "dense"), (True, "sparse")):
        measured = [holdouts.recorded_products(one, sparse).assign(how="measured") for one in sets]
        known = pd.concat([published.products(sparse).assign(how="published"), *measured])
        kernel = holdouts.PRODUCT_KERNELS[sparse][0]
        predicted = [one for slug in GPUS for one in _predicted(known, gpus()[slug], kernel)]
        every = pd.concat([known, *predicted], ignore_index=True)
        every = every[[key in asked for key in zip(every["math"], every["m"], every["k"], every["n"], strict=True)]]
        every = every.drop_duplicates(KEYS).assign(least=_least(every.drop_duplicates(KEYS)))
        names = {one: f"{name}_{one}" for one in ("us", "within", "least", "tuned")}
        sides.append(every.reindex(columns=[*KEYS, *names]).rename(columns=names).set_index(KEYS))
    found = sides[0].join(sides[1], how="outer").reset_index()
    return found.assign(**{name: found[name].ne(False) for name in ("dense_tuned", "sparse_tuned")})


def _predicted(known: pd.DataFrame, gpu: Gpu, kernel: str) -> Iterator[pd.DataFrame]:
    """Of each type that the GPU multiplies, what nobody timed on it, each with its error bar.

    Those timed calibrate the others where they are `FEWEST` or more.
    """
    for math_class, rows in known.groupby("math", sort=False):
        one = str(math_class)
        if not gpu.rate(one) or cannot(kernel, one, gpu.arch):
            continue
        work = rows.drop_duplicates("problem").set_index("problem")
        work["predicted"] = transfer(rows, gpu).reindex(work.index)
        timed = rows[rows["gpu"] == gpu.slug].drop_duplicates("problem").set_index("problem")["us"]
        rest = work[~work.index.isin(timed.index)].dropna(subset="predicted")
        us, within = rest["predicted"].to_numpy(), holdouts.bars()[kernel, one]
        some = work.assign(us=timed).dropna(subset=["us", "predicted"])
        if len(some) >= FEWEST and len(rest):
            us, within = holdouts.put_right(some, rest), holdouts.left_out(some)
        yield rest.reset_index().assign(gpu=gpu.slug, how="predicted", us=us, within=within)


def _least(rows: pd.DataFrame) -> pd.Series[float]:
    """Operations at the rate of the data sheet, or bytes of device memory, whichever takes longer."""
    targets = [gpus()[str(slug)] for slug in rows["gpu"]]
    rates = np.asarray([gpu.rate(str(one)) for gpu, one in zip(targets, rows["math"], strict=True)])
    bandwidths = np.asarray([gpu.bandwidth_gbs for gpu in targets])
    least: pd.Series[float] = np.maximum(rows["flops"] / rates * 1e-6, rows["bytes"] / bandwidths * 1e-3)
    return least


def facts(found: pd.DataFrame) -> pd.DataFrame:
    """2:4 over dense in one type, and dense INT8 and FP8 over dense fp16, by GPU, way of knowing and tokens.

    Rows of facts.csv; beside their columns: `gpu`, `how`, `math`, `tokens` and `fact` (`2:4` or `type`).
    """
    half = found.loc[found["math"] == "f16", [*KEYS, "dense_us", "dense_tuned"]].drop(columns="math")
    half = half.rename(columns={"dense_us": "half_us", "dense_tuned": "sparse_tuned"})
    typed = found[found["math"].isin(["i8", "f8"])].drop(columns="sparse_tuned")
    typed = typed.merge(half, on=[one for one in KEYS if one != "math"])
    sparse = found.assign(fact="2:4", us=found["sparse_us"], over_us=found["dense_us"])
    typed = typed.assign(fact="type", us=typed["dense_us"], over_us=typed["half_us"])
    pairs = pd.concat([sparse, typed], ignore_index=True)
    where = [f"{gpus()[str(row.gpu)].name} ({row.how})" for row in each(pairs)]
    words = pairs["math"].map(MATHS)
    is_sparse = pairs["fact"] == "2:4"
    pairs["subject"] = np.where(is_sparse, "2:4 ", "dense ") + words + " on " + where
    pairs["baseline"] = "dense " + words.where(is_sparse, MATHS["f16"]) + " on " + where
    pairs["group"] = gemm_2to4.NAME + " " + pairs["n"].astype(str) + " columns"
    pairs = pairs.assign(experiment=gemm_2to4.NAME, policy="hot", printed=math.nan, one_run=True)
    pairs["tuned"] = pairs["dense_tuned"] & pairs["sparse_tuned"]
    pairs = pairs.dropna(subset=["us", "over_us"])
    which = pairs[["subject", "group", "gpu", "how", "math", "n", "fact"]].rename(columns={"n": "tokens"})
    return facts_of_pairs(pairs).merge(which.drop_duplicates(["subject", "group"]), on=["subject", "group"])


def section(found: pd.DataFrame, predicted: pd.DataFrame, reports: Path | None = None) -> str:
    """A table a type, what FP8 and INT8 change, and what was left out; `reports` hold records that are held out too."""
    parts = []
    for math_class in gemm_2to4.TYPES:
        rows = found[found["math"] == math_class]
        counts = rows[rows["how"] == "published"].groupby("gpu")["dense_us"].count()
        title = (
            f"{MATHS[math_class]}, {counts.min()} products that all published GPUs with the type have: µs dense → 2:4, "
            "gain, and shares of what the data sheet allows (dense / 2:4)"
        )
        predicted_of = predicted[(predicted["fact"] == "2:4") & (predicted["math"] == math_class)]
        parts.append(folded(_type_table(rows, predicted_of), title, 0))
    title = "What FP8 and INT8 change: dense products over dense fp16 ones; and why FP4 is left out"
    parts.append(folded(_over_half(predicted[predicted["fact"] == "type"]) + "\n\n" + _fp4(), title, 0))
    parts.append(
        folded(_held_out(reports), "How far predicted times are off: every GPU held out, mean error and bias", 0)
    )
    return "\n\n".join(parts)


def _held_out(reports: Path | None) -> str:
    """A line per kernel and arithmetic, of published times and of recorded ones, a column per GPU that was held out."""
    every = holdouts.all_held_out(reports)
    known = {key: rows["off"] for key, rows in every.groupby(["data", "kernel", "math", "gpu"], sort=False)}
    slugs = sorted(every["gpu"].unique(), key=lambda slug: list(gpus()).index(slug))
    lines = []
    for data, kernel, math_class in every[["data", "kernel", "math"]].drop_duplicates().itertuples(index=False):
        cells = []
        for slug in slugs:
            off = known.get((data, kernel, math_class, slug))
            mean = math.nan if off is None else float(np.abs(np.expm1(off)).mean())
            cells.append(GAP if off is None else f"{100 * mean:.0f} % ({number(math.exp(off.mean()))})")
        lines.append([data, about(kernel).label or kernel, MATHS.get(math_class, "fp16, fp16 sums"), *cells])
    return markdown(["", "", "", *map(short, slugs)], lines, left=3)


def untimed(found: pd.DataFrame) -> str:
    """The GPUs of which all times are predicted."""
    timed = set(found.loc[found["how"] != "predicted", "gpu"])
    return ", ".join(short(slug) for slug in GPUS if slug not in timed)


def _places(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """GPUs and how their times are known, in the order of `GPUS`."""
    there = set(zip(rows["gpu"], rows["how"], strict=True))
    order = [*GPUS, *sorted({gpu for gpu, _ in there} - set(GPUS))]
    return [(gpu, kind) for gpu in order for kind in HOW if (gpu, kind) in there]


def _type_table(rows: pd.DataFrame, gains: pd.DataFrame) -> str:
    lines, known = [], {(row.gpu, row.how, row.tokens): row for row in each(gains)}
    total = len(rows[["m", "k", "n"]].drop_duplicates())
    for gpu, kind in _places(rows):
        mine = rows[(rows["gpu"] == gpu) & (rows["how"] == kind)]
        bar = " / ".join(f"± {100 * one:.0f} %" for one in mine[["dense_within", "sparse_within"]].max() if one == one)
        counts = [count for count in mine[["dense_us", "sparse_us"]].count() if count]
        some = f", {' / '.join(map(str, dict.fromkeys(counts)))} of {total}" if min(counts) < total else ""
        cells = []
        for tokens in gemm_2to4.TOKENS:
            gain = known.get((gpu, kind, tokens))
            cells.append(_cell(mine[mine["n"] == tokens], "" if gain is None else f"**{ratio_text(gain)}**"))
        lines.append([short(gpu), HOW[kind] + some + (f" {bar}" if bar else ""), *cells])
    return markdown(["GPU", "", *(f"{tokens:,} tokens" for tokens in gemm_2to4.TOKENS)], lines, left=2)


def _cell(some: pd.DataFrame, gain: str) -> str:
    known = {name: some.dropna(subset=[f"{name}_us"]) for name in ("dense", "sparse")}
    if all(one.empty for one in known.values()):
        return GAP
    us = " → ".join(number(geometric_mean(one[f"{name}_us"])) if len(one) else "" for name, one in known.items())
    us = us.removesuffix(" → ").strip()
    shares = " / ".join(
        f"{100 * geometric_mean(one[f'{name}_least'] / one[f'{name}_us']):.0f} %"
        for name, one in known.items()
        if len(one)
    )
    return " ".join(filter(None, (us, gain, f"({shares})")))


def _over_half(gains: pd.DataFrame) -> str:
    lines = []
    for gpu, kind in _places(gains):
        mine = gains[(gains["gpu"] == gpu) & (gains["how"] == kind)]
        known = {(row.math, row.tokens): ratio_text(row) for row in each(mine)}
        cells = [known.get((one, tokens), GAP) for one in ("f8", "i8") for tokens in gemm_2to4.TOKENS]
        lines.append([short(gpu), HOW[kind], *cells])
    heads = [f"{MATHS[one]}, {tokens:,}" for one in ("f8", "i8") for tokens in gemm_2to4.TOKENS]
    return markdown(["GPU", "", *heads], lines, left=2)


def _fp4() -> str:
    rows = read("gemm_2to4_six_gpus", ("gpu", "dtype", "m", "k", "n", "dense_us"))
    rows = rows[(rows["dtype"] == "f4") & (rows["dense_us"] > 0)]
    rate = 2e-6 * rows["m"] * rows["k"] * rows["n"] / rows["dense_us"]
    parts = []
    for name, some in rate.groupby(rows["gpu"]):
        gpu = gpus()[published.SIX[str(name)]]
        sheet = 4 * gpu.rate("f16")
        parts.append(f"{short(gpu.slug)} {len(some)} products, up to {some.max():,.0f} TFLOP/s of {sheet:,.0f}")
    return (
        "FP4 is published for few products and not drawn (dense, fastest over four times the fp16 rate of the data "
        f"sheet): {'; '.join(parts)}. Rates beyond the sheet are no products done."
    )


def short(slug: str) -> str:
    """The GPU's name without its maker."""
    name = gpus()[slug].name
    for word in ("NVIDIA ", "GeForce ", "Tesla "):
        name = name.removeprefix(word)
    return name


def figure(gains: pd.DataFrame, fact: str, title: str) -> Figure | None:
    """A panel a type: times as fast, a row per GPU and a marker per number of tokens; filled where measured, hollow
    where published, a cross where predicted."""
    rows = gains[gains["fact"] == fact]
    if rows.empty:
        return None
    types = [one for one in gemm_2to4.TYPES if one in set(rows["math"])]
    places = {one: _places(rows[rows["math"] == one]) for one in types}

    def draw(axis: Axes, math_class: str, _: None) -> None:
        names_down(axis, [short(gpu) for gpu, _ in places[math_class]])
        for row in each(rows[rows["math"] == math_class]):
            place = places[math_class].index((row.gpu, row.how))
            axis.add_line(_line(TOKEN_COLOURS[row.tokens], row.how, [row.ratio], [place]))
        scale(axis, "ratio", "x", rows.loc[rows["math"] == math_class, "ratio"])
        axis.set_title(MATHS[math_class], pad=4)

    legend = {f"{tokens:,} tokens": _line(colour, "measured") for tokens, colour in TOKEN_COLOURS.items()}
    legend |= {kind: _line(INK, kind) for kind in HOW}
    heights = [ROW_IN * len(places[one]) for one in types]
    return grid(types, [None], heights, title, "", legend, draw, LEFT_IN, wide=WIDTH_IN)


def _line(colour: str, kind: str, xs: Sequence[float] = (), ys: Sequence[float] = ()) -> Line2D:
    face = "white" if kind == "published" else colour
    return Line2D(xs, ys, color=colour, marker=MARKERS[kind], mfc=face, mec=colour, ms=5.5, ls="")
