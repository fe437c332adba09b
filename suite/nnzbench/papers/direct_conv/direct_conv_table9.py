"""Direct sparse convolution's table 9: what the number of thread blocks is worth to the published method."""

from __future__ import annotations

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.selector import CUDNN, CUDNN_TF32, Selector, kernel
from nnzbench.facts.table import Comparison
from nnzbench.papers.direct_conv import PAPER
from nnzbench.problems.experiment import Experiment, dtypes_of
from nnzbench.report.data import published
from nnzbench.report.pages.page import Answer, Dots, Page, Pivot, Printed, Published, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "direct_conv_table9", "Sub-batch sizes", PAPER, "Table 9", dtypes_of("direct_conv", "sparsert_conv", "cudnn")
)
NETWORKS = tuple(
    Group(words=words, where=f"model == '{model}'")
    for words, model in (
        ("3×3 layers of VGG-16 at 90 to 93 % zeros", "vgg16"),
        ("1×1 layers of ResNet-50 at 90 % zeros", "resnet50_1x1"),
        ("1-D layers at 83 % zeros", "cnn_1d"),
    )
)
TUNED = kernel("direct_conv", variants="paper_sbs[248]$", words="the paper's mapping")
ONE_IMAGE = kernel("direct_conv", variants="paper_sbs1$", words="one image a block")
WHOLE_BATCH = kernel("direct_conv", variants="paper_whole$", words="the whole batch a block")
OURS = kernel("direct_conv", variants="staged", words="our mapping")
BLOCKS = {"D*bS": ONE_IMAGE, "D": WHOLE_BATCH}
"""By the number of thread blocks as the paper's table calls it."""


def _printed(view: View) -> pd.DataFrame:
    """The share of its speed that the paper's method keeps: the mean of a network, at each of its layers."""
    columns = ("layer", "thread_blocks", "performance_decrease_percent")
    found = published.read("direct_conv_table9_blocks", columns).rename(columns={"layer": "model"})
    found = found.assign(
        subject=[BLOCKS[one].label for one in found["thread_blocks"]],
        value=1 - found["performance_decrease_percent"] / 100,
    )
    return view.data.problems[["label", "model"]].merge(found, on="model")


def page() -> Page:
    """Its page."""
    sub_batches: tuple[Selector, ...] = tuple(
        kernel("direct_conv", variants=f"paper_sbs{images}$", words=f"sub-batch {images}") for images in (2, 4, 8)
    )
    extremes = (ONE_IMAGE, WHOLE_BATCH)
    return Page(
        question="What does the published convolution lose when its number of thread blocks is not tuned, and is it "
        "then faster than cuDNN?",
        intro="A thread block of the paper's method computes one output channel of a sub-batch of images. Table 9 of "
        "*Direct sparse convolution* (2021) sets the tuned sub-batch, of 2, 4 or 8 images, against its two extremes: "
        "D·bS blocks of one image each and D blocks of the whole batch, for D output channels and a batch of bS. "
        "Layers are those of its tables 6 to 8, with a batch of 128 in fp32 and the same number of nonzeros in every "
        "channel; padded images are given. What it prints is a loss of speed: one of 45 % stands at 0.55× the tuned "
        "sub-batch, as a mean over its network at each of the layers drawn.",
        answers=tuple(Answer(group, TUNED, CUDNN_TF32, (OURS,), WHOLE_BATCH) for group in NETWORKS),
        comparison=Comparison((TUNED, *extremes, OURS), (TUNED, CUDNN_TF32, CUDNN), NETWORKS),
        figures=(
            Dots("blocks", "Direct convolution without a tuned number of thread blocks", extremes, TUNED,
                 panels="subject", printed=Printed("the paper's mean of the network, V100", _printed)),
        ),
        tables=(
            RatioTable("Over the whole batch in one block", Comparison((TUNED, OURS), (WHOLE_BATCH,), NETWORKS)),
            Pivot("Layer by layer over the tuned sub-batch", (*sub_batches, *extremes), "ratio", TUNED),
            Pivot("µs of each layer", (*sub_batches, *extremes, OURS, CUDNN, CUDNN_TF32)),
            Published("Loss of speed that the paper prints, V100", "direct_conv_table9_blocks", {
                "layer": "layers", "thread_blocks": "thread blocks", "performance_decrease_percent": "loss (%)",
            }),
        ),
    )  # fmt: skip
