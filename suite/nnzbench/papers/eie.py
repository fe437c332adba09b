"""EIE (ISCA 2016): the GPU rows of its table, and its format on a GPU; ESE (FPGA 2017): its LSTM."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd

from nnzbench.core import paths
from nnzbench.report import published
from nnzbench.report.page import Answer, Dots, Made, Page, Printed, RatioTable, View
from nnzbench.results.groups import Group
from nnzbench.results.selector import (
    CUBLAS,
    CUSPARSE,
    CUSPARSE_COLUMN,
    CUSPARSE_DEFAULT,
    CUSPARSE_F16,
    DENSE,
    FP16,
    TF32,
    Selector,
    kernel,
    own,
)
from nnzbench.results.table import Comparison

LAYER = r"(?P<layer>.+)_b(?P<batch>\d+)"
"""What a problem's label tells."""
SPARSE = Selector("best sparse fp32", ("cusparse", "sputnik", "row_stream"))


def _queues(experiment: str, view: View | None) -> pd.DataFrame:
    """An experiment's layers (`nnzbench fit queues`): padding, imbalance, share of clocks that work by depth."""
    found = pd.read_csv(paths.datasets() / "queues.csv")
    found = found[found["experiment"] == experiment]
    of = ["label", "elements", "padding", "imbalance"]
    shares = (
        found.pivot_table(index=of, columns="depth", values="utilisation", sort=False).mul(100).map("{:.0f} %".format)
    )
    shares.columns = [f"depth {depth}" for depth in shares.columns]
    told = shares.reset_index()
    told["padding"] = told["padding"].mul(100).map("{:.1f} %".format)
    return told.rename(columns={"label": "layer", "padding": "padding zeros", "imbalance": "most over mean"})


INPUTS = r"(?P<layer>.+)_a(?P<inputs>[\d.]+)"
SKIPPED = Group(words="layers after a ReLU, at their share of nonzero inputs", where="model != 'nt' and inputs < 100")
FULL = Group(words="the same layers without a zero among the inputs", where="model != 'nt' and inputs == 100")
ALL_USED = Group(words="layers of NeuralTalk, whose inputs are all used", where="model == 'nt'")
COLUMNS, COLUMNS_F16, READ, READ_F16 = (
    kernel(name, math, words=words)
    for name, words in (("eie_columns", "zeros skipped"), ("eie", "zeros read"))
    for math in ("f32", "f16")
)
SERIES = (COLUMNS, COLUMNS_F16, READ, READ_F16)


def eie_activations() -> Page:
    """Zeros among the inputs, which EIE skips: at the densities of its table, and how even its elements' work is."""
    return Page(
        attributes=INPUTS,
        answers=(
            Answer(SKIPPED, COLUMNS, FP16, (COLUMNS_F16, READ, CUSPARSE)),
            Answer(SKIPPED, COLUMNS, READ),
            Answer(FULL, COLUMNS, READ),
        ),
        comparison=Comparison(SERIES, (FP16, READ, READ_F16, CUSPARSE), (SKIPPED, FULL, ALL_USED)),
        figures=(
            Dots("speedup", "Zeros among the inputs skipped over all read", (COLUMNS, CUSPARSE), READ, x="layer",
                 panels="model", group=Group(words="layers at their share", where="inputs < 100 or model == 'nt'")),
        ),
        tables=(
            Made("Share of clocks in which EIE's 64 elements work, by depth of their queues (simulated)",
                 partial(_queues, "eie_activations"), "a simulation, not times of a GPU"),
        ),
        facts=(Comparison((COLUMNS, COLUMNS_F16), (READ, READ_F16), (SKIPPED, FULL, ALL_USED)),),
        baseline=READ,
    )  # fmt: skip


LAYERS, TWINS, LARGE = (
    tuple(Group(words=f"{words} at batch {batch}", where=f"batch == {batch} and {where}") for batch in (1, 8))
    for words, where in (
        ("layers", "kind == 'codebook_uniform'"),
        ("balanced twins of the layers", "kind == 'codebook_balanced'"),
        ("layers of over 3 million nonzeros", "kind == 'codebook_uniform' and nnz > 3e6"),
    )
)
UNIFORM_LAYERS = Group(words="layers", where="kind == 'codebook_uniform'")
BALANCED_ROWS = Group(words="balanced twins of the layers", where="kind == 'codebook_balanced'")
OTHER = ("cusparse", "sputnik", "row_stream")
OTHERS = Selector("best other sparse kernel, fp32 or fp16", OTHER, "f16", also="f32")
EIE = Selector("EIE's format, fp32 or fp16", ("eie",), "f16", also="f32")
BALANCED = Selector("balanced, fp32 or fp16", ("balanced",), "f16", also="f32")


