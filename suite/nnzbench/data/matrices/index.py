"""What the datasets folder knows of each real matrix: sizes, counts, evenness, checksums."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeVar

from nnzbench.core import paths

T = TypeVar("T")


@dataclass(frozen=True)
class DlmcEntry:
    """One matrix of the Deep Learning Matrix Collection, from `datasets/dlmc_index.csv.gz`."""

    path: str
    """`<model>/<method>/<target sparsity>/<layer>.smtx`"""
    model: str
    method: str
    target_sparsity: str
    """Folder name; the sparsity as counted is 1 - nnz/(rows*cols)."""
    layer_kind: str
    rows: int
    cols: int
    nnz: int
    row_mean: float
    row_cov: float | None
    row_max: int | None
    empty_rows: int | None
    col_cov: float | None
    n_single_image: int | None
    """Output positions of one image (ResNet-50 only)."""
    quality: float
    """Top-1 accuracy or BLEU as the collection's own table gives it."""
    available: bool
    bytes: int | None
    sha256: str
    git_blob_sha1: str

    @property
    def group(self) -> str:
        """`<model>/<method>/<target sparsity>`"""
        return f"{self.model}/{self.method}/{self.target_sparsity}"

    @property
    def taps(self) -> int:
        """Filter positions r*s of a convolution, 1 for matrices; columns are `tap*C_in + c_in`."""
        return {"conv3x3": 9, "conv7x7": 49}.get(self.layer_kind, 1)


@dataclass(frozen=True)
class WeightsEntry:
    """One array of `real_weights.npz`, from `datasets/weights_index.csv`."""

    name: str
    rows: int
    cols: int
    nnz: int
    row_cov: float
    col_cov: float
    empty_rows: int
    block_rows: int
    """Consecutive rows that share their columns (4 in the last block of MobileNet V1)."""
    dlmc: str
    """The same layer's DLMC path, or empty."""
    real: bool
    """False where no real values exist and only the synthetic pattern can be made."""


@dataclass(frozen=True)
class StandinParameters:
    """Mean statistics of one kind and shape of layer, from `datasets/synthetic_params.csv`."""

    group: str
    layer_kind: str
    rows: int
    cols: int
    row_cov: float
    col_cov: float
    row_max: float
    """Longest row over the mean."""
    kernels: float | None
    """Fraction of the 3x3 kernels with a nonzero."""
    row_sigma: float
    """Deviation of the logarithm of the rows' scales at which thresholded normal weights vary as much by rows."""
    column_sigma: float
    """The same by columns."""


_PARSERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": lambda text: text == "1",
    "int | None": lambda text: int(text) if text else None,
    "float | None": lambda text: float(text) if text else None,
}
"""By a field's type as it is written."""


def _read(kind: type[T], stream: Iterable[str], **columns: str) -> Iterator[T]:
    """One dataclass a line of a CSV file; `columns` are those whose name is not that of their field."""
    header = next(lines := csv.reader(stream))
    parsers = [(header.index(columns.get(one.name, one.name)), _PARSERS[str(one.type)]) for one in fields(kind)]  # type: ignore[arg-type]
    for row in filter(None, lines):
        yield kind(*(parse(row[at]) for at, parse in parsers))


@cache
def dlmc() -> dict[str, DlmcEntry]:
    """The 3,846 matrices by path."""
    with gzip.open(paths.datasets() / "dlmc_index.csv.gz", "rt", newline="") as stream:
        return {one.path: one for one in _read(DlmcEntry, stream)}


@cache
def weights() -> dict[str, WeightsEntry]:
    """The pruned weight arrays by name."""
    with (paths.datasets() / "weights_index.csv").open(newline="") as stream:
        return {one.name: one for one in _read(WeightsEntry, stream)}


@cache
def standin_parameters() -> tuple[StandinParameters, ...]:
    """Measured means per group, layer kind and shape."""
    columns = {
        "rows": "M", "cols": "K", "row_max": "max_row_over_mean",
        "kernels": "kernels3x3_real", "row_sigma": "thresh_sigma_row", "column_sigma": "thresh_sigma_col",
    }  # fmt: skip
    with (paths.datasets() / "synthetic_params.csv").open(newline="") as stream:
        return tuple(_read(StandinParameters, stream, **columns))


def nearest_parameters(layer_kind: str, rows: int, cols: int, sparsity: float) -> StandinParameters | None:
    """Parameters of the nearest measured layer of that kind: by shape, then by sparsity. None for unknown kinds."""

    def distance(entry: StandinParameters) -> tuple[float, float]:
        shape = abs(entry.rows - rows) / rows + abs(entry.cols - cols) / cols
        return shape, abs(float(entry.group.rsplit("/", 1)[1]) - sparsity)

    return min((p for p in standin_parameters() if p.layer_kind == layer_kind), key=distance, default=None)
