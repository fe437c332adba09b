"""EIE (ISCA 2016): the GPU rows of its table, and its format on a GPU; ESE (FPGA 2017): its LSTM."""

from __future__ import annotations

from nnzbench.facts.selector import Selector

PAPER = "EIE (ISCA 2016)"
LAYER = r"(?P<layer>.+)_b(?P<batch>\d+)"
"""What a problem's label tells."""
SPARSE = Selector("best sparse fp32", ("cusparse", "sputnik", "row_stream"))
