"""Rules for Sputnik's claims."""

from __future__ import annotations

from dataclasses import replace

from nnzbench.report.claims.attention import AttentionMemory
from nnzbench.report.claims.quantities import (
    Crossover,
    CrossoverNonzeros,
    How,
    PeakShare,
    Ratio,
    Settled,
    Side,
)
from nnzbench.report.claims.sides import CUBLAS, CUSPARSE, DENSE_BEST, OURS, Rule, judged, speedup, unmeasured
from nnzbench.report.data.series import COLUMN_DEFAULT

DLMC, RNN, ABLATION, MOBILENET, ATTENTION, NETWORKS = (
    "sputnik_dlmc", "sputnik_rnn", "sputnik_ablation", "sputnik_mobilenet", "sputnik_attention", "whole_networks",
)  # fmt: skip
HEURISTIC = Side("`sputnik` at its heuristic", ("sputnik",), variant="heuristic")
SPUTNIK = Side("`sputnik`'s best tile", ("sputnik",))
SDDMM = Side("`sputnik_sddmm` at its heuristic", ("sputnik_sddmm",), variant="heuristic")
COMPLETE = Side("the complete kernel", ("sputnik_ablation", "sputnik_sddmm_ablation"), variant="complete")
DEFAULT = Side("cuSPARSE's default algorithm on column-major operands", ("cusparse",), variant=COLUMN_DEFAULT)
DEFAULT_SDDMM = Side("cuSPARSE's default SDDMM", ("cusparse",), variant="sddmm_default")
MERGE = Side("MergeSpMM by its own rule", ("merge_spmm",), variant="heuristic")
ASPT, ASPT_SDDMM = Side("ASpT", ("aspt",)), Side("ASpT", ("aspt_sddmm",))
WORDS = "`sputnik`, the paper's kernel written anew, at the paper's heuristic"
SDDMM_WORDS = "`sputnik_sddmm`, the paper's kernel written anew, at the paper's heuristic"
SPMM_CASES, SDDMM_CASES = r"((?!sddmm_).*)$", r"(sddmm_.*)$"
RNN_CASES, RNN_SDDMM = r"((?:rnn|gru|lstm).*)$", r"(sddmm_(?:rnn|gru|lstm).*)$"
LAYERS = "RNN, GRU and LSTM layers"
FIGURE1 = "M = 8192, K = 2048, N = 128"
_HEURISTIC, _RULE = r"[a-z0-9]+_heuristic$", r"[a-z0-9]+_rule$"
"""Variants of whole networks whose kernels' tiles the paper's heuristics choose, or a rule of this project."""


def _spmm(experiment: str, scope: str, cases: str, how: How = "geometric mean", half: bool = False) -> Rule:
    """Against what the paper calls, then against today's best algorithm; other tiles and our designs stand beside."""
    heuristic, default, best, ours, oracle = (
        replace(side, math="f16") if half else side for side in (HEURISTIC, DEFAULT, CUSPARSE, OURS, SPUTNIK)
    )
    return judged(
        WORDS,
        speedup(experiment, scope, cases, heuristic, default, how),
        (f"the best of all tiles against {CUSPARSE.name}", speedup(experiment, scope, cases, oracle, best, how)),
        (f"{OURS.name} against {CUSPARSE.name}", speedup(experiment, scope, cases, ours, best, how)),
        today=speedup(experiment, scope, cases, heuristic, best, how),
    )


def _sddmm(experiment: str, scope: str, cases: str, how: How = "geometric mean") -> Rule:
    return judged(
        SDDMM_WORDS,
        speedup(experiment, scope, cases, SDDMM, DEFAULT_SDDMM, how),
        (f"{OURS.name} against {CUSPARSE.name}", speedup(experiment, scope, cases, OURS, CUSPARSE, how)),
        today=speedup(experiment, scope, cases, SDDMM, CUSPARSE, how),
    )


def _rival(rival: Side, how: How = "geometric mean") -> Rule:
    """Against another paper's kernel on recurrent layers; beside it what that makes of cuSPARSE, as figure 10 shows."""
    return judged(
        WORDS,
        speedup(RNN, LAYERS, RNN_CASES, HEURISTIC, rival, how),
        (f"the best of all tiles against {rival.name}", speedup(RNN, LAYERS, RNN_CASES, SPUTNIK, rival, how)),
        (f"{rival.name} against {DEFAULT.name}", speedup(RNN, LAYERS, RNN_CASES, rival, DEFAULT, how)),
    )


def _peak(subject: Side, cases: str, words: str = WORDS) -> Rule:
    return judged(words, PeakShare(DLMC, "the sample of the collection", replace(subject, cases=cases)))


