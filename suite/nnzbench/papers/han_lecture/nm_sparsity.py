"""2:4 sparsity: cuSPARSELt on sparse tensor cores against the best dense product in the same arithmetic."""

from __future__ import annotations

import pandas as pd

from nnzbench import paths
from nnzbench.facts.groups import ALL, Group
from nnzbench.facts.selector import DEFAULT, FP16, INT8, MATHS, TF32, kernel
from nnzbench.facts.table import Comparison
from nnzbench.plans import architectures
from nnzbench.problems.experiment import Experiment, dtypes_of
from nnzbench.report.pages.page import Answer, Dots, Made, Page, Pivot, Printed, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "nm_sparsity",
    "2:4 sparsity on tensor cores",
    "Accelerating Sparse Deep Neural Networks (2021)",
    "Figure 3",
    dtypes_of("cusparselt", "cublas", "cublaslt"),
)
FIGURE3, BERT, CUBES = (
    Group(words=words, where=f"products == '{products}'")
    for words, products in (
        ("products with m = n = 10240 (figure 3)", "a100"),
        ("layers of BERT-large", "bert"),
        ("cubes", "cube"),
    )
)
DENSE = {"i8": INT8, "f16": FP16, "tf32": TF32}
PRINTED = 2.0
"""What large INT8 products come close to in the paper's figure 3, on an A100."""
PEAKS = {"fp32": "fp32_tflops", "TF32": "tf32_tflops", "fp16": "fp16_tensor_tflops", "INT8": "int8_tensor_tops"}
"""Columns of `datasets/gpus.csv`."""
FIRST_SPARSE = 80
"""The first architecture with sparse tensor cores."""


def _printed(view: View) -> pd.DataFrame:
    rows = view.data.problems.query("products == 'a100' and dtype == 'i8'")
    return rows[["size", "products"]].assign(value=PRINTED)


def peaks(view: View | None = None) -> pd.DataFrame:
    """By GPU: 1e12 operations per second at most, dense and with 2:4 (TF32 with 1:2), from data sheets."""
    table = pd.read_csv(paths.datasets() / "gpus.csv")
    rates = table[["name", *PEAKS.values()]].set_axis(["GPU", *PEAKS], axis=1)
    sparse = table["arch"].map(lambda arch: architectures.number(str(arch)) >= FIRST_SPARSE)
    return rates.assign(**{f"{name}, 2:4": (2 * rates[name]).where(sparse) for name in PEAKS if name != "fp32"})


def page() -> Page:
    """Its page."""
    tuned = {math: kernel("cusparselt", math) for math in DENSE}
    default = {math: kernel("cusparselt", math, DEFAULT, "its default") for math in DENSE}
    cublas = {math: kernel("cublas", math) for math in DENSE}
    shown = {math: (cublas[math], default[math], tuned[math]) for math in DENSE}
    groups = (FIGURE3, BERT, CUBES)
    return Page(
        question="Are 2:4 products on sparse tensor cores twice as fast as dense ones?",
        intro="Products with a matrix that keeps two of every four weights (INT8, fp16) or one of every two (TF32), "
        "the patterns of sparse tensor cores. *Accelerating Sparse Deep Neural Networks* (2021) shows INT8 over cuBLAS "
        "on an A100 in its figure 3 and prints no numbers: larger products come close to 2×, which the units could "
        "give at most; BERT as a whole became 1.5× as fast. INT8 sums here are exact 32-bit integers, checked as such. "
        "The sparse matrix is compressed beforehand, outside the times.",
        attributes=r"(?P<products>a100|bert|cube)(?:_.+)?",
        answers=(
            Answer(FIGURE3, tuned["i8"], INT8, (default["i8"],), cublas["i8"], "nm-half"),
            Answer(FIGURE3, tuned["f16"], FP16, (default["f16"],)),
            Answer(BERT, tuned["f16"], FP16, (default["f16"],)),
        ),
        comparison=Comparison(tuple(tuned.values()), tuple(DENSE.values()), groups),
        figures=tuple(
            Dots(name, f"2:4 products over dense ones in {MATHS[math]}", shown[math], DENSE[math], "size", "products",
                 printed=Printed("the paper's figure 3: nearly 2× (A100)", _printed) if math == "i8" else None)
            for name, math in (("speedup", "i8"), ("speedup_f16", "f16"), ("speedup_tf32", "tf32"))
        ),
        tables=(
            *(
                RatioTable(f"Over cuBLAS and the best dense product in {MATHS[math]}",
                           Comparison((tuned[math], default[math]), (cublas[math], DENSE[math]), (*groups, ALL)))
                for math in DENSE
            ),
            *(
                Pivot(f"µs in {MATHS[math]}", (cublas[math], kernel("cublaslt", math), default[math], tuned[math]))
                for math in DENSE
            ),
            *(
                Pivot(f"Every product in {MATHS[math]}, over cuBLAS", shown[math][1:], "ratio", cublas[math])
                for math in DENSE
            ),
            Made("What the units could give at most, 1e12 operations per second (NVIDIA's data sheets and whitepapers)",
                 peaks, "data sheets' numbers; nothing of them is measured"),
        ),
        arithmetic="INT8 with 32-bit sums, fp16 with sums in fp32, and TF32 of fp32 operands, all on tensor cores",
    )  # fmt: skip
