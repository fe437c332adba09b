"""Layers of language models in FP8: weights without structure, e4m3 values, against dense FP8."""

from __future__ import annotations

from nnzbench.facts.groups import Group
from nnzbench.facts.selector import best_dense, kernel, written_here
from nnzbench.facts.table import Comparison
from nnzbench.problems.experiment import Experiment, dtypes_of
from nnzbench.report.pages.page import Answer, Page, Pivot

EXPERIMENT = Experiment(
    "fp8_layers",
    "Layers of language models with FP8 weights",
    "nnzbench's own",
    "no published table: no kernel for such weights was found",
    dtypes_of("cublaslt", "tensor_spmm", "delta_spmv"),
)


def page() -> Page:
    """Its page."""
    dense, tensor, delta = best_dense("f8"), kernel("tensor_spmm", "f8"), kernel("delta_spmv", "f8")
    sparse = tensor, delta
    many = tuple(Group(level=level, columns=16) for level in (80, 90, 70))
    one = Group(level=90, columns=1)
    return Page(
        question="Is a sparse layer with FP8 weights faster than the dense FP8 product?",
        intro="Weights of public language models (sizes and sources in `datasets/problems/fp8_layers.csv`) with their "
        "zeros anywhere, rounded to e4m3, times 1 to 64 columns. Dense FP8 multiplies e4m3 by e4m3. The sparse kernels "
        "keep the weights alone in e4m3 and read the same numbers of B as fp16, twice its bytes. Results are fp16, "
        "and errors are against float64 products of the rounded operands.",
        answers=(*(Answer(group, tensor, dense) for group in many), Answer(one, delta, dense)),
        comparison=Comparison(sparse, (dense,), (*many, one)),
        tables=(
            Pivot("Over the best dense FP8 product", sparse, "ratio", dense, ("subject", "label", "level"), "n"),
            Pivot("µs", (*sparse, dense), rows=("label", "level", "subject"), columns="n"),
        ),
        energy=Comparison((written_here("f8"),), (dense,)),
        baseline=dense,
        arithmetic="e4m3 (FP8) weights with fp16 results",
    )  # fmt: skip
