"""ESE's comparison: a step of an LSTM of 1,024 cells, dense and with 90 % zeros."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.results import each
from nnzbench.facts.selector import (
    CUBLAS,
    CUSPARSE,
    CUSPARSE_COLUMN,
    DENSE,
    FP16,
    TF32,
    kernel,
    own,
)
from nnzbench.facts.table import Comparison
from nnzbench.papers.eie import LAYER, SPARSE, queues
from nnzbench.problems.experiment import AND_F16, Experiment, dtypes_of
from nnzbench.report.data import published
from nnzbench.report.pages.page import Answer, Dots, Made, Page, Pivot, Printed, Published, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "ese_lstm",
    "A step of an LSTM of 1,024 cells, dense and sparse",
    "ESE (FPGA 2017)",
    "Section 6.3, table 8",
    {**dict.fromkeys(("cublas", "cublaslt", "row_stream"), AND_F16), **dtypes_of("cusparse", "sputnik")},
)
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


def _printed(view: View) -> pd.DataFrame:
    """The paper's dense over its sparse step on its GPU, at batch 32, beside both products."""
    frame = published.read("ese_lstm_us", ("platform", "matrix", "time_us"))
    times = frame[frame["platform"] == "GPU"].set_index("matrix")["time_us"]
    return pd.DataFrame({"layer": PRODUCTS, "batch": 32, "value": times["dense"] / times["sparse"]})


def _steps(view: View) -> pd.DataFrame | None:
    """Times of the two products and of both, one after another; a step without one of them has no line."""
    times = view.cells(SIDES, UNIFORM).pivot_table(
        index=["batch", "subject", "policy"], columns="layer", values="median_us", sort=False
    )
    if not set(PRODUCTS) <= set(times):
        return None
    times = times.dropna().assign(step=times["gates"] + times["projection"]).reset_index()
    rows = [
        {"batch": f"{batch:g}", "kernel": subject}
        | {f"{part}, {row.policy}": getattr(row, part) for row in each(some) for part in (*PRODUCTS, "step")}
        for (batch, subject), some in times.groupby(["batch", "subject"], sort=False)
    ]
    return pd.DataFrame(rows)


def _queues(view: View) -> pd.DataFrame:
    return queues.table(EXPERIMENT.name)


def page() -> Page:
    """Its page."""
    each_sparse = (CUSPARSE_COLUMN, CUSPARSE, kernel("sputnik"), own(), own("f16"))
    return Page(
        question="Is ESE's pruned LSTM faster in cuSPARSE than dense in cuBLAS?",
        intro="*ESE: Efficient Speech Recognition Engine with Sparse LSTM on FPGA* (FPGA 2017) prunes an LSTM of 1,024 "
        "cells to 10 % and compares its chip with a CPU and a GPU at batch 32, where the GPU is slower with the sparse "
        "matrices than with dense ones. Here are the two products of a step: the four gates as one matrix (4096×665) "
        "and the projection (512×1024). The element-wise steps, which the published times include, are left out, so "
        "that ratios are comparable and times are not. The paper's cuSPARSE is here its column-major default. "
        "`sputnik` and `row_stream` have no product with a single vector. ESE prunes so that each of its processing "
        "elements, which hold interleaved rows, keeps as many weights (load-balance-aware, 5.5 to 6.2 times as fast "
        "as dense on its chip): the same sizes with weights whose rows vary are pruned so (`balanced_`) and as a whole "
        "(`whole_`). How even that makes the 32 elements of a channel is simulated; what it does on a GPU is timed.",
        attributes=LAYER,
        answers=(
            Answer(STEPS[0], CUSPARSE_COLUMN, FP16, (CUSPARSE, own(), own("f16")), CUBLAS, "ese-gpu"),
            Answer(STEPS[1], CUSPARSE, TF32, (CUSPARSE_COLUMN,)),
        ),
        comparison=Comparison(SIDES[3:], (FP16, TF32, DENSE, CUBLAS), STEPS),
        figures=(
            Dots("speedup", "One step of ESE's LSTM", (TF32, FP16, CUSPARSE, *SIDES[5:8]), DENSE, x="layer",
                 panels="batch", group=UNIFORM,
                 printed=Printed("sparse over dense step in the paper, its GPU", _printed)),
        ),
        tables=(
            Made("A step's products, µs", _steps, "sums of times", collapsed=False),
            Made("Share of clocks in which ESE's 32 elements work, by depth of their queues (simulated)", _queues,
                 "a simulation, not times of a GPU"),
            RatioTable("Pruned evenly over elements, over pruned as a whole",
                       Comparison((SPARSE,), (replace(SPARSE, label=f"{SPARSE.label} on the latter"),), PRUNED)),
            Pivot("µs pruned as a whole and evenly over elements", each_sparse, rows=("layer", "batch"),
                  group=Group(words="matrices pruned both ways", where="kind == 'elements'")),
            Published("The paper's step at batch 32", "ese_lstm_us",
                      {"platform": "on", "matrix": "matrix", "time_us": "µs", "power_w": "watts"}, collapsed=False),
        ),
        energy=Comparison((CUSPARSE_COLUMN, SPARSE), (FP16, CUBLAS), STEPS),
        baseline=CUSPARSE,
    )  # fmt: skip
