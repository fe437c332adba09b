"""What the pages of the lecture's experiments are asked, and by which ratios they answer."""

from __future__ import annotations

from nnzbench.report.text import lead
from nnzbench.report.text.lead import Group, Lead, own, side

NM_SPARSITY = Lead(
    "Are 2:4 products on sparse tensor cores twice as fast as dense ones?",
    sides=(side("cusparselt", "i8"), side("cusparselt", "f16"), side("cusparselt", "tf32")),
    rivals=(lead.INT8, lead.FP16, lead.TF32),
    groups=(
        Group(words="of the A100 figure", like="a100"),
        Group(words="of BERT", like="bert_*"),
        Group(words="of cubes", like="cube"),
    ),
    claims=("nm-half",),
)
_KINDS = ("unstructured", "vector", "kernel", "pattern", "block", "nm")
GRANULARITY = Lead(
    "What does each granularity of pruning cost or gain at equal sparsity?",
    sides=(own(), own("f16"), side("cusparselt", "f16"), side("sputnik")),
    rivals=(lead.CUBLAS, lead.FP16, lead.CUDNN, lead.CUDNN_F16),
    groups=tuple(Group(words=f"of granularity {kind}", like=f"{kind}_*") for kind in _KINDS),
)
