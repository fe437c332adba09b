"""The map of where sparsity pays: by columns and zeros, the best sparse product over the best dense one.

README's figure, the page of `pays_map` and index.html draw the same cells: those of `cells`.
"""

from __future__ import annotations

import math

import pandas as pd

from nnzbench.results.nearby import INSTEAD
from nnzbench.results.selector import dense_of

ZEROS = (50, 60, 70, 80, 90, 95)
"""Levels up the map, percent."""
COLUMNS = tuple(2**power for power in range(11))
"""Of the dense operand, across the map."""
SIZES = {(8192, 8192): "large", (4096, 4096): "middle", (1024, 1024): "small"}
"""Rows and inner size of the panels, and what each stands for."""
HOME = "pays_map"
"""The experiment that records every cell; others fill those that it has not recorded."""
KEY = ["math", "policy", "rows", "inner", "columns", "level"]


def cells(layers: pd.DataFrame) -> pd.DataFrame:
    """Those rows of `nearby.layers`, of one GPU and any experiments, that are cells: of a `level` of `ZEROS`.

    A cell is a sparse matrix of uniformly random pattern times one of `COLUMNS`, over the best dense product in the
    same arithmetic; its `kernel` and `baseline_kernel` are the fastest of each side. One row for each `KEY`, of
    matrices of any size: a tuned one where there is one, then `HOME`'s. The index is that of `layers`.
    """
    dense = layers["math"].map({one: dense_of(one).label for one in INSTEAD})
    kept = (
        (layers["baseline"] == dense)
        & (layers["op"] != "sddmm")
        & (layers["kind"] == "uniform")
        & layers["columns"].isin(COLUMNS)
    )
    found = layers[kept & layers["level"].isin(ZEROS)]
    ranked = found.assign(untuned=~found["tuned"].astype(bool), away=found["experiment"] != HOME)
    first = ranked.sort_values(["untuned", "away"], kind="stable").drop_duplicates(KEY)
    return found.loc[first.index].sort_values(KEY)


def size_class(rows: int, inner: int) -> str:
    """Which of `SIZES` a matrix of any shape stands beside: the one whose number of weights is nearest by factor."""
    return min(SIZES.items(), key=lambda one: abs(math.log(rows * inner / math.prod(one[0]))))[1]
