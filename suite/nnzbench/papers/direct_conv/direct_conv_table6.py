"""Direct sparse convolution's table 6: 3x3 layers of VGG-16 over cuDNN's."""

from __future__ import annotations

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.papers.direct_conv import PAPER, tables
from nnzbench.problems.experiment import Experiment
from nnzbench.report.data import published
from nnzbench.report.pages.page import Page, Printed
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment("direct_conv_table6", "3x3 convolutions of VGG-16", PAPER, "Table 6", tables.KERNELS)
LAST = Group(words="the last layers of VGG-16 with equal counts, 92 % zeros", like="08_equal")
EQUAL = Group(words="layers with equal counts, 90 to 93 % zeros", where="pattern == 'equal'")
UNIFORM = Group(words="layers with zeros anywhere, 90 to 93 %", where="pattern == 'uniform'")


def _printed(dtype: str) -> Printed:
    """cuDNN's time over the sparse one on a V100; the paper's lines are the layers in order."""

    def gains(view: View) -> pd.DataFrame:
        found = published.read("direct_conv_table6_vgg16", (f"sparse_{dtype}_ms", f"cudnn_{dtype}_ms"))
        gain = found[f"cudnn_{dtype}_ms"] / found[f"sparse_{dtype}_ms"]
        return pd.DataFrame({"layer": [float(at + 1) for at in range(len(gain))], "pattern": "equal", "value": gain})

    return Printed("the paper, V100, over its cuDNN", gains)


def page() -> Page:
    """Its page."""
    return tables.page_of(
        "Is a pruned 3×3 convolution of VGG-16 faster than cuDNN's dense one?",
        "The 3×3 layers of VGG-16 in table 6 of *Direct sparse convolution* (2021; V100, cuDNN 8.2.2), numbered in "
        "its order, batch 128.",
        r"(?P<layer>\d\d)_(?P<pattern>equal|uniform)",
        (tables.answer(LAST, "direct-vgg-last"), tables.answer(EQUAL)),
        (LAST, EQUAL, UNIFORM),
        {dtype: _printed(dtype) for dtype in ("f32", "f16")},
        "direct_conv_table6_vgg16",
        "3×3 layers of VGG-16",
    )
