"""What the pages of this project's own experiments are asked, and by which ratios they answer."""

from __future__ import annotations

from nnzbench.facts.groups import Group
from nnzbench.report.text import lead
from nnzbench.report.text.lead import Lead, side

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
