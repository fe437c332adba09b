"""Balanced Sparsity's tables 1 to 3: the layers of PTB's LSTM, VGG-16 and TIMIT's LSTM."""

from __future__ import annotations

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.results import each
from nnzbench.facts.selector import CUBLAS, DENSE, FP16, TF32, own
from nnzbench.facts.table import Comparison
from nnzbench.papers.balanced import BLOCKS, KERNELS, ONLY, PAPER, RANDOM, RANDOM_SPUTNIK, mapping
from nnzbench.problems.experiment import Experiment
from nnzbench.report.data import published
from nnzbench.report.pages.page import Answer, Dots, Page, Pivot, Printed, Published, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "balanced_models", "Layers of VGG-16, PTB LSTM and CTC models", PAPER, "Tables 1 to 3", KERNELS, only=ONLY
)
PTB, TIMIT, LAYERS = (
    Group(words=words, like=like)
    for words, like in (
        ("PTB's LSTM with balanced zeros", "ptb_balanced"),
        ("TIMIT's LSTM with balanced zeros", "timit_balanced"),
        ("VGG-16 with balanced zeros, each layer once", "vgg16_*_balanced"),
    )
)
VGG = Group(words="all layers of VGG-16 with balanced zeros", like="vgg16_*_balanced", statistic="total")
PATTERNS = (
    Group(words="PTB's LSTM, a pattern each", cases=r"(ptb)_[a-z]+"),
    Group(words="TIMIT's LSTM, a pattern each", cases=r"(timit)_[a-z]+"),
    Group(words="VGG-16, a pattern each", cases=r"(vgg16_\w+?)_(?:balanced|random|block)", statistic="total"),
)


def _printed(view: View) -> pd.DataFrame:
    """The paper's dense over its balanced time by layer, on a GPU that it does not name."""
    found = {}
    for layer, name in (("ptb", "balanced_table1_ptb_lstm"), ("timit", "balanced_table3_timit")):
        times = published.read(name, ("pattern", "inference_us")).set_index("pattern")["inference_us"]
        found[layer] = times["dense"] / times["balanced"]
    for row in each(published.read("balanced_table2_vgg16", ("layer", "dense_us", "balanced_us"))):
        found[f"vgg16_{row.layer}"] = row.dense_us / row.balanced_us
    return pd.DataFrame({"layer": list(found), "value": list(found.values())})


def page() -> Page:
    """Its page."""
    paper, best = mapping(), own()
    sides = (paper, best, RANDOM, RANDOM_SPUTNIK, BLOCKS)
    return Page(
        question="Are layers of VGG-16, of a language model and of a speech model faster with balanced zeros than "
        "dense?",
        intro="The products of *Balanced Sparsity for Efficient DNN Inference on GPU* (AAAI 2019) at batch 1. The "
        "paper does not say which products of its LSTMs it timed: the gate matrices here are a choice, so those two "
        "published times are no yardstick. Its GPU is not named. Each pattern has the sparsity that the paper reached "
        "without losing accuracy.",
        attributes=r"(?P<layer>.+)_(?P<pattern>balanced|random|block)",
        answers=(
            Answer(PTB, paper, TF32, (best,), CUBLAS, "balanced-ptb-dense"),
            Answer(VGG, paper, TF32, (best,), CUBLAS, "balanced-vgg-dense"),
        ),
        comparison=Comparison((paper, best), (TF32, FP16, DENSE, CUBLAS), (PTB, TIMIT, VGG, LAYERS)),
        figures=(
            Dots("speedup", "Layers of Balanced Sparsity's models: times as fast as cuBLAS fp32", (*sides, TF32),
                 CUBLAS, x="layer", panels="", printed=Printed("the paper's balanced kernel", _printed)),
        ),
        tables=(
            RatioTable("Over other patterns of equal accuracy",
                       Comparison((paper, best), (RANDOM, RANDOM_SPUTNIK, BLOCKS), PATTERNS), collapsed=False),
            Pivot("Over cuBLAS fp32, layer by layer", sides, "ratio", CUBLAS, rows=("layer", "pattern", "level")),
            Pivot("µs of one product of each layer", (CUBLAS, TF32, *sides), rows=("layer", "pattern", "level")),
            Published("The paper's PTB LSTM, µs", "balanced_table1_ptb_lstm"),
            Published("The paper's VGG-16, µs", "balanced_table2_vgg16"),
            Published("The paper's TIMIT LSTM, µs", "balanced_table3_timit"),
        ),
        baseline=CUBLAS,
    )  # fmt: skip