def _crossover(subject: Side, never: Settled = "contradicted", dense: Side = CUBLAS) -> Crossover:
    return Crossover("sputnik_figure1", FIGURE1, subject, dense, never)


def _imbalance(variant: str) -> Rule:
    """Same nonzeros in both matrices, so times stand for throughput."""
    words = "with rows in order of length" if variant == "complete" else "with rows in their own order"
    uneven = Side(f"the kernel {words}, rows' variation 1.7,", ("sputnik_ablation",), r"cov1\.7_", variant)
    even = replace(COMPLETE, name="that on rows of equal length", cases=r"cov0_")
    return judged(WORDS, Ratio("sputnik_figure7", f"{FIGURE1}, 75 % zeros", (uneven,), (even,), "mean percent"))


def _without(part: str, layers: str, sampled: bool = False) -> Rule:
    """One cell of table II. `sampled` are the cells of the sampled product."""
    model, batch = layers.split()
    lesser = Side(f"the kernel without {part.replace('_', ' ')}", COMPLETE.kernels, variant=f"no_{part}")
    cases = rf"({'sddmm_' if sampled else ''}{model}_.*_b{batch}_.*)"
    name = "ResNet-50" if model == "rn50" else "the Transformer"
    scope = (
        f"{name} at batch {batch}{', SDDMM' if sampled else ''}, one matrix per shape and level for all that have them"
    )
    words = SDDMM_WORDS if sampled else WORDS
    return judged(words, speedup(ABLATION, scope, cases, lesser, COMPLETE, "mean percent"))


TABLE2 = {
    f"sputnik-{'sddmm-' if sampled else ''}no-{part.replace('_', '-')}-{layers.replace(' ', '-')}": _without(
        part, layers, sampled
    )
    for sampled, parts in (
        (False, ("load_balancing", "vector", "residue_unroll", "prescale")),
        (True, ("load_balancing", "vector")),
    )
    for part in parts
    for layers in ("tf 1", "tf 8", "rn50 1", "rn50 256")
}
"""All 24 cells of table II by the claim's id."""


def _mobilenet(sparse: str, dense: str) -> Rule:
    """Of whole networks; beside it at our rule's tiles, and 1 over the sum of layers' times, the first 1x1 convolution
    dense in both.
    """
    network = Side(f"the sparse network of width {sparse}", ("sparse_mobilenet",), rf"sparse_w{sparse}_\d", _HEURISTIC)
    whole = Ratio(
        NETWORKS,
        "one image through the whole network",
        (network,),
        (Side(f"the dense network of width {dense}", ("dense_mobilenet",), rf"dense_w{dense}_\d", math="dense"),),
    )
    by_rule = replace(whole, subject=(replace(network, variant=_RULE),))
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
    layers = Ratio(MOBILENET, scope, sparse_model, dense_model, "total")
    words = "`sparse_mobilenet`: the paper's kernels written anew, at its heuristic"
    beside = (
        ("at this project's rule's tiles", by_rule),
        ("the sum of its layers' times, each at its best tile", layers),
    )
    return judged(words, whole, *beside)


_ATTENTION = Side("`sparse_attention`", ("sparse_attention",), "attention_")
_DENSE_ATTENTION = Side(
    "dense attention by cuBLAS, or cuDNN's fused one in fp16,",
    ("dense_attention", "cudnn_attention"),
    "(?:attention|causal)_",
    math="dense",
)
"""Whose attention takes every key up to the query's own, whether or not the problem has the sparse mask."""
_SPARSE_MODEL = Side("the sparse Transformer", ("sparse_transformer",), "transformer_", _HEURISTIC, math="dense")
"""Most of its time is dense products, which run on tensor cores where the dense Transformer's do."""
_DENSE_MODEL = Side("the dense Transformer", ("dense_transformer",), "transformer_", math="dense")
_WHOLE = Ratio(NETWORKS, "the Transformer's layers as a whole", (_SPARSE_MODEL,), (_DENSE_MODEL,))
_TOGETHER = r"[a-z0-9]+_(heuristic|default)_together$"
"""Variants that hold the scores of all heads, as the paper's model does."""
_MODEL_WORDS = "`sparse_transformer`: the paper's kernels written anew, at its heuristics"

SAMPLE = "the sample of the collection"
_NO_SUITESPARSE = "The matrices of SuiteSparse, which the paper compares with, are not part of this suite."
_NO_COPY = "No product's memory is measured, and ASpT written anew keeps its reordered copy of the matrix only."

