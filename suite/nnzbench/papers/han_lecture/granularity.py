"""What each granularity of pruning costs on a GPU at equal sparsity, every one with the kernels that suit it best."""

from __future__ import annotations

from dataclasses import replace

from nnzbench.facts.groups import Group
from nnzbench.facts.selector import (
    CUBLAS,
    CUDNN,
    CUDNN_F16,
    DENSE,
    FP16,
    MATHS,
    Selector,
    best_dense,
    kernel,
    own,
)
from nnzbench.facts.table import Comparison
from nnzbench.problems.experiment import AND_F16, Experiment
from nnzbench.report.pages.page import Answer, Dots, Page, Pivot, RatioTable

EXPERIMENT = Experiment(
    "granularity",
    "What each granularity of pruning costs at equal sparsity",
    "MIT 6.S965, pruning (lecture)",
    "no published times: the lecture orders granularities from irregular to regular",
    {
        **dict.fromkeys(("direct_conv", "sparsert_conv", "cudnn"), AND_F16),
        **dict.fromkeys(("ring", "row_stream", "sputnik", "balanced", "cusparse", "cublas", "cublaslt"), AND_F16),
        "cusparselt": AND_F16,
        "tensor_spmm": ("f16",),
    },
    only={"direct_conv": "[!c]*_[78]*", "sparsert_conv": "[!c]*_87.5"},
)
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


def page() -> Page:
    """Its page."""
    (sparse, _, _), (convolution, _, _) = _forms("f16")
    (sparse32, _, _), (convolution32, _, _) = _forms("f32")
    forms = {math: _forms(math) for math in ("f16", "f32")}
    return Page(
        question="What does each granularity of pruning cost or gain at equal sparsity?",
        intro="The coarser what pruning takes, the easier to compute and the more accuracy it costs; accuracy is not "
        "judged here. One layer, VGG-16's 3×3 convolution of 256 by 256 channels at 56×56 pixels and batch 1, as a "
        "convolution and as the product that im2col makes of it (im2col not included), each granularity in its fastest "
        "kernel: single weights (`unstructured`), rows of kernels (`vector`), PatDNN's 4 of 9 weights (`pattern`; none "
        "at 50 %), 3×3 kernels (`kernel`), equal counts in 32 ranges of a row (`balanced`), 1 of 2, 4 and 8 (`nm`), "
        "which sparse tensor cores all run as 2:4, 8 filters by one column (`column`), 32×32 blocks (`block`), and a "
        "dense layer of fewer channels (`channel`). Sparse convolutions are generated for their weights, which takes "
        "long for many: they run at 75 and 87.5 % alone. Figures and tables by level set all of a form against one "
        "time of the whole dense layer, that recorded beside single weights; where the dense library stands in a row "
        "of zeros it is the same layer timed again.",
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
        tables=(
            *(
                Pivot(f"As {group.words} in {MATHS[math]}: over the whole dense layer", (best, _listed(dense)), "ratio",
                      dense, ("grain", "subject"), "level", group)
                for math in forms
                for best, dense, group in forms[math]
            ),
            *(
                Pivot(f"As {group.words} in {MATHS[math]}: µs of every kernel",
                      (*(kernel(name, math) for name in best.kernels), dense), rows=("grain", "level"), group=group)
                for math in forms
                for best, dense, group in forms[math]
            ),
            RatioTable("Of our kernels, cuSPARSELt and Sputnik at 87.5 % zeros",
                       Comparison((own(), own("f16"), kernel("cusparselt", "f16"), kernel("sputnik")),
                                  (CUBLAS, CUDNN, FP16, CUDNN_F16), AT_MOST)),
        ),
        arithmetic="fp32 is IEEE fp32 with TF32 off; fp16 has sums in fp32",
    )  # fmt: skip
