"""What the pages of this project's own experiments are asked, and by which ratios they answer."""

from __future__ import annotations

from nnzbench.facts.groups import Group
from nnzbench.report.data.series import Series
from nnzbench.report.text import lead
from nnzbench.report.text.lead import Lead, side

SCALING = Lead(
    "Which kernel keeps its cost per nonzero from 1e5 to 1e8 nonzeros, and how far is cuSPARSE from it?",
    sides=(side("ring"), side("row_stream"), side("sputnik")),
    rivals=(lead.CUSPARSE,),
    groups=(Group(columns=1024), Group(columns=128)),
    second=side("sputnik"),
)
LLM_LAYERS = Lead(
    "From how many zeros on, and up to how many columns, is a sparse layer of a language model faster than the dense "
    "fp16 product?",
    sides=(
        side("tensor_spmm", "f16"),
        side("delta_spmv", "f16"),
        side("flash_llm", "f16"),
        side("spinfer", "f16"),
        side("sputnik", "f16"),
    ),
    rivals=(lead.FP16, lead.CUSPARSE_F16),
    groups=(
        Group(level=90, columns=16),
        Group(level=70, columns=16),
        Group(level=90, columns=1),
        Group(level=80, columns=16),
        Group(level=90, columns=64),
        Group(level=90, columns=256),
    ),
    claims=("flash-llm-cublas-90", "flash-llm-cublas-70"),
    claim_words="of Flash-LLM at 8 to 64 columns",
    crossing=tuple(
        Group(words="on 8192×8192", like="llama_70b_qo", level=level, columns=16) for level in (50, 60, 70, 80, 90, 95)
    ),
    second=side("flash_llm", "f16"),
)
DLMC_N512 = Lead(
    "Are the pruned matrices of the collection faster than the dense fp16 product at 512 columns?",
    sides=(
        lead.own("f16"),
        side("tensor_spmm", "f16"),
        side("ring", "f16"),
        side("row_stream", "f16"),
        side("sputnik", "f16"),
    ),
    rivals=(lead.FP16, lead.CUSPARSE_F16),
    groups=(
        Group(words="pruned to 90 % zeros", like="*.0.9.*"),
        Group(words="pruned to 98 % zeros", like="*.0.98.*"),
        Group(words="pruned to 50 % zeros", like="*.0.5.*"),
    ),
    second=side("sputnik", "f16"),
)
STEPS = {"forward": "forward", "input": "gradient of the input", "weights": "gradient of the weights"}
"""Parts of a training step, as labels of problems end."""
SPUTNIK_STEP = ("sputnik", "sputnik_transposed", "sputnik_sddmm")
FASTEST_STEP = (*SPUTNIK_STEP, "merge_spmm", "ring_sddmm", "aspt_sddmm")
_FASTEST = Series("fastest-step", "the fastest sparse kernels", FASTEST_STEP)
TRAINING_STEP = Lead(
    "Is a training step of a recurrent layer faster with sparse weights than dense?",
    sides=(
        Series("sputnik-step", "Sputnik's kernels", SPUTNIK_STEP),
        _FASTEST,
        Series("sputnik-step-f16", "Sputnik's kernels fp16", SPUTNIK_STEP, "f16"),
    ),
    rivals=(lead.DENSE, lead.TF32, lead.FP16, lead.CUSPARSE),
    groups=(
        *(Group(words="of a whole step", level=level, parts=tuple(STEPS)) for level in (90, 80, 70)),
        Group(words="forward", like="*_forward"),
        Group(words="for the gradient of the input", like="*_input"),
        Group(words="for the gradient of the weights", like="*_weights"),
    ),
    answered=3,
    second=_FASTEST,
)
