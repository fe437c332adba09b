"""What SparseRT's pages are asked, and by which ratios they answer."""

from __future__ import annotations

from nnzbench.report.data.series import DEFAULT
from nnzbench.report.text import lead
from nnzbench.facts.groups import Group
from nnzbench.report.text.lead import Lead, own, side

LEVELS = (Group(level=90), Group(level=95))
PAPER = side("sparsert_paper")

TABLE1 = Lead(
    "Is a pruned layer of ResNet-50, MobileNet or a Transformer faster as code generated from its weights than as "
    "cuBLAS's dense product?",
    sides=(PAPER, own(), own(as_data=True), lead.UNTUNED, side("sputnik", variants=DEFAULT)),
    rivals=(lead.DENSE, *lead.PRODUCTS),
    groups=LEVELS,
    claims=("sparsert-spmm-90", "sparsert-spmm-95"),
    drawn_over=lead.CUBLAS,
)
TABLE3 = Lead(
    "Is a pruned 3x3 convolution of ResNet-50 faster as code generated from its weights than in cuDNN?",
    sides=(side("sparsert_conv_paper"), own()),
    rivals=lead.CONVOLUTIONS,
    groups=LEVELS,
    claims=("sparsert-conv-90", "sparsert-conv-95"),
)
ROLLED = side("sparsert_rolled", words="at the same tiling")
ABLATION = Lead(
    "How much of SparseRT's speed is unrolling, how much tuning, how much balancing?",
    sides=(PAPER,),
    rivals=(
        ROLLED,
        side("sparsert_rolled", words="at its own best tiling"),
        side("sparsert_fixed"),
        side("sparsert_unbalanced"),
        lead.CUBLAS,
    ),
    alike=(ROLLED,),
    groups=(Group(level=90),),
    claims=("sparsert-unrolling",),
    claim_words="at best",
)
