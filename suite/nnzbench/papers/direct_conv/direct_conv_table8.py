"""Direct sparse convolution's table 8: 1-D layers over cuDNN's."""

from __future__ import annotations

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.results import each
from nnzbench.papers.direct_conv import PAPER, tables
from nnzbench.problems.experiment import Experiment
from nnzbench.report.data import published
from nnzbench.report.pages.page import Page, Printed
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment("direct_conv_table8", "1-D convolutions", PAPER, "Table 8", tables.KERNELS)
LEVELS = {77: "sparse_77_ms", 83: "sparse_83_ms", 87.5: "sparse_875_ms"}
ANSWERED = tuple(
    Group(words=f"the filter of {taps} with equal counts", like=f"filter{taps}", level=83) for taps in (2, 3)
)
GROUPS = (
    *ANSWERED,
    *(Group(words=f"the filter of {taps} with equal counts, 77 to 87.5 %", like=f"filter{taps}") for taps in (2, 3)),
    Group(words="both filters with zeros anywhere, 77 to 87.5 %", like="filter?_uniform"),
)


def _printed(dtype: str) -> Printed:
    """cuDNN's time over the sparse one on a V100."""

    def gains(view: View) -> pd.DataFrame:
        columns = ("dtype", "kernel", "cudnn_ms", *LEVELS.values())
        found = published.read("direct_conv_table8_cnn1d", columns)
        found = found[found["dtype"] == dtype]
        rows = [
            {"case": f"filter{row.kernel[0]}", "level": level, "value": row.cudnn_ms / getattr(row, column)}
            for row in each(found)
            for level, column in LEVELS.items()
        ]
        return pd.DataFrame(rows).rename(columns={"case": "label"})

    return Printed("the paper, V100, over its cuDNN", gains)


def page() -> Page:
    """Its page."""
    return tables.page_of(
        "Is a pruned 1-D convolution faster than cuDNN's dense one?",
        "The 1-D layers of table 8 of *Direct sparse convolution* (2021; V100, cuDNN 8.2.2), batch 128, no padding. "
        "300 channels of length 64 and 100 filters are a choice: the paper says neither which of the two is the "
        "channels nor how many filters there are.",
        r"(?P<layer>filter\d)(?:_(?P<pattern>uniform))?",
        tuple(tables.answer(group, f"direct-1d-{taps}-83") for taps, group in zip((2, 3), ANSWERED, strict=True)),
        GROUPS,
        {dtype: _printed(dtype) for dtype in ("f32", "f16")},
        "direct_conv_table8_cnn1d",
        "1-D layers",
        x="label",
        panels="level",
    )
