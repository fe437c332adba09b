"""Zeros among the inputs, which EIE skips: at the densities of its table, and how even its elements' work is."""

from __future__ import annotations

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.selector import CUSPARSE, FP16, kernel
from nnzbench.facts.table import Comparison
from nnzbench.papers.eie import PAPER, queues
from nnzbench.problems.experiment import AND_F16, Experiment
from nnzbench.report.pages.page import Answer, Dots, Made, Page, Pivot, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "eie_activations",
    "Zeros among the inputs, skipped or read",
    PAPER,
    "Table III, figure 8",
    dict.fromkeys(("eie_columns", "eie", "cusparse", "cublas", "cublaslt"), AND_F16),
)
LAYER = r"(?P<layer>.+)_a(?P<inputs>[\d.]+)"
SKIPPED = Group(words="layers after a ReLU, at their share of nonzero inputs", where="model != 'nt' and inputs < 100")
FULL = Group(words="the same layers without a zero among the inputs", where="model != 'nt' and inputs == 100")
OTHERS = Group(words="layers of NeuralTalk, whose inputs are all used", where="model == 'nt'")
COLUMNS, COLUMNS_F16, READ, READ_F16 = (
    kernel(name, math, words=words)
    for name, words in (("eie_columns", "zeros skipped"), ("eie", "zeros read"))
    for math in ("f32", "f16")
)
SERIES = (COLUMNS, COLUMNS_F16, READ, READ_F16)


def _utilisation(view: View) -> pd.DataFrame:
    return queues.table(EXPERIMENT.name)


def page() -> Page:
    """Its page."""
    return Page(
        question="Does a GPU gain from skipping the zeros among a layer's inputs, as EIE does?",
        intro="EIE (ISCA 2016) stores a layer by columns, and a queue hands its processing elements one nonzero input "
        "after another, so that columns of inputs that are zero are not read. `eie_columns` does the same on a GPU: "
        "the paper's order and queue, entries of two bytes instead of one, and a mapping of this project's; `eie` "
        "reads all of the layer, a byte for a nonzero, whatever the inputs are. The layers are the nine of EIE's "
        "table III at batch 1 with 15 different values at uniformly random positions, and as many nonzero inputs as "
        "the table says, at random places: 18 to 41 % after a ReLU, all of them in NeuralTalk. What a queue before "
        "each of EIE's 64 elements is worth is simulated from the same patterns (`matrices/queues.py`): a clock for "
        "an entry, padding zeros included, rows interleaved as in the paper.",
        attributes=LAYER,
        answers=(
            Answer(SKIPPED, COLUMNS, FP16, (COLUMNS_F16, READ, CUSPARSE)),
            Answer(SKIPPED, COLUMNS, READ),
            Answer(FULL, COLUMNS, READ),
        ),
        comparison=Comparison(SERIES, (FP16, READ, READ_F16, CUSPARSE), (SKIPPED, FULL, OTHERS)),
        figures=(
            Dots("speedup", "Zeros among the inputs skipped over all read", (COLUMNS, CUSPARSE), READ, x="layer",
                 panels="model", group=Group(words="layers at their share", where="inputs < 100 or model == 'nt'")),
        ),
        tables=(
            Made("Share of clocks in which EIE's 64 elements work, by depth of their queues (simulated)", _utilisation,
                 "a simulation, not times of a GPU", collapsed=False),
            RatioTable("Over zeros read, in the same arithmetic",
                       Comparison((COLUMNS, COLUMNS_F16), (READ, READ_F16), (SKIPPED, FULL, OTHERS))),
            Pivot("µs of every layer", (*SERIES, CUSPARSE, FP16), rows=("layer", "inputs")),
        ),
        baseline=READ,
    )  # fmt: skip
