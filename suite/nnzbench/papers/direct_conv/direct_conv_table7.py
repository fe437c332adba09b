"""Direct sparse convolution's table 7: 1x1 layers of ResNet-50 over cuDNN's."""

from __future__ import annotations

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.results import each
from nnzbench.papers.direct_conv import PAPER, tables
from nnzbench.problems.experiment import Experiment
from nnzbench.report.data import published
from nnzbench.report.pages.page import Page, Printed
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment("direct_conv_table7", "1x1 convolutions of ResNet-50", PAPER, "Table 7", tables.KERNELS)
SMALL = Group(words="layers with equal counts on images of 32×32, 90 % zeros", like="*_32_equal")
EQUAL = Group(words="layers with equal counts, 90 % zeros", where="pattern == 'equal'")
UNIFORM = Group(words="layers with zeros anywhere, 90 %", where="pattern == 'uniform'")


def _printed(dtype: str) -> Printed:
    """cuDNN's time over the sparse one on a V100, where images of 32x32 fit the times."""

    def gains(view: View) -> pd.DataFrame:
        columns = ("dtype", "in_channels", "out_channels", "cudnn_ms", "sparse_ms")
        found = published.read("direct_conv_table7_resnet50_1x1", columns)
        found = found[found["dtype"] == dtype]
        layers = [f"c{row.in_channels}_d{row.out_channels}_32" for row in each(found)]
        return pd.DataFrame({"layer": layers, "pattern": "equal", "value": found["cudnn_ms"] / found["sparse_ms"]})

    return Printed("the paper, V100, over its cuDNN", gains)


def page() -> Page:
    """Its page."""
    return tables.page_of(
        "Is a pruned 1×1 convolution of ResNet-50 faster than cuDNN's dense one?",
        "The 1×1 layers of ResNet-50 in table 7 of *Direct sparse convolution* (2021; V100, cuDNN 8.2.2), batch 128. "
        "The paper does not say how large the images are: 32×32 fits its times, 56×56 is ResNet-50's own.",
        r"(?P<layer>c\d+_d\d+_\d+)_(?P<pattern>equal|uniform)",
        (tables.answer(SMALL, "direct-pointwise"), tables.answer(EQUAL)),
        (SMALL, EQUAL, UNIFORM),
        {dtype: _printed(dtype) for dtype in ("f32", "f16")},
        "direct_conv_table7_resnet50_1x1",
        "1×1 layers of ResNet-50",
    )
