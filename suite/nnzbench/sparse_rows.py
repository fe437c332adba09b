"""Host-side preparation shared by the row-splitting kernels: row records, padding, vector widths."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import CSR

Array = NDArray[Any]


def row_records(matrix: CSR, swizzle: bool = True) -> NDArray[np.int32]:
    """One record (row, first entry, end of entries, 0) per row, shape (m, 4), in processing order.

    With `swizzle`, rows go by falling length (stable), so that heavy blocks start first and neighbours have equal
    work (Sputnik, section V-C); without it, in natural order.
    """
    lengths = matrix.row_lengths
    order = np.argsort(-lengths, kind="stable") if swizzle else np.arange(matrix.m)
    records = np.zeros((matrix.m, 4), dtype=np.int32)
    records[:, 0] = order
    records[:, 1] = matrix.offsets[:-1][order]
    records[:, 2] = matrix.offsets[1:][order]
    return records


def padded(array: Array, multiple: int = 8) -> Array:
    """A 1-D array filled up with zeros to a positive multiple of `multiple`, so that its last vector can be loaded."""
    size = max(1, -(-array.size // multiple)) * multiple
    out = np.zeros(size, dtype=array.dtype)
    out[: array.size] = array
    return out


def vector_width(n: int, itemsize: int) -> int:
    """Most elements (a power of two, 16 bytes at most) that one access to a row of `n` elements may take."""
    width = 16 // itemsize
    while n % width:
        width //= 2
    return width


def power_of_two_at_least(n: int) -> int:
    """The smallest power of two not below `n`, for n >= 1."""
    return 1 << (n - 1).bit_length()
