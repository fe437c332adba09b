"""Direct sparse convolution (2021): its experiments and their pages."""

from __future__ import annotations

from nnzbench.problems.experiment import Experiment, dtypes_of

PAPER = "Direct sparse convolution (2021)"

EXPERIMENTS = tuple(
    Experiment(
        f"direct_conv_table{number}",
        title,
        PAPER,
        f"Table {number}",
        dtypes_of("direct_conv", "sparsert_conv", "cudnn"),
        page=f"nnzbench.papers.direct_conv.{page}",
    )
    for number, title, page in (
        (6, "3x3 convolutions of VGG-16", "tables:TABLE6"),
        (7, "1x1 convolutions of ResNet-50", "tables:TABLE7"),
        (8, "1-D convolutions", "tables:TABLE8"),
    )
)
