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


def row_strips(matrix: CSR, items: int, longest_first: bool = True) -> NDArray[np.int32]:
    """Records (row, first entry, end of entries, 0) of runs of at most `items` consecutive nonzeros of one row.

    Shape (strips, 4). By falling length (stable) or in row order; empty rows have none.
    """
    lengths = matrix.row_lengths
    counts = -(-lengths // items)
    rows = np.repeat(np.arange(matrix.m), counts)
    within = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)
    strips = np.zeros((rows.size, 4), dtype=np.int32)
    strips[:, 0] = rows
    strips[:, 1] = matrix.offsets[:-1][rows] + within * items
    strips[:, 2] = np.minimum(strips[:, 1] + items, matrix.offsets[1:][rows])
    if longest_first:
        strips = strips[np.argsort(strips[:, 1] - strips[:, 2], kind="stable")]
    return np.ascontiguousarray(strips)


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


def transpose(matrix: CSR) -> tuple[CSR, NDArray[np.int32]]:
    """The k x m transpose's structure with `matrix`'s values left in place, and where each entry's value is.

    Entry i of the result has the value `matrix.values[positions[i]]`; the result's `values` are `matrix.values`
    unpermuted. Structure and positions depend on the pattern alone, so training caches them.
    """
    positions = np.argsort(matrix.indices, kind="stable").astype(np.int32)
    rows = np.repeat(np.arange(matrix.m, dtype=np.int32), matrix.row_lengths)
    offsets = np.zeros(matrix.k + 1, dtype=np.int32)
    np.cumsum(np.bincount(matrix.indices, minlength=matrix.k), out=offsets[1:])
    return CSR(matrix.k, matrix.m, offsets, rows[positions], matrix.values), positions
