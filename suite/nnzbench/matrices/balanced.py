"""Balanced Sparsity's format: every column range of every row holds the same number of nonzeros (section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import CSR, MatrixError


@dataclass(frozen=True)
class BalancedMatrix:
    """An m x k matrix cut into `ranges` column ranges of `width` columns, each row of each range with `keep` entries.

    Entries need neither row pointers nor full column indices: `values` and `positions` have shape (m, ranges, keep),
    positions count from the start of the range, ascending, in one byte where `width` <= 256 and in two above.
    Where k is no multiple of the width the last range is short; where it is shorter than `keep`, its surplus entries
    have value 0 and repeat its last position.
    """

    m: int
    k: int
    width: int
    values: NDArray[Any]
    positions: NDArray[Any]

    @property
    def ranges(self) -> int:
        """Column ranges of a row."""
        return int(self.values.shape[1])

    @property
    def keep(self) -> int:
        """Entries stored for each range of each row."""
        return int(self.values.shape[2])

    @property
    def last_keep(self) -> int:
        """Entries of the last range that are no surplus."""
        return min(self.keep, self.k - (self.ranges - 1) * self.width)

    @property
    def nnz(self) -> int:
        """Nonzeros, surplus entries not counted."""
        return self.m * ((self.ranges - 1) * self.keep + self.last_keep)

    @property
    def stored_bytes(self) -> int:
        """Size of values and positions together."""
        return self.values.nbytes + self.positions.nbytes

    @staticmethod
    def from_csr(matrix: CSR, ranges: int) -> BalancedMatrix:
        """Takes a balanced matrix apart into ranges of ceil(k / ranges) columns; fewer ranges may cover them all.

        Raises `MatrixError` naming the first row and range with another count than the rest, and where `ranges` does
        not fit or a range is wider than 65536 columns.
        """
        if not 1 <= ranges <= matrix.k:
            raise MatrixError(f"{ranges} balance ranges do not fit rows of {matrix.k} columns.")
        if matrix.nnz == 0:
            raise MatrixError(f"a {matrix.m} x {matrix.k} matrix without nonzeros has no balance ranges.")
        width = -(-matrix.k // ranges)
        if width > 1 << 16:
            raise MatrixError(f"balance ranges of {width} columns are wider than two bytes can address.")
        ranges = -(-matrix.k // width)
        keep = _count(matrix, 0, width) if ranges > 1 else int(matrix.row_lengths[0])
        last = min(keep, matrix.k - (ranges - 1) * width)
        per_row = (ranges - 1) * keep + last
        if keep == 0 or matrix.nnz != matrix.m * per_row or (matrix.row_lengths != per_row).any():
            raise _not_balanced(matrix, width, ranges)
        columns = _as_ranges(matrix.indices.reshape(matrix.m, per_row), ranges, keep, last)
        starts = np.arange(0, ranges * width, width, dtype=np.int32)[:, None]
        # ascending columns: a range's first and last entry tell that all of it lies inside
        if (columns[:, :, 0] < starts[:, 0]).any() or (columns[:, :, -1] >= starts[:, 0] + width).any():
            raise _not_balanced(matrix, width, ranges)
        values = _as_ranges(matrix.values.reshape(matrix.m, per_row), ranges, keep, last, surplus=0)
        dtype = np.uint8 if width <= 256 else np.uint16
        return BalancedMatrix(matrix.m, matrix.k, width, values, (columns - starts).astype(dtype))

    def to_csr(self) -> CSR:
        """The same matrix in CSR, surplus entries left out."""
        per_row = (self.ranges - 1) * self.keep + self.last_keep
        starts = np.arange(0, self.ranges * self.width, self.width, dtype=np.int32)[:, None]
        columns = (self.positions + starts).astype(np.int32).reshape(self.m, -1)[:, :per_row]
        values = self.values.reshape(self.m, -1)[:, :per_row]
        offsets = np.arange(0, self.m * per_row + 1, per_row, dtype=np.int32)
        return CSR(self.m, self.k, offsets, columns.ravel(), values.ravel())


def _as_ranges(rows: NDArray[Any], ranges: int, keep: int, last: int, surplus: int | None = None) -> NDArray[Any]:
    """(m, entries) as (m, ranges, keep); the last range's surplus is its last entry again, or `surplus`."""
    m = rows.shape[0]
    if last < keep:
        fill = np.full((m, keep - last), surplus, rows.dtype) if surplus is not None else rows[:, -1:]
        rows = np.concatenate([rows, np.broadcast_to(fill, (m, keep - last))], axis=1)
    return rows.reshape(m, ranges, keep)


def _count(matrix: CSR, row: int, width: int) -> int:
    """Nonzeros of a row in its first range."""
    columns = matrix.indices[matrix.offsets[row] : matrix.offsets[row + 1]]
    return int((columns < width).sum())


def _not_balanced(matrix: CSR, width: int, ranges: int) -> MatrixError:
    rows = np.repeat(np.arange(matrix.m, dtype=np.int64), matrix.row_lengths)
    cells = np.bincount(rows * ranges + matrix.indices // width, minlength=matrix.m * ranges)
    counts = cells.reshape(matrix.m, ranges)
    keep = np.full(ranges, max(1, int(counts[0, 0])))
    keep[-1] = min(keep[0], matrix.k - (ranges - 1) * width)
    row, place = (int(i) for i in np.argwhere(counts != keep)[0])
    return MatrixError(
        f"not balanced: row {row} has {counts[row, place]} nonzeros in range {place} "
        f"(columns {place * width} to {min((place + 1) * width, matrix.k) - 1}), expected {keep[place]}."
    )
