"""Sputnik's figure 1: from how many zeros on a sparse product of an LSTM's weights is faster than a dense one."""

from __future__ import annotations

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.results import each
from nnzbench.facts.selector import (
    CUBLAS,
    CUSPARSE,
    CUSPARSE_DEFAULT,
    DEFAULT,
    DENSE,
    FP16,
    PRODUCTS,
    TF32,
    UNTUNED,
    Selector,
    kernel,
    own,
)
from nnzbench.facts.table import Comparison
from nnzbench.papers.sputnik import AS_DATA, PAPER
from nnzbench.problems.experiment import AND_F16, Experiment, dtypes_of
from nnzbench.report.data import published
from nnzbench.report.pages.elements import crossings
from nnzbench.report.pages.page import Crossings, Lines, Made, Page, Pivot, Printed
from nnzbench.report.pages.view import View
from nnzbench.report.text.tables import GAP

EXPERIMENT = Experiment(
    "sputnik_figure1",
    "Sparsity from which sparse is faster than dense",
    PAPER,
    "Figure 1",
    dtypes_of(*AS_DATA, "untuned", "cusparse", cublas=AND_F16, cublaslt=AND_F16, tensor_spmm=("f16",)),
)
SPUTNIK = kernel("sputnik", variants=DEFAULT)
SPARSE = (
    SPUTNIK, kernel("sputnik"), own(), *map(kernel, ("row_stream", "ring")), UNTUNED, own("f16"),
    kernel("tensor_spmm", "f16"), CUSPARSE, CUSPARSE_DEFAULT,
)  # fmt: skip
BASELINES = (DENSE, CUBLAS, TF32, FP16)
LEVELS = tuple(Group(level=level) for level in (70, 80, 90, 95))


def _paper() -> pd.DataFrame:
    return published.read("sputnik_figure1_crossover", ("kernel", "gpu", "sparsity"))


def _crossing(view: View, subject: Selector, baseline: Selector) -> dict[str, str]:
    """In words, by policy."""
    return {
        str(row.policy): str(row.text)
        for row in each(crossings(view, Crossings("", subject, baseline, columns="size")))
    }


def _table(view: View) -> pd.DataFrame | None:
    """From how many zeros on each is as fast as each dense product; fp16 is set against dense fp16 alone."""
    printed = {row.kernel: f"{100 * row.sparsity:.3g} % ({row.gpu})" for row in each(_paper())}
    rows = []
    for one in view.recorded(SPARSE):
        found = {over.label: _crossing(view, one, over) for over in BASELINES if one.math == "f32" or over == FP16}
        cells = [
            " / ".join(found.get(over.label, {}).get(policy, GAP) for policy in view.policies) for over in BASELINES
        ]
        rows.append([one.label, *cells, printed.get(one.kernel, GAP)])
    heads = [f"over {over.label}, {' / '.join(view.policies)}" for over in BASELINES]
    return pd.DataFrame(rows, columns=["faster from", *heads, "the paper, over cuBLAS fp32"]) if rows else None


def _answer(view: View) -> str:
    """Where the paper's kernel and the best of ours cross the dense products."""
    said = []
    for one in view.recorded((SPUTNIK, own())):
        found = [
            f"{_crossing(view, one, over).get('hot', GAP)} over {over.label}" for over in (FP16, TF32, DENSE, CUBLAS)
        ]
        said.append(f"{one.label} **{found[0]}**, {', '.join(found[1:])}")
    if not said:
        return "Not recorded yet."
    return f"Zeros from which it is faster (hot): {'; '.join(said)}. The paper: {published.claim('sputnik-crossover')}."


def _printed(view: View) -> pd.DataFrame:
    """The paper's crossings, which has no times, at the height of the dense line here."""
    dense = view.cells((CUBLAS,)).query("policy == 'hot'")["median_us"].median()
    return pd.DataFrame({"level": 100 * _paper()["sparsity"], "value": dense})


def page() -> Page:
    """Its page."""
    shown = (SPUTNIK, own(), own("f16"), CUSPARSE, CUBLAS, TF32, FP16)
    return Page(
        question="From how many zeros on is an LSTM's sparse product faster than the dense one?",
        intro="One product of an LSTM's pruned weights (8192 × 2048 × 128, M × K × N) at rising sparsity, uniformly "
        "random positions: figure 1 of *Sparse GPU Kernels for Deep Learning* (SC 2020). Where two kernels cross is "
        "interpolated between the levels measured. The paper's cuSPARSE is that of CUDA 10.1.",
        made=_answer,
        comparison=Comparison((SPUTNIK, kernel("sputnik"), own(), own("f16"), UNTUNED), PRODUCTS, LEVELS),
        figures=(
            Lines("runtime", "Sparse and dense products by zeros", shown, "time",
                  printed=Printed("where sputnik and cuSPARSE cross cuBLAS in the paper, V100", _printed)),
        ),
        tables=(
            Made("Zeros from which it is the faster one", _table, "crossings of many kernels with several baselines",
                 collapsed=False),
            Pivot("Every level, µs", (*SPARSE, *BASELINES), rows=("level",)),
        ),
        baseline=CUBLAS,
    )  # fmt: skip
