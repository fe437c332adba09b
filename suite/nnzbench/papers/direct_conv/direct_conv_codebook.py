"""The paper's 4-bit weights in its direct convolution: indices into a codebook beside weights of 32 and 16 bits."""

from __future__ import annotations

from nnzbench.facts.groups import Group
from nnzbench.facts.selector import CUDNN, CUDNN_F16, CUDNN_TF32, kernel
from nnzbench.facts.table import Comparison
from nnzbench.papers.direct_conv import PAPER
from nnzbench.problems.experiment import AND_F16, Experiment
from nnzbench.report.pages.page import Answer, Dots, Page, Pivot, RatioTable

EXPERIMENT = Experiment(
    "direct_conv_codebook",
    "4-bit weights from a codebook",
    PAPER,
    "Section 4; no published times",
    dict.fromkeys(("direct_conv", "cudnn"), AND_F16),
)
LEVELS = (Group(words="3×3 layers of VGG-16", level=92), Group(words="a 3×3 layer of VGG-16", level=90.8))
LAYERS = Group(words="all four layers, 90.8 and 92 % zeros")
STORED, STORED_F16 = (kernel("direct_conv", math, "paper_sbs[248]$", "the paper's mapping") for math in ("f32", "f16"))
CODEBOOK, CODEBOOK_F16 = (kernel("direct_conv", math, "codebook_sbs", "4-bit weights") for math in ("f32", "f16"))


def page() -> Page:
    """Its page."""
    dense = (CUDNN_F16, CUDNN_TF32, CUDNN)
    every = (STORED, CODEBOOK, STORED_F16, CODEBOOK_F16, *dense[::-1])
    return Page(
        question="Do 4-bit weights from a codebook make the published convolution faster than with the weights "
        "themselves, and than cuDNN?",
        intro="The paper quantises weights to 4 bits by k-means (section 4) and times none of its convolutions with "
        "them. Four layers of its table 6, batch 128, have weights of 15 shared values: with every weight stored, as "
        "published, and with a 4-bit index beside each offset, looked up as entries are staged in shared memory. A "
        "stored weight and its offset take 8 bytes in fp32 and 4 in fp16, an index and its offset 4 in either. Every "
        "block stages its channel's entries once for all of its outputs.",
        answers=(
            Answer(LEVELS[0], CODEBOOK_F16, CUDNN_F16, (CODEBOOK,), STORED_F16),
            Answer(LEVELS[0], CODEBOOK, CUDNN_TF32, (), STORED),
        ),
        comparison=Comparison((CODEBOOK_F16, CODEBOOK), (STORED_F16, STORED, *dense), LEVELS),
        figures=(
            Dots("speedup", "Direct convolution with 4-bit weights, and cuDNN", every[1:], STORED, "size",
                 panels=""),
        ),
        tables=(
            RatioTable("All four layers", Comparison((CODEBOOK_F16, CODEBOOK, STORED_F16, STORED),
                                                     (STORED_F16, STORED, *dense), (LAYERS,))),
            Pivot("µs of each layer", every, rows=("size", "level")),
        ),
        arithmetic="fp32 is IEEE fp32 with TF32 off; fp16 weights and images, sums in fp32",
    )  # fmt: skip
