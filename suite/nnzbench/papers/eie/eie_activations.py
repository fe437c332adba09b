"""Zeros among the inputs, which EIE skips: at the densities of its table, and how even its elements' work is."""

from __future__ import annotations

from nnzbench.facts.groups import Group
from nnzbench.facts.selector import CUSPARSE, FP16, kernel
from nnzbench.facts.table import Comparison
from nnzbench.papers.eie import PAPER
from nnzbench.problems.experiment import AND_F16, Experiment
from nnzbench.report.pages.page import Answer, Dots, Page, Pivot

EXPERIMENT = Experiment(
    "eie_activations",
    "Zeros among the inputs, skipped or read",
    PAPER,
    "Table III, figure 8",
    dict.fromkeys(("eie_columns", "eie", "cusparse", "cublas", "cublaslt"), AND_F16),
)
LAYER = r"(?P<layer>.+)_a(?P<inputs>[\d.]+)"
SPARSE = Group(words="layers after a ReLU, at their densities of inputs", where="model != 'nt' and inputs < 100")
FULL = Group(words="the same layers without a zero among the inputs", where="model != 'nt' and inputs == 100")
COLUMNS, COLUMNS_F16, READ, READ_F16 = (
    kernel(name, math) for name in ("eie_columns", "eie") for math in ("f32", "f16")
)


def page() -> Page:
    """Its page."""
    return Page(
        question="Does a GPU gain from skipping zeros among the inputs, as EIE does?",
        intro="EIE (ISCA 2016) stores W by columns and reads only those of nonzero inputs, which a queue hands to its "
        "elements; its table III has their share by layer.",
        attributes=LAYER,
        answers=(Answer(SPARSE, COLUMNS, FP16, (READ, CUSPARSE)),),
        comparison=Comparison((COLUMNS, COLUMNS_F16, READ, READ_F16), (FP16, READ, CUSPARSE), (SPARSE, FULL)),
        figures=(Dots("speedup", "Zeros skipped over zeros read", (COLUMNS,), READ, x="layer", panels="inputs"),),
        tables=(Pivot("µs", (COLUMNS, COLUMNS_F16, READ, READ_F16, CUSPARSE, FP16), rows=("layer", "inputs")),),
        baseline=READ,
    )
