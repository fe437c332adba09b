"""Sputnik's table III: time and memory of sparse, dense and fused attention over 12,288 tokens."""

from __future__ import annotations

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.results import each
from nnzbench.facts.selector import CUSPARSE, DEFAULT, kernel
from nnzbench.facts.table import Comparison
from nnzbench.papers.sputnik import PAPER
from nnzbench.problems.experiment import AND_F16, Experiment, dtypes_of
from nnzbench.report.data.networks import attention_bytes
from nnzbench.report.pages.page import Answer, Bars, Made, Page, Pivot, Published, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "sputnik_attention",
    "Sparse attention of a Transformer",
    PAPER,
    "Table III, figure 11",
    # kernels that take the weights as data: those that pack them or write them into code can't follow the softmax
    dtypes_of(
        *("dense_attention", "sputnik_sddmm", "sparse_softmax", "sputnik", "cusparse"),
        sparse_attention=AND_F16,
        cudnn_attention=("f16",),
    ),
)
SPARSE = Group(words="attention under the sparse mask", like="attention")
WHOLE = Group(words="sparse against full causal attention", like="attention", baseline_like="causal")
ALL_OF_A_HEAD = Group(words="a whole head", where="label in ('attention', 'causal')")
STEPS = Group(words="steps", where="label in ('scores', 'softmax', 'context')")
UNFUSED, UNFUSED_TF32 = kernel("dense_attention"), kernel("dense_attention", "tf32")
FUSED = kernel("cudnn_attention", "f16")
RULE = kernel("sparse_attention", variants=DEFAULT)
BEST, BEST_F16 = kernel("sparse_attention"), kernel("sparse_attention", "f16")
WAYS = (UNFUSED, UNFUSED_TF32, FUSED, RULE, BEST, BEST_F16)


def _memory(view: View) -> pd.DataFrame | None:
    """Tokens per second of all heads, one after another, and memory of one head by what computes it."""
    cells = view.cells(WAYS, ALL_OF_A_HEAD)
    if cells.empty:
        return None
    dense = cells[(cells["label"] == "attention") & (cells["subject"] == UNFUSED.label)].set_index("policy")[
        "memory_mb"
    ]
    maths = {one.label: one.math for one in WAYS}
    counted = [
        attention_bytes(row.kernel, row.variant, maths[row.subject], row.m, row.k, row.n, row.nnz) / 1e6
        for row in each(cells)
    ]
    return pd.DataFrame(
        {
            "problem": cells["label"],
            "kernel": cells["subject"],
            "policy": cells["policy"],
            "positions": cells["nnz"],
            "tokens/s": (1e6 * cells["m"] / (cells["median_us"] * cells["count"])).round().astype(int),
            "MB counted": counted,
            "MB measured": cells["memory_mb"],
            "times less than dense_attention's": cells["policy"].map(dense) / cells["memory_mb"],
        }
    )


def page() -> Page:
    """Its page."""
    return Page(
        question="Is attention under a sparse mask faster than dense attention?",
        intro="softmax(QKᵀ)V of one head of 128 features over 12,288 tokens: with all scores computed and kept, the "
        "mask applied in the softmax (`dense_attention`), or with scores at the mask's positions alone "
        "(`sparse_attention`): a dense band of 256 and 5 % of the tokens left of it (table III and figure 11 of "
        "*Sparse GPU Kernels for Deep Learning*, SC 2020). `attention` is under that mask, `causal` with every key up "
        "to the query, as the dense Transformer has it. Today that one runs fused attention, which writes no scores: "
        "cuDNN's takes fp16 alone, and the sparse mask as a tensor added to the scores. The paper times its whole "
        "3-layer Transformer with 8 heads per layer on 8 sequences; tokens per second here are those of the attention "
        "alone, 24 heads of one sequence one after another, and memory is that of one head: counted from its buffers, "
        "and measured as what the driver says is in use. Only ratios compare, and the paper's include layers that "
        "stay dense.",
        answers=(
            Answer(WHOLE, BEST_F16, FUSED, (RULE, BEST)),
            Answer(SPARSE, RULE, FUSED, (BEST, BEST_F16), UNFUSED),
        ),
        comparison=Comparison((RULE, BEST, BEST_F16), (FUSED, UNFUSED_TF32, UNFUSED), (WHOLE, SPARSE)),
        figures=(
            Bars("attention", "Attention of one head over 12,288 tokens: time", WAYS, "time", group=ALL_OF_A_HEAD),
            Bars("memory", "Attention of one head over 12,288 tokens: memory", WAYS, "memory", group=ALL_OF_A_HEAD),
        ),
        tables=(
            Made("Tokens per second of 24 heads, memory of one", _memory, "counts buffers", collapsed=False),
            RatioTable("Every way over unfused fp32 attention under the same mask",
                       Comparison((UNFUSED_TF32, FUSED), (UNFUSED,), (SPARSE,))),
            RatioTable("Fused causal attention over unfused attention under the mask",
                       Comparison((FUSED,), (UNFUSED,), (Group(words="causal against masked attention", like="causal",
                                                               baseline_like="attention"),))),
            Pivot("One head, µs", WAYS, rows=("subject",), columns="label", group=ALL_OF_A_HEAD),
            Pivot("The steps of sparse attention by themselves, µs",
                  (kernel("sputnik_sddmm"), kernel("sparse_softmax"), kernel("sputnik"), CUSPARSE), group=STEPS),
            Published("The paper's whole model (no number: out of memory)", "sputnik_table3_sparse_transformer", {
                "model": "model", "gpu": "GPU", "bits_per_dim": "bits per dimension",
                "throughput_tokens_per_s": "tokens/s", "memory_gb": "GB",
            }),
        ),
        baseline=UNFUSED,
    )  # fmt: skip
