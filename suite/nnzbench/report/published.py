"""The papers' printed numbers."""

from __future__ import annotations

import pandas as pd

from nnzbench.core import paths
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


def claim(name: str) -> str:
    """The number of a claim of `claims.csv` as printed: `3.4× on a T4`. Raises `ValueError`."""
    found = read("claims", ("id", "published", "published_gpu", "unit"))
    (row,) = each(found[found["id"] == name])
    value = {"x": f"{row.published:g}×", "sparsity": f"{100 * row.published:g} % zeros"}.get(row.unit)
    gpu = "a GPU that it does not name" if row.published_gpu == "not named" else row.published_gpu
    return f"{value or f'{row.published:g} {row.unit}'} on {gpu}"
