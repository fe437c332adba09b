"""Balanced Sparsity's figure 4: time of one large product against its zeros, beside the ideal line."""

from __future__ import annotations

import pandas as pd

from nnzbench.facts.groups import Group
from nnzbench.facts.results import each
from nnzbench.facts.selector import CUBLAS, DENSE, FP16, TF32, own
from nnzbench.facts.table import Comparison, ideal_us
from nnzbench.papers.balanced import BLOCKS, KERNELS, ONLY, PAPER, RANDOM, RANDOM_SPUTNIK, mapping
from nnzbench.problems.experiment import Experiment
from nnzbench.report.data import published
from nnzbench.report.pages.page import Answer, Crossings, Lines, Made, Page, Pivot, Printed, Published, RatioTable
from nnzbench.report.pages.view import View

EXPERIMENT = Experiment(
    "balanced_figure4", "A large matrix at eleven sparsities", PAPER, "Figure 4", KERNELS, only=ONLY
)
BATCHES = (1, 8)
OVERHEAD_US = 10.0
"""The launch overhead that the paper's formula takes."""
BALANCED = tuple(Group(words="balanced zeros", where="pattern == 'balanced'", columns=n) for n in BATCHES)
PATTERNS = tuple(Group(words="a pattern each", cases=r"[a-z]+_(b\d_keep\d+)", columns=n) for n in BATCHES)


def _ideal(view: View) -> pd.DataFrame | None:
    """Times of the balanced products beside what equation 9 allows them; the dense time is its median."""
    balanced, rows = own(), []
    cells = view.cells((balanced, CUBLAS), Group(where="pattern == 'balanced'"))
    for (n, policy), some in cells.groupby(["n", "policy"], sort=False):
        times = some[some["subject"] == balanced.label]
        dense = float(some.loc[some["subject"] == CUBLAS.label, "median_us"].median())
        floor = float(view.frame.loc[view.frame["policy"] == policy, "floor_us"].median())
        rows += [
            {
                "columns": str(n), "policy": policy, "zeros (%)": row.level, "balanced": row.median_us,
                "ideal with an empty kernel's time": ideal_us(dense, row.level / 100, floor),
                "ideal with 10 µs": ideal_us(dense, row.level / 100, OVERHEAD_US),
            }
            for row in each(times)
        ]  # fmt: skip
    return pd.DataFrame(rows) if rows else None


def _printed(view: View) -> pd.DataFrame:
    """The paper's dense over its balanced time, read off its plot; its GPU is not named."""
    columns = tuple(f"balanced_b{n}_us" for n in BATCHES)
    times = published.read("balanced_figure4_digitised", ("sparsity", *columns))
    dense = published.read("balanced_figure4_dense", ("batch", "dense_us")).set_index("batch")["dense_us"]
    parts = [
        pd.DataFrame({"level": 100 * times["sparsity"], "n": n, "value": dense[n] / times[f"balanced_b{n}_us"]})
        for n in BATCHES
    ]
    return pd.concat(parts, ignore_index=True)


def page() -> Page:
    """Its page."""
    paper, best = mapping(), own()
    random = Group(words="random zeros", where="pattern == 'random'")
    return Page(
        question="Is a large matrix with balanced zeros faster than the dense one, from half zeros to a thirtieth "
        "left?",
        intro="A 16384×8192 matrix times one and eight columns at the eleven sparsities of figure 4 of *Balanced "
        "Sparsity for Efficient DNN Inference on GPU* (AAAI 2019); the paper prints 8196 columns, which its 32 ranges "
        "per row do not divide. Each kernel multiplies by the pattern it is made for: balanced rows, random positions, "
        "or 8×8 blocks. The ideal time is the paper's equation 9, (d − o)(1 − s) + o, with d the median time of cuBLAS "
        "fp32 and o either the paper's 10 µs or the time of an empty kernel in the same run. The paper's times are "
        "read off its plot (±10 µs at batch 1, ±30 µs at batch 8); it does not name its GPU.",
        attributes=r"(?P<pattern>balanced|random|block)_b\d_keep(?P<kept>\d+)",
        answers=tuple(Answer(group, paper, TF32, (best,), CUBLAS, "balanced-always") for group in BALANCED),
        comparison=Comparison((paper, best), (TF32, FP16, DENSE, CUBLAS), BALANCED),
        figures=(
            Lines("figure4", "A 16384×8192 matrix: times as fast as cuBLAS fp32",
                  (best, paper, RANDOM, RANDOM_SPUTNIK, BLOCKS, TF32), baseline=CUBLAS, panels="n",
                  printed=Printed("the paper's balanced kernel", _printed)),
        ),
        tables=(
            RatioTable("Over other patterns with as many zeros",
                       Comparison((paper, best), (RANDOM, RANDOM_SPUTNIK, BLOCKS), PATTERNS), collapsed=False),
            Pivot("Over cuBLAS fp32 at each level", (paper, best, RANDOM, RANDOM_SPUTNIK, BLOCKS), "ratio", CUBLAS,
                  ("n", "subject"), "level"),
            Crossings("Zeros from which on cuSPARSE with random zeros is as fast as cuBLAS fp32", RANDOM, CUBLAS,
                      ("pattern",), group=random, collapsed=True),
            Made("The ideal of equation 9, µs", _ideal, "the formula's times are in no record"),
            Pivot("µs at each level", (CUBLAS, TF32, RANDOM, RANDOM_SPUTNIK, BLOCKS, paper, best),
                  rows=("n", "subject"), columns="level"),
            Pivot("Percent of the roofline", (paper, best), "roofline", rows=("n", "subject"), columns="level",
                  group=Group(where="pattern == 'balanced'")),
            Published("The paper's times, µs, read off its plot", "balanced_figure4_digitised"),
        ),
        baseline=CUBLAS,
    )  # fmt: skip