def expected_bytes(zeros: float) -> float:
    """Bytes of EIE's entries for a nonzero at a uniformly random place, by the share of zeros.

    It takes a byte, and another for each break of a long run: q^16/(1 - q^16) of them at a share q in a long slice.
    """
    return 1 / (1 - zeros**16)


def _bytes(view: View) -> pd.DataFrame:
    rows = view.problems.query("batch == 1 and kind == 'codebook_uniform'")
    zeros = [level / 100 for level in rows["level"]]
    sizes = {
        "EIE's format, expected": [expected_bytes(one) for one in zeros],
        "dense fp16": [2 / (1 - one) for one in zeros],
    }
    return rows[["layer", "size"]].assign(**sizes)


def _accuracy(view: View) -> pd.DataFrame:
    """Errors of real pruned weights under a codebook of 15 values and zero."""
    found = pd.read_csv(paths.datasets() / "codebook_loss.csv").query("quantiser == 'codebook'")
    size = found["rows"].astype(str) + "×" + found["columns"].astype(str)
    found = found.assign(size=size, array="`" + found["array"] + "`")
    errors = {f"{name}_error": f"error of the {name}" for name in ("weights", "outputs")}
    found[list(errors)] = found[list(errors)].mul(100).map("{:.1f} %".format)
    return found[["array", "size", *errors, "nonzeros"]].rename(columns={"array": "weights", **errors})


def eie_format() -> Page:
    """EIE's own format on a GPU: one byte for a nonzero, beside CSR, dense products and balanced rows."""
    eie32, (eie, row_stream, balanced) = (
        kernel("eie"),
        (kernel(name, "f16") for name in ("eie", "row_stream", "balanced")),
    )
    sparse = (CUSPARSE, CUSPARSE_F16, *(kernel(name, math) for name in OTHER[1:] for math in ("f32", "f16")))
    twins = (kernel("balanced"), balanced, eie32, eie)
    return Page(
        attributes=LAYER,
        answers=tuple(Answer(group, eie, FP16, (eie32, row_stream, CUSPARSE_F16, CUSPARSE)) for group in LAYERS),
        comparison=Comparison(
            (eie, eie32, row_stream), (FP16, DENSE, CUSPARSE_F16, CUSPARSE), LAYERS
        ),
        figures=(
            Dots("speedup", "EIE's one byte per nonzero and CSR over dense fp16, nine layers",
                 (eie, eie32, *sparse[:2], row_stream), FP16, x="layer", panels="batch", group=UNIFORM_LAYERS),
        ),
        tables=(
            RatioTable("EIE's format over the next best sparse kernel on the same matrix",
                       Comparison((EIE,), (OTHERS,), (*LAYERS, *LARGE)), collapsed=False),
            RatioTable("EIE's format over balanced rows, both on the balanced twins",
                       Comparison((eie, eie32), (BALANCED,), TWINS)),
            Made("Bytes of the weights per nonzero", _bytes, "counts a format's entries"),
            Made("What the codebook costs real pruned weights in accuracy", _accuracy, "errors are in no record"),
        ),
        facts=(
            Comparison((DENSE, *sparse, eie32, eie), (FP16,), LAYERS),
            Comparison(twins, (FP16,), TWINS),
            Comparison((EIE,), (OTHERS,), (UNIFORM_LAYERS,), ("layer", "batch")),
            Comparison((eie,), (BALANCED,), (BALANCED_ROWS,), ("layer", "batch")),
        ),
        baseline=FP16,
        arithmetic="fp32 is IEEE fp32 with TF32 off; fp16 sums in fp32; the codebook's values are fp16 numbers in both",
    )  # fmt: skip


BATCHES = tuple(Group(words=f"layers at batch {batch}", where=f"batch == {batch}") for batch in (1, 64))


def _printed_table4(view: View) -> pd.DataFrame:
    """The paper's dense over its sparse time on a Titan X; both of a batch of 64 are per image."""
    frame = published.read("eie_table4_us", ("platform", "batch", "matrix", "layer", "time_us"))
    times = frame[frame["platform"] == "GPU"].pivot(index=["layer", "batch"], columns="matrix", values="time_us")
    return (times["dense"] / times["sparse"]).rename("value").reset_index()


