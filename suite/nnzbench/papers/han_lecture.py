"""The lectures on pruning of MIT 6.S965 (S. Han): granularities, and 2:4 sparsity."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from nnzbench.core import architectures
from nnzbench.core.gpus import data_sheets
from nnzbench.report.page import Answer, Dots, Made, Page, Printed, RatioTable, View
from nnzbench.results.groups import ALL, Group
from nnzbench.results.selector import (
    CUBLAS,
    CUDNN,
    CUDNN_F16,
    DEFAULT,
    DENSE,
    FP16,
    INT8,
    MATHS,
    TF32,
    Selector,
    best_dense,
    kernel,
    own,
)
from nnzbench.results.table import Comparison

OF_PRODUCT = ("balanced", "cusparse", "cusparselt", "ring", "row_stream", "sputnik", "tensor_spmm")
OF_CONVOLUTION = ("direct_conv", "sparsert_conv")
PRODUCTS, CONVOLUTIONS = (
    Group(words=words, where=f"op {sign} 'conv2d'", cases=rf"[a-z]+_([\d.]+)_{size}",
          baseline_cases=rf"unstructured_([\d.]+)_{size}")
    for words, sign, size in (("products", "!=", r"\d+x"), ("convolutions", "==", "n1"))
)  # fmt: skip
"""Every granularity over one time of the whole dense layer: of fewer channels there is no other."""
CHANNELS = Group(
    words="fewer channels, 87.5 % of the weights gone",
    cases=r"channel_(87\.5)_\d+x",
    baseline_cases=r"unstructured_(87\.5)_\d+x",
)
KINDS = {
    "unstructured": "of single weights",
    "vector": "of rows of kernels",
    "pattern": "of PatDNN's patterns",
    "kernel": "of 3×3 kernels",
    "balanced": "balanced in 32 ranges",
    "nm": "of 1 in 8",
    "column": "of 8 filters by a column",
    "block": "of blocks of 32×32",
}
"""Granularities with zeros, the finest first; the convolution has the first four."""
AT_MOST = tuple(
    Group(op=op, level=87.5, words=KINDS[kind], like=f"{kind}_87.5")
    for op, kinds in (("spmm", list(KINDS)), ("conv2d", list(KINDS)[:4]))
    for kind in kinds
)


def _forms(math: str) -> tuple[tuple[Selector, Selector, Group], ...]:
    """As a product and as a convolution: what competes in it, its dense baseline, its problems."""
    word = MATHS[math]
    return (
        (Selector(f"best sparse product {word}", OF_PRODUCT, math), best_dense(math), PRODUCTS),
        (Selector(f"best sparse convolution {word}", OF_CONVOLUTION, math),
         CUDNN if math == "f32" else CUDNN_F16, CONVOLUTIONS),
    )  # fmt: skip


def _listed(dense: Selector) -> Selector:
    """The dense library on the problem as it is listed: of fewer channels a smaller one, else the whole layer again."""
    return replace(dense, label=f"{dense.label}, the layer as listed")


def granularity() -> Page:
    """What each granularity costs on a GPU at equal sparsity, every one with the kernels that suit it best."""
    (sparse, _, _), (convolution, _, _) = _forms("f16")
    (sparse32, _, _), (convolution32, _, _) = _forms("f32")
    forms = {math: _forms(math) for math in ("f16", "f32")}
    return Page(
        attributes=r"(?P<grain>[a-z]+)_(?P<level>[\d.]+)",  # of fewer channels: the share of weights that is gone
        answers=(
            Answer(AT_MOST[0], sparse, FP16, (sparse32,), DENSE),
            Answer(AT_MOST[len(KINDS) - 1], sparse, FP16, (sparse32,), DENSE),
            Answer(CHANNELS, replace(FP16, label="the smaller dense product fp16"), FP16),
        ),
        comparison=Comparison((sparse, convolution), (FP16, CUDNN_F16), AT_MOST),
        figures=(
            Dots("speedup", "Each kind of pruning as a product, over the whole dense layer",
                 (sparse, sparse32, _listed(FP16)), FP16, "grain", "level",
                 PRODUCTS),
            Dots("convolution", "Each kind of pruning as a convolution, over the whole dense layer",
                 (convolution, convolution32, _listed(CUDNN_F16)),
                 CUDNN_F16, "grain", "level", CONVOLUTIONS),
        ),
        facts=(
            *(Comparison((best, _listed(dense)), (dense,), (group,), ("grain", "level"))
              for math in forms for best, dense, group in forms[math]),
            Comparison((own(), own("f16"), kernel("cusparselt", "f16"), kernel("sputnik")),
                       (CUBLAS, CUDNN, FP16, CUDNN_F16), AT_MOST),
        ),
        arithmetic="fp32 is IEEE fp32 with TF32 off; fp16 has sums in fp32",
    )  # fmt: skip


FIGURE3, BERT, CUBES = (
    Group(words=words, where=f"products == '{products}'")
    for words, products in (
        ("products with m = n = 10240 (figure 3)", "a100"),
        ("layers of BERT-large", "bert"),
        ("cubes", "cube"),
    )
)
DENSE_OF = {"i8": INT8, "f16": FP16, "tf32": TF32}
PRINTED = 2.0
"""What large INT8 products come close to in the paper's figure 3, on an A100."""
PEAKS = {"fp32": "fp32_tflops", "TF32": "tf32_tflops", "fp16": "fp16_tensor_tflops", "INT8": "int8_tensor_tops"}
"""Columns of `datasets/gpus.csv`."""
FIRST_SPARSE = 80
"""The first architecture with sparse tensor cores."""


