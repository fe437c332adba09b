"""The GPU rows of EIE's table IV: nine fully connected layers, dense and sparse, at batch 1 and 64."""

from __future__ import annotations

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.selector import (
    CUBLAS,
    CUSPARSE,
    CUSPARSE_COLUMN,
    CUSPARSE_DEFAULT,
    DENSE,
    FP16,
    TF32,
    kernel,
    own,
)
from nnzbench.facts.table import Comparison
from nnzbench.papers.eie import LAYER, PAPER, SPARSE
from nnzbench.problems.experiment import AND_F16, Experiment, dtypes_of
from nnzbench.report.data import published
from nnzbench.report.pages.page import Answer, Dots, Page, Pivot, Printed, Published, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "eie_table4",
    "Fully connected layers, the GPU rows",
    PAPER,
    "Table IV",
    dtypes_of("cublaslt", "cusparse", "sputnik", "row_stream", cublas=AND_F16),
)
BATCHES = tuple(Group(words=f"layers at batch {batch}", where=f"batch == {batch}") for batch in (1, 64))


def _printed(view: View) -> pd.DataFrame:
    """The paper's dense over its sparse time on a Titan X; both of a batch of 64 are per image."""
    frame = published.read("eie_table4_us", ("platform", "batch", "matrix", "layer", "time_us"))
    times = frame[frame["platform"] == "GPU"].pivot(index=["layer", "batch"], columns="matrix", values="time_us")
    return (times["dense"] / times["sparse"]).rename("value").reset_index()


def page() -> Page:
    """Its page."""
    sputnik = kernel("sputnik")
    dense = (CUBLAS, kernel("cublaslt"), kernel("cublas", "tf32"), kernel("cublaslt", "tf32"), FP16)
    sparse = (CUSPARSE, CUSPARSE_DEFAULT, CUSPARSE_COLUMN, sputnik, own())
    return Page(
        question="Are EIE's pruned layers faster in cuSPARSE than dense in cuBLAS?",
        intro="The nine fully connected layers of table IV of *EIE: Efficient Inference Engine on Compressed Deep "
        "Neural Network* (ISCA 2016), whose GPU is a Titan X with cuBLAS and cuSPARSE. Sizes and densities are those "
        "of its table III, positions are uniformly random, and zeros among the activations are not used. The paper's "
        "cuSPARSE is here its column-major default. `sputnik` and `row_stream` have no product with a single vector. "
        "Times here are of the whole batch; the paper's must be per image, because its dense times at batch 64 would "
        "otherwise ask for more than ten times the arithmetic of its GPU.",
        attributes=LAYER,
        answers=tuple(
            Answer(group, CUSPARSE_COLUMN, FP16, (CUSPARSE, sputnik, own()), CUBLAS, claim)
            for group, claim in zip(BATCHES, ("eie-gpu-1", "eie-gpu-64"), strict=True)
        ),
        comparison=Comparison((CUSPARSE_COLUMN, CUSPARSE, sputnik, own()), (FP16, TF32, DENSE, CUBLAS), BATCHES),
        figures=(
            Dots("speedup", "Fully connected layers of EIE's table IV", (TF32, CUSPARSE, sputnik, own()), CUBLAS,
                 x="layer", panels="batch", printed=Printed("cuSPARSE over cuBLAS in the paper, Titan X", _printed)),
        ),
        tables=(
            RatioTable("Every library and kernel over cuBLAS fp32",
                       Comparison((*dense[1:], *sparse), (CUBLAS,), BATCHES)),
            *(
                Pivot(f"µs at batch {batch}", (*dense, *sparse), rows=("layer", "size", "level"), group=group)
                for batch, group in zip((1, 64), BATCHES, strict=True)
            ),
            Published("The paper's µs per image on a Titan X", "eie_table4_us",
                      {"layer": "layer", "matrix": "matrix", "batch": "batch", "time_us": "µs per image"},
                      "platform == 'GPU'"),
        ),
        energy=Comparison((CUSPARSE_COLUMN, SPARSE), (FP16, CUBLAS), BATCHES),
        baseline=CUSPARSE,
    )  # fmt: skip
