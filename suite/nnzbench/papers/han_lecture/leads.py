"""What the pages of the lecture's experiments are asked, and by which ratios they answer."""

from __future__ import annotations

from nnzbench.facts.groups import Group
from nnzbench.report.text import lead
from nnzbench.report.text.lead import Lead, own, side

_KINDS = {
    "unstructured": "of single weights",
    "pattern": "of PatDNN's patterns",
    "kernel": "of 3x3 kernels",
    "vector": "of rows of kernels",
    "nm": "of 1 in 8",
    "block": "of blocks of 32x32",
}
GRANULARITY = Lead(
    "What does each granularity of pruning cost or gain at equal sparsity?",
    sides=(own(), own("f16"), side("cusparselt", "f16"), side("sputnik")),
    rivals=(lead.CUBLAS, lead.CUDNN, lead.FP16, lead.CUDNN_F16),
    groups=tuple(
        Group(op=op, level=87.5, words=words, like=f"{kind}_87.5")
        for op, kinds in (("spmm", _KINDS), ("conv2d", list(_KINDS)[:4]))
        for words, kind in ((_KINDS[kind], kind) for kind in kinds)
    ),
    answered=6,
)
