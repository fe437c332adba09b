"""SparseRT's Table 3 and figure 7: 3x3 convolutions of ResNet-50."""

from __future__ import annotations

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.results import each
from nnzbench.facts.selector import CUDNN, CUDNN_TF32, DEFAULT, kernel
from nnzbench.facts.table import Comparison
from nnzbench.papers.sparsert import PAPER
from nnzbench.problems.experiment import Experiment, dtypes_of
from nnzbench.report.data import published
from nnzbench.report.pages.page import Answer, Dots, Page, Pivot, Printed, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "sparsert_table3",
    "3x3 convolutions of ResNet-50",
    PAPER,
    "Table 3, figure 7",
    dtypes_of("sparsert_conv_paper", "direct_conv", "sparsert_conv", "cudnn"),
)
LEVELS = (Group(level=90), Group(level=95))


def _printed(view: View) -> pd.DataFrame:
    """Table 3's speed-ups over cuDNN, by the label that a convolution of that shape has here."""
    labels = {row.shape: row.label for row in each(view.data.problems)}
    table = published.sparsert_table3()
    table = table.assign(label=table["shape"].map(labels), level=100 * table["level"])
    return table.rename(columns={"paper_speedup": "value"}).dropna(subset=["label"])


def page() -> Page:
    """Its page."""
    paper, ours, direct = map(kernel, ("sparsert_conv_paper", "sparsert_conv", "direct_conv"))
    first = kernel("cudnn", variants=DEFAULT, words="its first choice")
    return Page(
        question="Is a pruned 3x3 convolution of ResNet-50 faster as code generated from its weights than in cuDNN?",
        intro="The four 3×3 convolutions of a pruned ResNet-50 in Table 3 and figure 7 of *SparseRT* (PACT 2020): one "
        "image, padding 1. Real filters where their values are public (problems 1 to 3), the real pattern with random "
        "values for problem 4. `sparsert_conv_paper` is the paper's method, `sparsert_conv` our form of it; cuDNN's "
        "best is the fastest of its plans, Winograd and implicit GEMM included.",
        answers=tuple(
            Answer(group, paper, CUDNN_TF32, (ours,), CUDNN, claim)
            for group, claim in zip(LEVELS, ("sparsert-conv-90", "sparsert-conv-95"), strict=True)
        ),
        comparison=Comparison((paper, ours, direct), (CUDNN, CUDNN_TF32), LEVELS),
        figures=(
            Dots("speedup", "Sparse 3×3 convolutions of ResNet-50 (SparseRT's figure 7)", (paper, ours, direct), CUDNN,
                 printed=Printed("SparseRT's paper, T4", _printed)),
        ),
        tables=(
            Pivot("Every problem, µs", (paper, ours, direct, CUDNN, first, CUDNN_TF32),
                  rows=("label", "size", "level")),
            RatioTable("cuDNN's own", Comparison((CUDNN, CUDNN_TF32), (first, CUDNN), LEVELS)),
        ),
        findings=(
            "cuDNN's own first choice takes up to {{ '%.2f' % fact('at 90 % zeros', 'best cuDNN fp32', 'cuDNN, its "
            "first choice').best }} times as long as its fastest plan.",
        ),
    )  # fmt: skip
