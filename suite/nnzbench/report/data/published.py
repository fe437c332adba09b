"""The papers' printed numbers, matched to problems by their sizes and sparsity level."""

from __future__ import annotations

import pandas as pd

from nnzbench import paths
from nnzbench.problems.problem import ConvShape
from nnzbench.records.record import RecordError

LEVEL_TOLERANCE = 0.03
"""A pattern counted this near a paper's level answers to it: pruned layers of "90 %" have 89 to 92 % zeros."""


def read(name: str, columns: tuple[str, ...]) -> pd.DataFrame:
    """Reads `datasets/published/<name>.csv`. Raises `RecordError` where the file or a column is missing."""
    path = paths.datasets() / "published" / f"{name}.csv"
    if not path.is_file():
        raise RecordError(f"{path}: the published numbers are missing")
    frame = pd.read_csv(path)
    for column in columns:
        if column not in frame.columns:
            raise RecordError(f"{path}: column '{column}' is missing")
    return frame


def sparsert_table1() -> pd.DataFrame:
    """SparseRT's Table 1: label (1-20), model, m, k, n, level and the speed-up over cuBLAS on a T4."""
    frame = read("sparsert_table1_spmm", ("problem", "model", "m", "k", "n", "sparsity", "speedup"))
    names = {"problem": "label", "sparsity": "level", "speedup": "paper_speedup"}
    return frame.rename(columns=names)[["label", "model", "m", "k", "n", "level", "paper_speedup"]]


def sparsert_table3() -> pd.DataFrame:
    """SparseRT's Table 3: shape (as in the records), level and the speed-up over cuDNN on a T4."""
    sizes = ("batch", "in_channels", "image", "out_channels", "filter", "padding")
    frame = read("sparsert_table3_conv", (*sizes, "sparsity", "speedup"))
    shapes = [
        str(ConvShape(batch, channels, image, image, filters, r, r, padding, padding))
        for batch, channels, image, filters, r, padding in frame[list(sizes)].itertuples(index=False)
    ]
    renamed = frame.rename(columns={"sparsity": "level", "speedup": "paper_speedup"}).assign(shape=shapes)
    return renamed[["shape", "level", "paper_speedup"]]


def match(problems: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """`table` with the recorded problem of each row: the one of equal sizes whose sparsity is nearest the level.

    `problem` is NaN where none was recorded. Raises `RecordError` where two recorded problems claim one row.
    """
    levels = sorted(set(table["level"]))
    rows = problems.copy()
    rows["level"] = [min(levels, key=lambda level: abs(level - s)) for s in rows["sparsity"]]
    rows = rows[(rows["level"] - rows["sparsity"]).abs() <= LEVEL_TOLERANCE]
    twice = rows[rows.duplicated(["m", "k", "n", "level"], keep=False)]
    if not twice.empty:
        raise RecordError(f"problems '{twice['problem'].iloc[0]}' and '{twice['problem'].iloc[1]}' are the same row")
    return table.merge(rows, on=["m", "k", "n", "level"], how="left", validate="one_to_one")
