"""Rules for Sputnik's claims."""

from __future__ import annotations

from dataclasses import replace

from nnzbench.report.claims_quantities import (
    Crossover,
    CrossoverNonzeros,
    How,
    PeakShare,
    Ratio,
    ScoreBytes,
    Settled,
    Side,
)
from nnzbench.report.claims_sides import CUBLAS, CUSPARSE, OURS, Rule, judged, speedup, unmeasured

DLMC, RNN, ABLATION, MOBILENET, ATTENTION = (
    "sputnik_dlmc", "sputnik_rnn", "sputnik_ablation", "sputnik_mobilenet", "sputnik_attention",
)  # fmt: skip
HEURISTIC = Side("`sputnik` at its heuristic", ("sputnik",), variant="heuristic")
SPUTNIK = Side("`sputnik`'s best tile", ("sputnik",))
SDDMM = Side("`sputnik_sddmm` at its heuristic", ("sputnik_sddmm",), variant="heuristic")
COMPLETE = Side("the complete kernel", ("sputnik_ablation", "sputnik_sddmm_ablation"), variant="complete")
DEFAULT = Side("cuSPARSE's default algorithm on column-major operands", ("cusparse",), variant="csr_default_col$")
DEFAULT_SDDMM = Side("cuSPARSE's default SDDMM", ("cusparse",), variant="sddmm_default")
WORDS = "`sputnik`, the paper's kernel written anew, at the paper's heuristic"
SDDMM_WORDS = "`sputnik_sddmm`, the paper's kernel written anew, at the paper's heuristic"
SPMM_CASES, SDDMM_CASES = r"((?!sddmm_).*)$", r"(sddmm_.*)$"
RNN_CASES, RNN_SDDMM = r"((?:rnn|gru|lstm).*)$", r"(sddmm_(?:rnn|gru|lstm).*)$"
FIGURE1 = "M = 8192, K = 2048, N = 128"


def _spmm(experiment: str, scope: str, cases: str, how: How = "geometric mean", half: bool = False) -> Rule:
    """Against what the paper calls, with today's best algorithm and our best kernel beside."""
    heuristic, default, best, ours, oracle = (
        replace(side, math="f16") if half else side for side in (HEURISTIC, DEFAULT, CUSPARSE, OURS, SPUTNIK)
    )
    return judged(
        WORDS,
        speedup(experiment, scope, cases, heuristic, default, how),
        ("against the best of cuSPARSE's algorithms", speedup(experiment, scope, cases, heuristic, best, how)),
        ("with the best of all tiles", speedup(experiment, scope, cases, oracle, default, how)),
        (OURS.name, speedup(experiment, scope, cases, ours, default, how)),
    )


def _sddmm(experiment: str, scope: str, cases: str, how: How = "geometric mean") -> Rule:
    return judged(
        SDDMM_WORDS,
        speedup(experiment, scope, cases, SDDMM, DEFAULT_SDDMM, how),
        ("against the best of cuSPARSE's variants", speedup(experiment, scope, cases, SDDMM, CUSPARSE, how)),
    )


def _crossover(subject: Side, never: Settled = "contradicted") -> Crossover:
    return Crossover("sputnik_figure1", FIGURE1, subject, CUBLAS, never)


def _imbalance(variant: str) -> Rule:
    """Same nonzeros in both matrices, so times stand for throughput."""
    words = "with rows in order of length" if variant == "complete" else "with rows in their own order"
    uneven = Side(f"the kernel {words}, rows' variation 1.7,", ("sputnik_ablation",), r"cov1\.7_", variant)
    even = replace(COMPLETE, name="that on rows of equal length", cases=r"cov0_")
    return judged(WORDS, Ratio("sputnik_figure7", f"{FIGURE1}, 75 % zeros", (uneven,), (even,), "mean percent"))


def _without(part: str, cases: str, model: str) -> Rule:
    lesser = Side(f"the kernel without {part.replace('_', ' ')}", COMPLETE.kernels, variant=f"no_{part}")
    scope = f"one matrix per shape and level of {model}, each for all that the collection has of them"
    return judged(WORDS, speedup(ABLATION, scope, cases, lesser, COMPLETE, "mean percent"))


