"""What EIE's and ESE's pages are asked, and by which ratios they answer."""

from __future__ import annotations

from nnzbench.facts.groups import Group
from nnzbench.report.text import lead
from nnzbench.report.text.lead import Lead, own, side

ONE = Group(words="at batch one", like="*_b1")

TABLE4 = Lead(
    "Are EIE's pruned layers faster in cuSPARSE than dense in cuBLAS?",
    sides=(lead.CUSPARSE_COLUMN, lead.CUSPARSE, own(), side("sputnik")),
    rivals=(lead.CUBLAS, lead.TF32, lead.FP16),
    groups=(ONE, Group(words="at batch 64", like="*_b64")),
    claims=("eie-gpu-1", "eie-gpu-64"),
    drawn=lead.CUSPARSE,
)
FORMAT = Lead(
    "Does one byte per nonzero make EIE's layers faster on a GPU than cuSPARSE and the dense product?",
    sides=(side("eie", "f16"), side("eie"), side("row_stream", "f16")),
    rivals=(lead.CUSPARSE_F16, lead.FP16, side("balanced", "f16"), lead.CUSPARSE, lead.CUBLAS),
    groups=(ONE, Group(words="at batch eight", like="*_b8")),
    second=side("row_stream", "f16"),
)
ESE = Lead(
    "Is ESE's pruned LSTM faster in cuSPARSE than dense in cuBLAS?",
    sides=(lead.CUSPARSE_COLUMN, lead.CUSPARSE, own(), side("sputnik")),
    rivals=(lead.CUBLAS, lead.DENSE, lead.TF32, lead.FP16),
    groups=tuple(
        Group(words="of both products of a step", columns=columns, like="*_b*", baseline_like="*_b*")
        for columns in (32, 1)
    ),
    claims=("ese-gpu",),
    drawn=lead.CUSPARSE,
    drawn_over=lead.DENSE,
)