RULES = {
    "sputnik-spmm": _spmm(DLMC, SAMPLE, SPMM_CASES),
    "sputnik-spmm-most": _spmm(DLMC, SAMPLE, SPMM_CASES, "largest"),
    "sputnik-spmm-share": _spmm(DLMC, SAMPLE, SPMM_CASES, "share faster"),
    "sputnik-spmm-peak": _peak(HEURISTIC, SPMM_CASES),
    "sputnik-spmm-half": _spmm(DLMC, SAMPLE, SPMM_CASES, half=True),
    "sputnik-half-most": _spmm(DLMC, SAMPLE, SPMM_CASES, "largest", half=True),
    "sputnik-half-share": _spmm(DLMC, SAMPLE, SPMM_CASES, "share faster", half=True),
    "sputnik-half-peak": _peak(replace(HEURISTIC, math="f16"), SPMM_CASES),
    "sputnik-sddmm": _sddmm(DLMC, SAMPLE, SDDMM_CASES),
    "sputnik-sddmm-most": _sddmm(DLMC, SAMPLE, SDDMM_CASES, "largest"),
    "sputnik-sddmm-share": _sddmm(DLMC, SAMPLE, SDDMM_CASES, "share faster"),
    "sputnik-sddmm-peak": _peak(SDDMM, SDDMM_CASES, SDDMM_WORDS),
    "sputnik-less-sparse": unmeasured(DLMC, _NO_SUITESPARSE),
    "sputnik-longer-rows": unmeasured(DLMC, _NO_SUITESPARSE),
    "sputnik-less-variation": unmeasured(DLMC, _NO_SUITESPARSE),
    "sputnik-crossover": judged(
        WORDS,
        _crossover(HEURISTIC),
        ("with the best of all tiles", _crossover(SPUTNIK, dense=DENSE_BEST)),
        (OURS.name, _crossover(OURS, dense=DENSE_BEST)),
        today=_crossover(HEURISTIC, dense=DENSE_BEST),
    ),
    "sputnik-crossover-nonzeros": judged(
        WORDS,
        CrossoverNonzeros(_crossover(HEURISTIC), _crossover(DEFAULT, "stronger")),
        today=CrossoverNonzeros(
            _crossover(HEURISTIC, dense=DENSE_BEST), _crossover(CUSPARSE, "stronger", dense=DENSE_BEST)
        ),
    ),
    "sputnik-imbalance": _imbalance("no_load_balancing"),
    "sputnik-swizzle": _imbalance("complete"),
    "sputnik-rnn-cusparse": _spmm(RNN, LAYERS, RNN_CASES),
    "sputnik-rnn-most": _spmm(RNN, LAYERS, RNN_CASES, "largest"),
    "sputnik-rnn-sddmm": _sddmm(RNN, LAYERS, RNN_SDDMM),
    "sputnik-rnn-sddmm-most": _sddmm(RNN, LAYERS, RNN_SDDMM, "largest"),
    "sputnik-rnn-merge": _rival(MERGE),
    "sputnik-rnn-merge-most": _rival(MERGE, "largest"),
    "sputnik-rnn-aspt": _rival(ASPT),
    "sputnik-rnn-aspt-most": _rival(ASPT, "largest"),
    "sputnik-rnn-sddmm-aspt": judged(SDDMM_WORDS, speedup(RNN, LAYERS, RNN_SDDMM, SDDMM, ASPT_SDDMM, "mean percent")),
    "sputnik-rnn-aspt-memory": unmeasured(RNN, _NO_COPY),
    "sputnik-rnn-vector": unmeasured(RNN, "The scalar SDDMM runs in the ablation alone, not on these layers."),
    **TABLE2,
    "sputnik-attention-time": judged(
        _MODEL_WORDS,
        _WHOLE,
        ("at this project's rule's choice", replace(_WHOLE, subject=(replace(_SPARSE_MODEL, variant=_RULE),))),
        ("attention of one head alone", Ratio(ATTENTION, "one head", (_ATTENTION,), (_DENSE_ATTENTION,))),
    ),
    "sputnik-attention-memory": judged(
        _MODEL_WORDS,
        AttentionMemory(
            NETWORKS,
            "the Transformer's layers as a whole, scores of all heads held",
            replace(_SPARSE_MODEL, variant=_TOGETHER),
            replace(_DENSE_MODEL, variant=_TOGETHER),
            counted=False,
        ),
        ("attention of one head alone", AttentionMemory(ATTENTION, "one head", _ATTENTION, _DENSE_ATTENTION)),
    ),
    "sputnik-attention-1080": unmeasured(NETWORKS, "That GPU is none of this project's."),
    "sputnik-mobilenet-1.0": _mobilenet("1.3", "1"),
    "sputnik-mobilenet-1.2": _mobilenet("1.5", "1.2"),
    "sputnik-mobilenet-1.4": _mobilenet("1.8", "1.4"),
}
