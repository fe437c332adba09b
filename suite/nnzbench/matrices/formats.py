"""Compressed sparse rows, the format every kernel starts from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts are loaded when they are first used
from numpy.typing import NDArray

from nnzbench.host import free_memory


class MatrixError(ValueError):
    """A matrix or file is not what it claims; the message names the file and the field in one sentence."""


def require_memory(where: str, needed: int) -> None:
    """Raises `MatrixError` where so many bytes are not free: what a file or a size declares is asked for only then."""
    free = free_memory()
    if free is not None and needed > free:
        raise MatrixError(f"{where}: needs {needed:,} bytes of memory, and {free:,} are free.")


@dataclass(frozen=True)
class CSR:
    """An m x k matrix in CSR: `offsets` (m+1, int32), `indices` (nnz, int32, ascending per row), `values` (nnz)."""

    m: int
    k: int
    offsets: NDArray[np.int32]
    indices: NDArray[np.int32]
    values: NDArray[Any]

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self.indices.size)

    @property
    def sparsity(self) -> float:
        """1 - nnz/(m*k) as counted."""
        return 1.0 - self.nnz / (self.m * self.k) if self.m * self.k else 0.0

    @property
    def row_lengths(self) -> NDArray[np.int64]:
        """Nonzeros of each row, shape (m,)."""
        return np.diff(self.offsets).astype(np.int64)

    @property
    def row_cov(self) -> float:
        """Population standard deviation of the row lengths over their mean; 0 for an empty matrix."""
        lengths = self.row_lengths
        return float(lengths.std() / lengths.mean()) if self.nnz else 0.0

    def pattern_hash(self) -> str:
        """First 16 hex digits of the SHA-256 of shape, offsets and indices: the identity of the pattern."""
        digest = hashlib.sha256(f"{self.m},{self.k},{self.nnz};".encode())
        digest.update(np.ascontiguousarray(self.offsets, dtype="<i4").data)
        digest.update(np.ascontiguousarray(self.indices, dtype="<i4").data)
        return digest.hexdigest()[:16]

    def with_values(self, values: NDArray[Any]) -> CSR:
        """The same pattern with other values, shape (nnz,)."""
        if values.shape != self.indices.shape:
            raise MatrixError(f"values: expected {self.nnz} of them, got shape {values.shape}")
        return CSR(self.m, self.k, self.offsets, self.indices, values)

    def to_dense(self) -> NDArray[Any]:
        """The m x k array."""
        values = np.ascontiguousarray(self.values)
        if self.nnz == self.m * self.k:
            return values.reshape(self.m, self.k).copy()
        bits = values.view(f"u{values.itemsize}")  # SciPy knows no half precision, and loses -0.0 where it adds it to 0
        packed = scipy.sparse.csr_array((bits, self.indices, self.offsets), shape=(self.m, self.k))
        dense: NDArray[Any] = packed.toarray().view(values.dtype)
        return dense

    def to_scipy(self, dtype: Any = np.float64) -> scipy.sparse.csr_array[Any, tuple[int, int]]:
        """The matrix as a SciPy CSR array of `dtype`."""
        return scipy.sparse.csr_array((self.values.astype(dtype), self.indices, self.offsets), shape=(self.m, self.k))

    @staticmethod
    def from_dense(dense: NDArray[Any]) -> CSR:
        """Compresses a 2-D array; -0.0 counts as zero."""
        mask = dense != 0
        offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int32)
        rows, columns = np.nonzero(mask)
        m, k = dense.shape
        return CSR(m, k, offsets, columns.astype(np.int32), dense[rows, columns])
