"""The papers' printed numbers."""

from __future__ import annotations

import pandas as pd

from nnzbench.core import paths
from nnzbench.data.problems.problem import ConvShape
from nnzbench.results.records.record import RecordError
from nnzbench.results.result_set import each


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


def claim(name: str) -> str:
    """The number of a claim of `claims.csv` as printed: `3.4× on a T4`. Raises `ValueError`."""
    found = read("claims", ("id", "published", "published_gpu", "unit"))
    (row,) = each(found[found["id"] == name])
    value = {"x": f"{row.published:g}×", "sparsity": f"{100 * row.published:g} % zeros"}.get(row.unit)
    gpu = "a GPU that it does not name" if row.published_gpu == "not named" else row.published_gpu
    return f"{value or f'{row.published:g} {row.unit}'} on {gpu}"