def _printed_figure3(view: View) -> pd.DataFrame:
    rows = view.problems.query("products == 'a100' and dtype == 'i8'")
    return rows[["size", "products"]].assign(value=PRINTED)


def peaks(view: View | None = None) -> pd.DataFrame:
    """By GPU: 1e12 operations per second at most, dense and with 2:4 (TF32 with 1:2), from data sheets."""
    table = pd.DataFrame(list(map(vars, data_sheets().values())))
    rates = table[["name", *PEAKS.values()]].set_axis(["GPU", *PEAKS], axis=1)
    sparse = table["arch"].map(lambda arch: architectures.number(str(arch)) >= FIRST_SPARSE)
    return rates.assign(**{f"{name}, 2:4": (2 * rates[name]).where(sparse) for name in PEAKS if name != "fp32"})


def nm_sparsity() -> Page:
    """2:4 sparsity: cuSPARSELt on sparse tensor cores against the best dense product in the same arithmetic."""
    tuned = {math: kernel("cusparselt", math) for math in DENSE_OF}
    default = {math: kernel("cusparselt", math, DEFAULT, "its default") for math in DENSE_OF}
    cublas = {math: kernel("cublas", math) for math in DENSE_OF}
    shown = {math: (cublas[math], default[math], tuned[math]) for math in DENSE_OF}
    groups = (FIGURE3, BERT, CUBES)
    return Page(
        attributes=r"(?P<products>a100|bert|cube|table1)(?:_.+)?",
        answers=(
            Answer(FIGURE3, tuned["i8"], INT8, (default["i8"],), cublas["i8"], "nm-half"),
            Answer(FIGURE3, tuned["f16"], FP16, (default["f16"],)),
            Answer(BERT, tuned["f16"], FP16, (default["f16"],)),
        ),
        comparison=Comparison(tuple(tuned.values()), tuple(DENSE_OF.values()), groups),
        figures=tuple(
            Dots(name, f"2:4 products over dense ones in {MATHS[math]}", shown[math], DENSE_OF[math], "size",
                 "products",
                 printed=Printed("the paper's figure 3: nearly 2× (A100)", _printed_figure3) if math == "i8" else None)
            for name, math in (("speedup", "i8"), ("speedup_f16", "f16"), ("speedup_tf32", "tf32"))
        ),
        tables=(
            *(
                RatioTable(f"2:4 products over cuBLAS and the best dense product in {MATHS[math]}",
                           Comparison((tuned[math], default[math]), (cublas[math], DENSE_OF[math]), (*groups, ALL)))
                for math in DENSE_OF
            ),
            Made("What the units could give at most, 1e12 operations per second (NVIDIA's data sheets and whitepapers)",
                 peaks, "data sheets' numbers; nothing of them is measured"),
        ),
        facts=tuple(Comparison(shown[math][1:], (cublas[math],), by=("label", "size")) for math in DENSE_OF),
        arithmetic="INT8 with 32-bit sums, fp16 with sums in fp32, and TF32 of fp32 operands, all on tensor cores",
    )  # fmt: skip
