"""The paper's 4-bit weights in its direct convolution: indices into a codebook beside weights of 32 and 16 bits."""

from __future__ import annotations

import pandas as pd

from nnzbench import paths
from nnzbench.facts.groups import Group
from nnzbench.facts.selector import CUDNN, CUDNN_F16, CUDNN_TF32, kernel
from nnzbench.facts.table import Comparison
from nnzbench.papers.direct_conv import PAPER
from nnzbench.problems.experiment import AND_F16, Experiment
from nnzbench.report.pages.page import Answer, Dots, Made, Page, Pivot, RatioTable
from nnzbench.report.pages.view import View
from nnzbench.report.text.tables import GAP

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
QUANTISERS = {
    "linear_8": ("fixed point, 8 bits", 4, STORED_F16),
    "linear_4": ("fixed point, 4 bits", 4, CODEBOOK_F16),
    "kmeans_16": ("k-means, 16 values of 8 bits", 4, CODEBOOK_F16),
    "codebook": ("k-means, 15 values of 16 bits", 4, CODEBOOK_F16),
}
"""Of `datasets/codebook_loss.csv`: in words, bytes of a weight and its offset, padded, and whose time they take."""


def _quantisers(view: View) -> pd.DataFrame:
    """Errors of real pruned 3×3 layers under the paper's quantisers, beside the time of entries of that kind."""
    found = pd.read_csv(paths.datasets() / "codebook_loss.csv")
    found = found[found["array"].str.contains("conv3x3")]
    facts = view.compare(Comparison((CODEBOOK_F16, STORED_F16), (STORED,), (LAYERS,)))
    speeds = facts[facts["policy"] == "hot"].set_index("subject")["ratio"]
    rows = []
    for name, (words, size, entries) in QUANTISERS.items():
        errors = found.loc[found["quantiser"] == name, "outputs_error"]
        speed = f"{speeds[entries.label]:.2f}×" if entries.label in speeds else GAP
        rows.append([words, size, f"{errors.min():.1%} to {errors.max():.1%}", entries.label, speed])
    columns = ["weights", "bytes of an entry", "error of the outputs", "timed as", f"over {STORED.label}, hot"]
    return pd.DataFrame(rows, columns=columns)


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
            Made("The paper's quantisers on six real pruned 3×3 layers, before retraining", _quantisers,
                 "errors are in no record", collapsed=False),
            Pivot("µs of each layer", every, rows=("size", "level")),
        ),
        arithmetic="fp32 is IEEE fp32 with TF32 off; fp16 weights and images, sums in fp32",
    )  # fmt: skip
