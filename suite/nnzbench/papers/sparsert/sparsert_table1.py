"""SparseRT's Table 1 and figures 4 to 6: products of the layers of three pruned networks."""

from __future__ import annotations

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.selector import CUBLAS, CUSPARSE, DEFAULT, DENSE, FP16, PRODUCTS, UNTUNED, kernel, own
from nnzbench.facts.table import Comparison
from nnzbench.papers.sparsert import PAPER
from nnzbench.problems.experiment import AND_F16, SPMM, Experiment, dtypes_of
from nnzbench.report.data import published
from nnzbench.report.page import Answer, Bars, Dots, Page, Pivot, Printed, RatioTable
from nnzbench.report.view import View

EXPERIMENT = Experiment(
    "sparsert_table1",
    "1x1 convolutions and Transformer layers at 90 and 95 % sparsity",
    PAPER,
    "Table 1, figures 4 and 5",
    dtypes_of("sparsert_paper", *SPMM, "untuned", "cusparse", cublas=AND_F16, cublaslt=AND_F16),
)
LEVELS = (Group(level=90), Group(level=95))
MOBILENET = Group(where="label >= '12'", level=90, words="layers of MobileNet V1 (problems 12 to 20)")


def _printed(view: View) -> pd.DataFrame:
    """Table 1's own speed-ups over cuBLAS."""
    table = published.sparsert_table1()
    return table.assign(label=[f"{int(one):02}" for one in table["label"]], level=100 * table["level"]).rename(
        columns={"paper_speedup": "value"}
    )


def page() -> Page:
    """Its page."""
    paper, sputnik = kernel("sparsert_paper"), kernel("sputnik", variants=DEFAULT)
    printed = Printed("SparseRT's paper, T4", _printed)
    return Page(
        question="Is a pruned layer of ResNet-50, MobileNet or a Transformer faster as code generated from its weights "
        "than as a dense product?",
        intro="31 products of a pruned weight matrix (M×K) with dense activations (K×N): the 20 layer shapes of "
        "ResNet-50, Transformer and MobileNet V1 in Table 1 of *SparseRT: Accelerating Unstructured Sparsity on GPUs "
        "for Deep Learning Inference* (PACT 2020) with 90 % zeros, and 11 of them with 95 %.",
        answers=tuple(
            Answer(group, paper, FP16, (own(), own("f16")), CUBLAS, claim)
            for group, claim in zip(LEVELS, ("sparsert-spmm-90", "sparsert-spmm-95"), strict=True)
        ),
        comparison=Comparison((paper, own(), own(as_data=True), UNTUNED, sputnik), PRODUCTS, LEVELS),
        figures=(
            Dots("speedup", "Sparse over dense fp32 products of pruned layers", (paper, own(), sputnik), CUBLAS,
                 printed=printed),
            Bars("figure4", "Useful TFLOP/s at 90 % zeros (SparseRT's figure 4)", (CUBLAS, CUSPARSE, paper), "rate",
                 panels="level"),
            Bars("figure6", "Over Sputnik on MobileNet V1 (SparseRT's figure 6)", (paper,), "ratio", sputnik,
                 group=MOBILENET),
        ),
        tables=(
            Pivot("Every problem, µs", (paper, own(), sputnik, UNTUNED, CUBLAS, DENSE, FP16, CUSPARSE),
                  rows=("label", "size", "level")),
            RatioTable("Over Sputnik", Comparison((paper,), (kernel("sputnik"), sputnik), (
                Group(where="'12' <= label <= '16'", words="problems 12 to 16"),
                Group(where="label >= '17'", words="problems 17 to 20")))),
        ),
        baseline=CUBLAS,
    )  # fmt: skip
