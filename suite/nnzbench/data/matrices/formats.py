"""Compressed sparse rows, the format every kernel starts from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy  # its parts are loaded when they are first used
from numpy.typing import NDArray

from nnzbench.core.host import free_memory
from nnzbench.core.plan import printable


class MatrixError(ValueError):
    """A matrix or file is not what it claims; the message names the file and the field in one printable sentence."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


NEVER_REFUSED = 1 << 26
"""Bytes that are taken whatever the system says is free: a virtual machine may say 0 until it is given more."""


def require_memory(where: str, needed: int) -> None:
    """Raises `MatrixError` where so many bytes are not free: what a file or a size declares is asked for only then."""
    if needed > NEVER_REFUSED and (free := free_memory()) is not None and needed > free:
        raise MatrixError(f"{where}: needs {needed:,} bytes of memory, and {free:,} are free.")


def prefix_sums(counts: NDArray[Any]) -> NDArray[np.int64]:
    """Where runs of so many elements begin, one after another, and where the last one ends: (runs + 1,)."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def ranks(counts: NDArray[Any]) -> NDArray[np.int64]:
    """The place of each element in its run, from 0 to count - 1, run after run."""
    places: NDArray[np.int64] = np.arange(np.sum(counts)) - np.repeat(np.cumsum(counts) - counts, counts)
    return places


def counting_sort(keys: NDArray[Any], size: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The stable order of keys from 0 to size - 1, and where those of each key begin in it: (size + 1,).

    SciPy's transposition of one row with the keys as columns, several times as fast as NumPy's sorts.
    """
    numbers, whole = np.arange(keys.size, dtype=np.int32), np.array([0, keys.size])
    columns = scipy.sparse.csr_array((numbers, keys, whole), shape=(1, size)).tocsc()
    return columns.data, columns.indptr.astype(np.int32, copy=False)


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

    @cached_property  # kernels ask for those of one band of rows after another
    def row_lengths(self) -> NDArray[np.int64]:
        """Nonzeros of each row, shape (m,)."""
        return np.diff(self.offsets).astype(np.int64)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each nonzero, shape (nnz,)."""
        return np.repeat(np.arange(self.m), self.row_lengths)

    @property
    def row_cov(self) -> float:
        """Population standard deviation of the row lengths over their mean; 0 for an empty matrix."""
        lengths = self.row_lengths
        return float(lengths.std() / lengths.mean()) if self.nnz else 0.0

    def pattern_hash(self) -> str:
        """First 16 hex digits of the SHA-256 of shape, offsets and indices: the identity of the pattern."""
        return self._hash

    @cached_property
    def _hash(self) -> str:  # asked for by everyone who names or keeps a problem: a large one takes 0.1 s
        digest = hashlib.sha256(f"{self.m},{self.k},{self.nnz};".encode())
        digest.update(np.ascontiguousarray(self.offsets, dtype="<i4").data)
        digest.update(np.ascontiguousarray(self.indices, dtype="<i4").data)
        return digest.hexdigest()[:16]

    def with_values(self, values: NDArray[Any]) -> CSR:
        """The same pattern with other values, shape (nnz,)."""
        if values.shape != self.indices.shape:
            raise MatrixError(f"values: expected {self.nnz} of them, got shape {values.shape}")
        same = CSR(self.m, self.k, self.offsets, self.indices, values)
        if "_hash" in vars(self):
            vars(same)["_hash"] = self._hash
        return same

    def to_dense(self) -> NDArray[Any]:
        """The m x k array."""
        values = np.ascontiguousarray(self.values)
        if self.nnz == self.m * self.k:
            return values.reshape(self.m, self.k).copy()
        bits = values.view(f"u{values.itemsize}")  # SciPy knows no half precision, and loses -0.0 where it adds it to 0
        packed = scipy.sparse.csr_array((bits, self.indices, self.offsets), shape=(self.m, self.k))
        dense: NDArray[Any] = packed.toarray().view(values.dtype)
        return dense

    def to_scipy(self) -> scipy.sparse.csr_array[Any, tuple[int, int]]:
        """The matrix as a SciPy CSR array of float64."""
        values = self.values.astype(np.float64)
        return scipy.sparse.csr_array((values, self.indices, self.offsets), shape=(self.m, self.k))

    def transposed(self) -> CSR:
        """The k x m transpose, values and all."""
        order, offsets = counting_sort(self.indices, self.k)
        return CSR(self.k, self.m, offsets, self.rows[order].astype(np.int32), self.values[order])

    def band(self, first: int, end: int) -> CSR:
        """Some rows, from `first` to before `end`."""
        held = slice(self.offsets[first], self.offsets[end])
        offsets = self.offsets[first : end + 1] - self.offsets[first]
        return CSR(end - first, self.k, offsets, self.indices[held], self.values[held])

    @staticmethod
    def stacked(bands: Sequence[CSR]) -> CSR:
        """Matrices of one width, one below another."""
        offsets = prefix_sums(np.concatenate([one.row_lengths for one in bands])).astype(np.int32)
        indices, values = (np.concatenate([getattr(one, of) for one in bands]) for of in ("indices", "values"))
        return CSR(offsets.size - 1, bands[0].k, offsets, indices, values)

    @staticmethod
    def from_mask(dense: NDArray[Any], mask: NDArray[np.bool_]) -> CSR:
        """The elements of a 2-D array where a mask of its shape is set; zeros among them stay stored."""
        offsets = prefix_sums(mask.sum(axis=1)).astype(np.int32)
        m, k = mask.shape
        return CSR(m, k, offsets, np.nonzero(mask)[1].astype(np.int32), dense[mask])

    @staticmethod
    def from_dense(dense: NDArray[Any]) -> CSR:
        """Compresses a 2-D array; -0.0 counts as zero."""
        return CSR.from_mask(dense, dense != 0)
