"""Rules for the claims of Balanced Sparsity, direct sparse convolution, EIE's GPU rows and 2:4 sparsity."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from nnzbench.report.claims_quantities import Crossover, How, OverIdeal, Ratio, Side
from nnzbench.report.claims_sides import CUBLAS, CUDNN, CUSPARSE, DENSE_BEST, OURS, Rule, judged, speedup, unmeasured

MODELS, FIGURE4 = "balanced_models", "balanced_figure4"
BALANCED = Side("`balanced`", ("balanced",))
BALANCED_PAPER = Side("the paper's balanced kernel", ("balanced",), variant="paper")
BALANCED_WORDS = "the `paper` variants of `balanced`, the paper's mapping written anew"
PANELS_WORDS = "`balanced`: panels of this project's own for convolutions, which the paper does not describe"
T6, T7, T8 = "direct_conv_table6", "direct_conv_table7", "direct_conv_table8"
DIRECT_PAPER = Side("the paper's direct convolution", ("direct_conv",), variant=r"paper_sbs[248]$")
DIRECT_COUNTS = Side("its variant `paper_counts`", ("direct_conv",), variant=r"paper_counts_sbs[248]$")
DIRECT_WORDS = "the `paper` variants of `direct_conv`, algorithm 4 written anew, padding not timed"


def _balanced(model: str, rival: Side, pattern: str = "balanced") -> Rule:
    """`pattern` is of the matrix that the rival runs on: its own, or the dense product of the balanced one."""
    other = replace(rival, cases=rf"({model})_{pattern}_")
    scope = {"ptb": "gate matrices of the PTB LSTM", "timit": "gate matrices of the TIMIT LSTM"}[model]

    def quantity(subject: Side) -> Ratio:
        return Ratio(MODELS, scope, (replace(subject, cases=rf"({model})_balanced_"),), (other,))

    return judged(BALANCED_WORDS, quantity(BALANCED_PAPER), ("all variants of `balanced`", quantity(BALANCED)))


def _vgg(rival: Side, pattern: str) -> Rule:
    subject, other = (
        replace(side, cases=rf"vgg16_(.*)_{kind}_\d+x") for side, kind in ((BALANCED, "balanced"), (rival, pattern))
    )
    return judged(PANELS_WORDS, Ratio(MODELS, "products of VGG-16, im2col not timed", (subject,), (other,), "total"))


def _always_faster() -> Rule:
    scope, cases = "16384 x 8192, eleven sparsities, batch 1 and 8", r"balanced_(b\d+_keep\d+)_"
    return judged(
        BALANCED_WORDS,
        speedup(FIGURE4, scope, cases, BALANCED_PAPER, CUBLAS, "share faster"),
        ("all variants of `balanced`", speedup(FIGURE4, scope, cases, BALANCED, CUBLAS, "share faster")),
    )


def _ideal(batch: int) -> Rule:
    scope, cases = f"16384 x 8192, eleven sparsities, batch {batch}", rf"balanced_(b{batch}_keep\d+)_"
    paper, ours, dense = (replace(side, cases=cases) for side in (BALANCED_PAPER, BALANCED, CUBLAS))
    return judged(
        BALANCED_WORDS,
        OverIdeal(FIGURE4, scope, paper, dense),
        ("all variants of `balanced`", OverIdeal(FIGURE4, scope, ours, dense)),
    )


def _conv(experiment: str, scope: str, cases: str, how: How = "geometric mean", half: bool = False) -> Rule:
    paper, dense, ours = (DIRECT_PAPER, CUDNN, OURS)
    if half:
        paper, dense, ours = (replace(side, math="f16") for side in (paper, dense, ours))
    return judged(
        DIRECT_WORDS,
        speedup(experiment, scope, cases, paper, dense, how),
        (OURS.name, speedup(experiment, scope, cases, ours, dense, how)),
    )


def _half_over_single() -> Rule:
    single = replace(DIRECT_PAPER, name="it in fp32", cases=r"(\d+_equal_.*)")
    half = replace(DIRECT_PAPER, math="f16", cases=r"(\d+_equal_.*)")
    return judged(DIRECT_WORDS, Ratio(T6, "its table 6", (half,), (single,), "share faster"))


def _sub_batch(variant: str, layers: str) -> Rule:
    worse = replace(DIRECT_PAPER, name=f"its variant `{variant}`", variant=f"{variant}$")
    quantity = speedup("direct_conv_table9", f"layers {layers}", rf"({layers}_.*)", worse, DIRECT_PAPER, "mean loss")
    return judged(DIRECT_WORDS, quantity)


def _unified() -> Rule:
    """Uneven counts judge: with equal ones nothing is filled up, and only the reading of two row pointers is saved."""

    def quantity(experiment: str, scope: str, cases: str) -> Ratio:
        return speedup(experiment, scope, cases, DIRECT_COUNTS, DIRECT_PAPER, "mean loss")

    return judged(
        DIRECT_WORDS,
        quantity(T6, "3x3 layers of VGG-16, random positions", r"(\d+_uniform_.*)"),
        ("3x3 layers with equal counts", quantity(T6, "the same layers", r"(\d+_equal_.*)")),
        ("1x1 layers, random positions", quantity(T7, "1x1 layers", r"(c\d+_d\d+_\d+_uniform_.*)")),
        ("1-D layers, random positions", quantity(T8, "1-D layers", r"(filter\d_uniform_.*)")),
    )


def _eie(batch: int) -> Rule:
    scope = f"nine layers at batch {batch}"
    return judged(
        "no kernel of this project: cuSPARSE",
        speedup("eie_table4", scope, rf"(.*_b{batch}_.*)", CUSPARSE, CUBLAS),
        (OURS.name, speedup("eie_table4", scope, rf"(.*_b{batch}_.*)", OURS, CUBLAS)),
    )


def _two_four(scope: str, cases: str, math: Literal["tf32", "f16"], how: How = "largest") -> Rule:
    """Both sides on tensor cores already, so there is no other baseline to judge by."""
    sparse, dense = Side("cuSPARSELt", ("cusparselt",), math=math), Side("cuBLAS", ("cublas",), math=math)
    best = replace(DENSE_BEST, math=math)
    return judged(
        "no kernel of this project: cuSPARSELt",
        speedup("nm_sparsity", scope, cases, sparse, dense, how),
        (f"against {DENSE_BEST.name}", speedup("nm_sparsity", scope, cases, sparse, best, how)),
    )


RULES = {
    "balanced-ptb-dense": _balanced("ptb", CUBLAS),
    "balanced-ptb-random": _balanced("ptb", CUSPARSE, "random"),
    "balanced-ptb-block": _balanced("ptb", replace(CUSPARSE, name="cuSPARSE on 8 x 8 blocks"), "block"),
    "balanced-timit-dense": _balanced("timit", CUBLAS),
    "balanced-timit-random": _balanced("timit", CUSPARSE, "random"),
    "balanced-vgg-dense": _vgg(CUBLAS, "balanced"),
    "balanced-vgg-random": _vgg(CUSPARSE, "random"),
    "balanced-always": _always_faster(),
    "balanced-cusparse-crossover": judged(
        "no kernel of this project: cuSPARSE",
        Crossover(
            FIGURE4,
            "16384 x 8192, batch 8, random zeros",
            replace(CUSPARSE, cases=r"random_(b8_keep\d+)_"),
            replace(CUBLAS, cases=r"random_(b8_keep\d+)_"),
            "stronger",
        ),
    ),
    "balanced-ideal-1": _ideal(1),
    "balanced-ideal-8": _ideal(8),
    "direct-vgg-last": _conv(T6, "the last 3x3 layers of VGG-16", r"(08_equal_.*)"),
    "direct-vgg-last-half": _conv(T6, "the last 3x3 layers of VGG-16", r"(08_equal_.*)", half=True),
    "direct-vgg-half-share": _conv(T6, "3x3 layers of VGG-16", r"(\d+_equal_.*)", "share faster", half=True),
    "direct-half-over-single": _half_over_single(),
    "direct-pointwise": _conv(T7, "1x1 layers on 32 x 32 images", r"(c\d+_d\d+_32_equal_.*)"),
    "direct-pointwise-half": _conv(T7, "1x1 layers on 32 x 32 images", r"(c\d+_d\d+_32_equal_.*)", half=True),
    "direct-1d-77": _conv(T8, "filter of 2 at 77 %", r"(filter2_n.*_77_.*)"),
    "direct-1d-77-half": _conv(T8, "filter of 2 at 77 %", r"(filter2_n.*_77_.*)", half=True),
    "direct-1d-87.5": _conv(T8, "filter of 2 at 87.5 %", r"(filter2_n.*_87\.5_.*)"),
    "direct-no-sub-batch": _sub_batch("paper_sbs1", "vgg16"),
    "direct-whole-batch": _sub_batch("paper_whole", "vgg16"),
    "direct-no-sub-batch-1x1": _sub_batch("paper_sbs1", "resnet50"),
    "direct-whole-batch-1x1": _sub_batch("paper_whole", "resnet50"),
    "direct-no-sub-batch-1d": _sub_batch("paper_sbs1", "cnn1d"),
    "direct-whole-batch-1d": _sub_batch("paper_whole", "cnn1d"),
    "direct-unified-count": _unified(),
    "eie-gpu-1": _eie(1),
    "eie-gpu-64": _eie(64),
    "eie-accelerator": unmeasured("eie_table4", "EIE is a chip of its own, which this suite can't run."),
    "nm-half": _two_four("GEMMs of n of about 10K", r"(a100_.*)", "f16"),
    "nm-tf32": _two_four("layers of BERT, 1:2", r"(bert_.*)", "tf32"),
    "nm-bert": _two_four("layers of BERT, fp16", r"(bert_.*)", "f16", "geometric mean"),
}
