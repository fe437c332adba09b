"""What the records say of layers: products by themselves, each over the dense ones that could run instead.

index.html tells the nearest of them (`report/static/asked.js`), and the map of where sparsity pays has its cells.
"""

from __future__ import annotations

import math

import pandas as pd

from nnzbench.data.problems.experiment import CHECKS
from nnzbench.kernels.registry import known
from nnzbench.results.data import Data
from nnzbench.results.records.describe import pattern_of
from nnzbench.results.selector import MATHS, Selector, dense_of
from nnzbench.results.table import pairs

PRODUCTS = "op in ['spmm', 'spmv', 'sddmm'] and shape == ''"
"""Condition on problems: a product by itself, and no step of a network."""
INSTEAD = {"f32": ("f32", "tf32", "f16"), "tf32": ("tf32", "f16"), "f16": ("f16",), "bf16": ("bf16",)}
"""By arithmetic asked for, that of dense products which could run instead: its own, or with fewer digits."""
KIND = ["op", "math", "pattern", "policy", "baseline"]
COLUMNS = [
    *KIND, "rows", "inner", "columns", "zeros", "ratio", "tuned", "kernel", "us", "baseline_kernel", "baseline_us",
    "experiment", "problem",
]  # fmt: skip
"""Of `layers`, which have the `kind` of source and the `level` asked for, too. `inner` are the sparse matrix's columns,
`columns` the dense operand's; `zeros` counted, in percent."""


def sparse(math_class: str, without: str = "") -> Selector:
    """The fastest of all kernels that leave zeros out, libraries' too."""
    found = tuple(name for name, one in known().items() if one.work == "sparse" and not one.study and name != without)
    also = "f32" if math_class == "tf32" else ""
    label = f"best sparse {MATHS[math_class]}{f' but {without}' if without else ''}"
    return Selector(label, found, math_class, also=also)


def cusparse(math_class: str) -> Selector:
    """Its best algorithm in an arithmetic."""
    return Selector(f"best cuSPARSE {MATHS[math_class]}", ("cusparse",), math_class)


def layers(data: Data) -> pd.DataFrame:
    """Every recorded product over each baseline, with `COLUMNS`; none of networks' steps and of `CHECKS`."""
    names = ["problem", "op", "m", "k", "n", "sparsity", "source", "kind", "asked"]
    products = data.problems.query(PRODUCTS)[names]
    if products.empty or data.results.experiment == CHECKS:
        return pd.DataFrame(columns=[*COLUMNS, "kind", "level"])
    parts = []
    for math_class, denses in INSTEAD.items():
        parts.append(pairs(data, [sparse(math_class)], list(map(dense_of, denses))).assign(math=math_class))
        parts.append(pairs(data, [sparse(math_class, "cusparse")], [cusparse(math_class)]).assign(math=math_class))
    found = products.merge(pd.concat(parts), on="problem")  # in the order of the experiment's table
    sampled = found["op"] == "sddmm"  # its pattern is m x n
    found = found.rename(
        columns={"asked": "level", "median_us": "us", "over_us": "baseline_us", "over_kernel": "baseline_kernel"}
    ).assign(
        experiment=data.results.experiment,
        pattern=found["source"].map(pattern_of),
        rows=found["m"],
        inner=found["k"].where(~sampled, found["n"]),
        columns=found["n"].where(~sampled, found["k"]),
        zeros=(100 * found["sparsity"]).round(3),
    )
    tuned_first = found[[*COLUMNS, "kind", "level"]].sort_values("tuned", ascending=False, kind="stable")
    once = tuned_first.drop_duplicates([*KIND, "rows", "inner", "columns", "zeros"])
    return once.sort_index(ignore_index=True)


# The map of where sparsity pays: README's figure, the page of `pays_map` and index.html draw the same cells.
ZEROS = (50, 60, 70, 80, 90, 95)
"""Levels up the map, percent."""
WIDTHS = tuple(2**power for power in range(11))
"""Of the dense operand, across the map."""
SIZES = {(8192, 8192): "large", (4096, 4096): "middle", (1024, 1024): "small"}
"""Rows and inner size of the panels, and what each stands for."""
HOME = "pays_map"
"""The experiment that records every cell; others fill those that it has not recorded."""
CELL = ["math", "policy", "rows", "inner", "columns", "level"]


def cells(layers: pd.DataFrame) -> pd.DataFrame:
    """Those rows of `layers`, of one GPU and any experiments, that are cells: of a `level` of `ZEROS`.

    A cell is a sparse matrix of uniformly random pattern times one of `WIDTHS`, over the best dense product in the
    same arithmetic; its `kernel` and `baseline_kernel` are the fastest of each side. One row for each `CELL`, of
    matrices of any size: a tuned one where there is one, then `HOME`'s. The index is that of `layers`.
    """
    dense = layers["math"].map({one: dense_of(one).label for one in INSTEAD})
    kept = (
        (layers["baseline"] == dense)
        & (layers["op"] != "sddmm")
        & (layers["kind"] == "uniform")
        & layers["columns"].isin(WIDTHS)
    )
    found = layers[kept & layers["level"].isin(ZEROS)]
    ranked = found.assign(untuned=~found["tuned"].astype(bool), away=found["experiment"] != HOME)
    first = ranked.sort_values(["untuned", "away"], kind="stable").drop_duplicates(CELL)
    return found.loc[first.index].sort_values(CELL)


def size_class(rows: int, inner: int) -> str:
    """Which of `SIZES` a matrix of any shape stands beside: the one whose number of weights is nearest by factor."""
    return min(SIZES.items(), key=lambda one: abs(math.log(rows * inner / math.prod(one[0]))))[1]