def _mobilenet(sparse: str, dense: str) -> Rule:
    """Frames per second: 1 over the sum of the layers' times; the first 1x1 convolution is dense in both."""
    sparse_model = (
        Side(f"the sparse model of width {sparse}", ("sputnik_bias_relu",), rf"sparse_w{sparse}_(pw(?!00_)\d+)_"),
        Side("first", ("cublas_bias_relu",), rf"sparse_w{sparse}_(pw00)_", math="dense"),
        Side("depthwise", ("depthwise_conv",), rf"sparse_w{sparse}_(dw\d+)_"),
    )
    dense_model = (
        Side(f"the dense model of width {dense}", ("cublas_bias_relu",), rf"dense_w{dense}_(pw\d+)_", math="dense"),
        Side("depthwise", ("depthwise_conv",), rf"dense_w{dense}_(dw\d+)_"),
    )
    scope = "all pairs of depthwise and 1x1 convolution, each as often as it occurs"
    words = "`sputnik_bias_relu`, the paper's kernel written anew, at its best tile"
    return judged(words, Ratio(MOBILENET, scope, sparse_model, dense_model, "total"))


_ATTENTION = Side("`sparse_attention`", ("sparse_attention",), "attention_")
_DENSE_ATTENTION = Side("dense attention by cuBLAS", ("dense_attention",), "attention_", math="dense")

RULES = {
    "sputnik-spmm": _spmm(DLMC, "the sample of the collection", SPMM_CASES),
    "sputnik-spmm-most": _spmm(DLMC, "the sample of the collection", SPMM_CASES, "largest"),
    "sputnik-spmm-share": _spmm(DLMC, "the sample of the collection", SPMM_CASES, "share faster"),
    "sputnik-spmm-peak": judged(
        WORDS, PeakShare(DLMC, "the sample of the collection", replace(HEURISTIC, cases=SPMM_CASES))
    ),
    "sputnik-spmm-half": _spmm(DLMC, "the sample of the collection", SPMM_CASES, half=True),
    "sputnik-sddmm": _sddmm(DLMC, "the sample of the collection", SDDMM_CASES),
    "sputnik-sddmm-share": _sddmm(DLMC, "the sample of the collection", SDDMM_CASES, "share faster"),
    "sputnik-crossover": judged(
        WORDS,
        _crossover(HEURISTIC),
        ("with the best of all tiles", _crossover(SPUTNIK)),
        (OURS.name, _crossover(OURS)),
    ),
    "sputnik-crossover-nonzeros": judged(
        WORDS,
        CrossoverNonzeros(_crossover(HEURISTIC), _crossover(DEFAULT, "stronger")),
        (
            "against the best of cuSPARSE's algorithms",
            CrossoverNonzeros(_crossover(HEURISTIC), _crossover(CUSPARSE, "stronger")),
        ),
    ),
    "sputnik-imbalance": _imbalance("no_load_balancing"),
    "sputnik-swizzle": _imbalance("complete"),
    "sputnik-rnn-cusparse": _spmm(RNN, "RNN, GRU and LSTM layers", RNN_CASES),
    "sputnik-rnn-sddmm": _sddmm(RNN, "RNN, GRU and LSTM layers", RNN_SDDMM),
    "sputnik-rnn-merge": unmeasured(RNN, "MergeSpMM is not part of this suite."),
    "sputnik-rnn-aspt": unmeasured(RNN, "ASpT is not part of this suite."),
    "sputnik-rnn-vector": unmeasured(RNN, "The scalar SDDMM runs in the ablation alone, not on these layers."),
    "sputnik-no-balancing": _without("load_balancing", r"(rn50_.*_b256_.*)", "ResNet-50 at batch 256"),
    "sputnik-no-vectors": _without("vector", r"(rn50_.*_b256_.*)", "ResNet-50 at batch 256"),
    "sputnik-no-vectors-transformer": _without("vector", r"(tf_.*_b8_.*)", "the Transformer at batch 8"),
    "sputnik-no-unrolling": _without("residue_unroll", r"(rn50_.*_b1_.*)", "ResNet-50 at batch 1"),
    "sputnik-no-prescaling": _without("prescale", r"(rn50_.*_b1_.*)", "ResNet-50 at batch 1"),
    "sputnik-sddmm-no-vectors": _without("vector", r"(sddmm_rn50_.*_b256_.*)", "ResNet-50 at batch 256, SDDMM"),
    "sputnik-attention-time": judged(
        "`sparse_attention`, the paper's three kernels written anew",
        Ratio(ATTENTION, "attention of one head alone", (_ATTENTION,), (_DENSE_ATTENTION,)),
    ),
    "sputnik-attention-memory": judged("no kernel", ScoreBytes(ATTENTION, _ATTENTION, 8)),
    "sputnik-mobilenet-1.2": _mobilenet("1.5", "1.2"),
    "sputnik-mobilenet-1.4": _mobilenet("1.8", "1.4"),
}