def eie_table4() -> Page:
    """The GPU rows of EIE's table IV: nine fully connected layers, dense and sparse, at batch 1 and 64."""
    sputnik = kernel("sputnik")
    dense = (CUBLAS, kernel("cublaslt"), kernel("cublas", "tf32"), kernel("cublaslt", "tf32"), FP16)
    sparse = (CUSPARSE, CUSPARSE_DEFAULT, CUSPARSE_COLUMN, sputnik, own())
    return Page(
        attributes=LAYER,
        answers=tuple(
            Answer(group, CUSPARSE_COLUMN, FP16, (CUSPARSE, sputnik, own()), CUBLAS, claim)
            for group, claim in zip(BATCHES, ("eie-gpu-1", "eie-gpu-64"), strict=True)
        ),
        comparison=Comparison((CUSPARSE_COLUMN, CUSPARSE, sputnik, own()), (FP16, TF32, DENSE, CUBLAS), BATCHES),
        figures=(
            Dots("speedup", "Fully connected layers of EIE's table IV", (TF32, CUSPARSE, sputnik, own()), CUBLAS,
                 x="layer", panels="batch",
                 printed=Printed("cuSPARSE over cuBLAS in the paper, Titan X", _printed_table4)),
        ),
        facts=(Comparison((*dense[1:], *sparse), (CUBLAS,), BATCHES),),
        energy=Comparison((CUSPARSE_COLUMN, SPARSE), (FP16, CUBLAS), BATCHES),
        baseline=CUSPARSE,
    )  # fmt: skip


PRODUCTS = ("gates", "projection")
STEPS = tuple(
    Group(
        words=f"both products of a step at batch {batch}",
        where=f"batch == {batch} and kind == 'uniform'",
        statistic="total",
    )
    for batch in (32, 1)
)
PRUNED = tuple(
    Group(
        words=f"both products at batch {batch}, pruned evenly over elements, against pruned as a whole",
        cases=rf"balanced_(gates|projection)_b{batch}_",
        baseline_cases=rf"whole_(gates|projection)_b{batch}_",
        statistic="total",
    )
    for batch in (32, 1)
)
UNIFORM = Group(words="products of a step", where="kind == 'uniform'")
SIDES = (DENSE, TF32, FP16, CUSPARSE_COLUMN, CUSPARSE, kernel("sputnik"), own(), own("f16"), SPARSE)


def _printed_lstm(view: View) -> pd.DataFrame:
    """The paper's dense over its sparse step on its GPU, at batch 32, beside both products."""
    frame = published.read("ese_lstm_us", ("platform", "matrix", "time_us"))
    times = frame[frame["platform"] == "GPU"].set_index("matrix")["time_us"]
    return pd.DataFrame({"layer": PRODUCTS, "batch": 32, "value": times["dense"] / times["sparse"]})


def ese_lstm() -> Page:
    """ESE's comparison: a step of an LSTM of 1,024 cells, dense and with 90 % zeros."""
    return Page(
        attributes=LAYER,
        answers=(
            Answer(STEPS[0], CUSPARSE_COLUMN, FP16, (CUSPARSE, own(), own("f16")), CUBLAS, "ese-gpu"),
            Answer(STEPS[1], CUSPARSE, TF32, (CUSPARSE_COLUMN,)),
        ),
        comparison=Comparison(SIDES[3:], (FP16, TF32, DENSE, CUBLAS), STEPS),
        figures=(
            Dots("speedup", "One step of ESE's LSTM", (TF32, FP16, CUSPARSE, *SIDES[5:8]), DENSE, x="layer",
                 panels="batch", group=UNIFORM,
                 printed=Printed("sparse over dense step in the paper, its GPU", _printed_lstm)),
        ),
        tables=(
            Made("Share of clocks in which ESE's 32 elements work, by depth of their queues (simulated)",
                 partial(_queues, "ese_lstm"), "a simulation, not times of a GPU"),
        ),
        facts=(Comparison((SPARSE,), (replace(SPARSE, label=f"{SPARSE.label} on the latter"),), PRUNED),),
        energy=Comparison((CUSPARSE_COLUMN, SPARSE), (FP16, CUBLAS), STEPS),
        baseline=CUSPARSE,
    )  # fmt: skip
