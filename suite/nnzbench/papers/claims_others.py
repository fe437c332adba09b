"""Rules for the claims of Balanced Sparsity, direct sparse convolution, EIE's GPU rows and 2:4 sparsity."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from nnzbench.report.claims.quantities import Crossover, How, OverIdeal, Ratio, Side
from nnzbench.report.claims.sides import (
    CUBLAS,
    CUDNN,
    CUDNN_DEFAULT,
    CUSPARSE,
    DENSE_BEST,
    OURS,
    Rule,
    judged,
    speedup,
    unmeasured,
)
from nnzbench.report.data.series import MATH_LABELS

OnTensorCores = Literal["tf32", "f16", "i8"]
MODELS, FIGURE4 = "balanced_models", "balanced_figure4"
BALANCED = Side("`balanced`", ("balanced",))
BALANCED_PAPER = Side("the paper's balanced kernel", ("balanced",), variant="paper")
BALANCED_WORDS = "the `paper` variants of `balanced`, the paper's mapping written anew"
CUSPARSE_DEFAULT = Side("cuSPARSE's default algorithm", ("cusparse",), variant="(?:spmv_csr_default|csr_default_col)$")
"""On a matrix and a vector, or on column-major matrices, as the papers could call it."""
T6, T7, T8 = "direct_conv_table6", "direct_conv_table7", "direct_conv_table8"
DIRECT_PAPER = Side("the paper's direct convolution", ("direct_conv",), variant=r"paper_sbs[248]$")
DIRECT_COUNTS = Side("its variant `paper_counts`", ("direct_conv",), variant=r"paper_counts_sbs[248]$")
DIRECT_WORDS = "the `paper` variants of `direct_conv`, algorithm 4 written anew, padding not timed"


def _pattern(model: str, rival: Side, today: Side | None, pattern: str = "balanced") -> Rule:
    """`pattern` is of the matrix that the rival runs on: its own, or the dense product of the balanced one."""
    scope = {"ptb": "gate matrices of the PTB LSTM", "timit": "gate matrices of the TIMIT LSTM"}[model]

    def quantity(subject: Side, other: Side) -> Ratio:
        subject = replace(subject, cases=rf"({model})_balanced_")
        return Ratio(MODELS, scope, (subject,), (replace(other, cases=rf"({model})_{pattern}_"),))

    return judged(
        BALANCED_WORDS,
        quantity(BALANCED_PAPER, rival),
        ("all variants of `balanced`", quantity(BALANCED, today or rival)),
        today=quantity(BALANCED_PAPER, today) if today else None,
    )


def _vgg(rival: Side, today: Side | None, pattern: str) -> Rule:
    def quantity(subject: Side, other: Side) -> Ratio:
        sides = (
            replace(side, cases=rf"vgg16_(.*)_{kind}_\d+x") for side, kind in ((subject, "balanced"), (other, pattern))
        )
        mine, theirs = sides
        return Ratio(MODELS, "products of VGG-16, im2col not timed", (mine,), (theirs,), "total")

    return judged(
        BALANCED_WORDS,
        quantity(BALANCED_PAPER, rival),
        ("this project's own panels", quantity(BALANCED, today or rival)),
        today=quantity(BALANCED_PAPER, today) if today else None,
    )


def _over_pattern(pattern: str, rival: Side) -> Rule:
    """Whether the balanced matrix is faster than one with as many nonzeros elsewhere."""
    scope = f"16384 x 8192, eleven sparsities, batch 1 and 8, {pattern} zeros"

    def quantity(subject: Side, other: Side) -> Ratio:
        mine = replace(subject, cases=r"balanced_(b\d+_keep\d+)_")
        return Ratio(FIGURE4, scope, (mine,), (replace(other, cases=rf"{pattern}_(b\d+_keep\d+)_"),), "share faster")

    return judged(
        BALANCED_WORDS,
        quantity(BALANCED_PAPER, rival),
        ("all variants of `balanced`", quantity(BALANCED, CUSPARSE)),
        today=quantity(BALANCED_PAPER, CUSPARSE),
    )


def _always_faster() -> Rule:
    scope, cases = "16384 x 8192, eleven sparsities, batch 1 and 8", r"balanced_(b\d+_keep\d+)_"
    return judged(
        BALANCED_WORDS,
        speedup(FIGURE4, scope, cases, BALANCED_PAPER, CUBLAS, "share faster"),
        ("all variants of `balanced`", speedup(FIGURE4, scope, cases, BALANCED, CUBLAS, "share faster")),
    )


def _cusparse_crossover() -> Rule:
    cases, scope = r"random_(b8_keep\d+)_", "16384 x 8192, batch 8, random zeros"

    def quantity(sparse: Side, dense: Side) -> Crossover:
        return Crossover(FIGURE4, scope, replace(sparse, cases=cases), replace(dense, cases=cases), "stronger")

    return judged(
        "no kernel of this project: cuSPARSE",
        quantity(CUSPARSE_DEFAULT, CUBLAS),
        today=quantity(CUSPARSE, DENSE_BEST),
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
    paper, default, best, ours = (DIRECT_PAPER, CUDNN_DEFAULT, CUDNN, OURS)
    if half:
        paper, default, best, ours = (replace(side, math="f16") for side in (paper, default, best, ours))
    return judged(
        DIRECT_WORDS,
        speedup(experiment, scope, cases, paper, default, how),
        (f"{OURS.name} against {CUDNN.name}", speedup(experiment, scope, cases, ours, best, how)),
        today=speedup(experiment, scope, cases, paper, best, how),
    )


def _one_dimension(filter_: int, level: str, half: bool = False) -> Rule:
    cases = rf"(filter{filter_}_n.*_{level.replace('.', '[.]')}_.*)"
    return _conv(T8, f"filter of {filter_} at {level} %", cases, half=half)


def _cudnn_half() -> Rule:
    """How often the dense convolution in fp16 is slower than in fp32."""
    single = replace(CUDNN_DEFAULT, name=f"{CUDNN_DEFAULT.name}, in fp32", math="f32", cases=r"(\d+_equal_.*)")
    half = replace(single, name=CUDNN_DEFAULT.name, math="f16")
    best = replace(CUDNN, math="f32", cases=single.cases), replace(CUDNN, math="f16", cases=single.cases)
    return judged(
        "no kernel of this project: cuDNN",
        Ratio(T6, "3x3 layers of VGG-16", (single,), (half,), "share faster"),
        today=Ratio(T6, "3x3 layers of VGG-16", (best[0],), (best[1],), "share faster"),
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
    scope, cases = f"nine layers at batch {batch}", rf"(.*_b{batch}_.*)"
    return judged(
        "no kernel of this project: cuSPARSE",
        speedup("eie_table4", scope, cases, CUSPARSE_DEFAULT, CUBLAS),
        (OURS.name, speedup("eie_table4", scope, cases, OURS, DENSE_BEST)),
        today=speedup("eie_table4", scope, cases, CUSPARSE, DENSE_BEST),
    )


def _two_four(scope: str, cases: str, math: OnTensorCores, how: How = "largest", *also: OnTensorCores) -> Rule:
    """Both sides on tensor cores already, so there is no other arithmetic to judge by; `also` stands beside."""

    def quantity(arithmetic: OnTensorCores, dense: Side) -> Ratio:
        sparse = Side("cuSPARSELt", ("cusparselt",), math=arithmetic)
        return speedup("nm_sparsity", scope, cases, sparse, replace(dense, math=arithmetic), how)

    return judged(
        "no kernel of this project: cuSPARSELt",
        quantity(math, CUBLAS),
        *((f"in {MATH_LABELS[one]}", quantity(one, CUBLAS)) for one in also),
        today=quantity(math, DENSE_BEST),
    )


def _ese() -> Rule:
    """Both products of a step; the published times have the element-wise steps too."""
    scope, cases = "both products of a step at batch 32", r"(gates|projection)_b32_"

    def quantity(subject: Side, rival: Side) -> Ratio:
        return speedup("ese_lstm", scope, cases, subject, rival, "total")

    return judged(
        "no kernel of this project: cuSPARSE",
        quantity(CUSPARSE_DEFAULT, CUBLAS),
        (f"{OURS.name} against {DENSE_BEST.name}", quantity(OURS, DENSE_BEST)),
        today=quantity(CUSPARSE, DENSE_BEST),
    )


_CHIP = "An accelerator of its own, which this suite can't run."
_PHONE = "GPUs of phones are not among the devices of this suite."

RULES = {
    "balanced-ptb-dense": _pattern("ptb", CUBLAS, DENSE_BEST),
    "balanced-ptb-random": _pattern("ptb", CUSPARSE_DEFAULT, CUSPARSE, "random"),
    "balanced-ptb-block": _pattern("ptb", replace(CUSPARSE, name="cuSPARSE on 8 x 8 blocks"), None, "block"),
    "balanced-timit-dense": _pattern("timit", CUBLAS, DENSE_BEST),
    "balanced-timit-random": _pattern("timit", CUSPARSE_DEFAULT, CUSPARSE, "random"),
    "balanced-timit-block": _pattern("timit", replace(CUSPARSE, name="cuSPARSE on 8 x 8 blocks"), None, "block"),
    "balanced-vgg-dense": _vgg(CUBLAS, DENSE_BEST, "balanced"),
    "balanced-vgg-random": _vgg(CUSPARSE_DEFAULT, CUSPARSE, "random"),
    "balanced-vgg-block": _vgg(replace(CUSPARSE, name="cuSPARSE on 8 x 8 blocks"), None, "block"),
    "balanced-always": _always_faster(),
    "balanced-over-random": _over_pattern("random", CUSPARSE_DEFAULT),
    "balanced-over-block": _over_pattern("block", replace(CUSPARSE, name="cuSPARSE on 8 x 8 blocks")),
    "balanced-cusparse-crossover": _cusparse_crossover(),
    "balanced-ideal-1": _ideal(1),
    "balanced-ideal-8": _ideal(8),
    "direct-vgg-last": _conv(T6, "the last 3x3 layers of VGG-16", r"(08_equal_.*)"),
    "direct-vgg-last-half": _conv(T6, "the last 3x3 layers of VGG-16", r"(08_equal_.*)", half=True),
    "direct-vgg-share": _conv(T6, "3x3 layers of VGG-16", r"(\d+_equal_.*)", "share faster"),
    "direct-vgg-half-share": _conv(T6, "3x3 layers of VGG-16", r"(\d+_equal_.*)", "share faster", half=True),
    "direct-half-over-single": _half_over_single(),
    "direct-cudnn-half": _cudnn_half(),
    "direct-pointwise": _conv(T7, "1x1 layers on 32 x 32 images", r"(c\d+_d\d+_32_equal_.*)"),
    "direct-pointwise-half": _conv(T7, "1x1 layers on 32 x 32 images", r"(c\d+_d\d+_32_equal_.*)", half=True),
    **{
        f"direct-1d-{filter_}-{level}{'-half' if half else ''}": _one_dimension(filter_, level, half)
        for filter_ in (2, 3)
        for level in ("77", "83", "87.5")
        for half in (False, True)
    },
    "direct-1d-autoencoder": unmeasured(T8, "Whole autoencoders are not part of this suite."),
    "direct-no-sub-batch": _sub_batch("paper_sbs1", "vgg16"),
    "direct-whole-batch": _sub_batch("paper_whole", "vgg16"),
    "direct-no-sub-batch-1x1": _sub_batch("paper_sbs1", "resnet50"),
    "direct-whole-batch-1x1": _sub_batch("paper_whole", "resnet50"),
    "direct-no-sub-batch-1d": _sub_batch("paper_sbs1", "cnn1d"),
    "direct-whole-batch-1d": _sub_batch("paper_whole", "cnn1d"),
    "direct-unified-count": _unified(),
    "direct-quantised": unmeasured(T6, "The paper does not say what the reduction is of."),
    "direct-streams": unmeasured(T6, "Every time of this suite is of one stream."),
    "eie-gpu-1": _eie(1),
    "eie-gpu-64": _eie(64),
    "eie-mobile-1": _eie(1),
    "eie-mobile-64": _eie(64),
    "eie-accelerator": unmeasured("eie_table4", _CHIP),
    "eie-accelerator-mobile": unmeasured("eie_table4", _CHIP),
    "ese-gpu": _ese(),
    "ese-accelerator": unmeasured("ese_lstm", _CHIP),
    "nm-half": _two_four("GEMMs of n of about 10K", r"(a100_.*)", "i8", "largest", "f16"),
    "nm-tf32": _two_four("layers of BERT, 1:2", r"(bert_.*)", "tf32"),
    "nm-bert": _two_four("layers of BERT, fp16", r"(bert_.*)", "f16", "geometric mean"),
    "patdnn-tflite": unmeasured("direct_conv_table6", _PHONE),
    "patdnn-tvm": unmeasured("direct_conv_table6", _PHONE),
    "patdnn-mnn": unmeasured("direct_conv_table6", _PHONE),
    "patdnn-reorder": unmeasured("direct_conv_table6", _PHONE),
    "patdnn-loads": unmeasured("direct_conv_table6", _PHONE),
    "patdnn-tuning": unmeasured("direct_conv_table6", _PHONE),
}
