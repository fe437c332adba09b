"""Pruned tensors as compressed-tensors keeps them under `sparse-bitmask`: a bit for each weight, and the nonzeros.

The format's description (SparseML's `transformers/compression/README.md`): of a tensor `<name>` with `rows` x `columns`
weights, `<name>.compressed` holds the nonzeros row by row, `<name>.bitmask` (rows, ceil(columns / 8)) uint8 a bit for
each weight, the first in the lowest, `<name>.shape` the two sizes, and `<name>.row_offsets` (rows,) where each row's
nonzeros start. `sparse-24-bitmask` has no offsets, and its nonzeros as a matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import CSR, MatrixError, require_memory

MASK = ".bitmask"
VALUES, SHAPE, STARTS = ".compressed", ".shape", ".row_offsets"
PARTS = (VALUES, MASK, SHAPE, STARTS)


def pack(matrix: CSR) -> dict[str, NDArray[Any]]:
    """The parts of a matrix by their endings; all its values must be nonzeros."""
    there = np.zeros((matrix.m, matrix.k), bool)
    there[matrix.rows, matrix.indices] = True
    mask = np.packbits(there, axis=1, bitorder="little")
    shape, starts = np.array([matrix.m, matrix.k], np.int64), matrix.offsets[:-1].astype(np.int64)
    return {VALUES: matrix.values, MASK: mask, SHAPE: shape, STARTS: starts}


def unpack(where: str, parts: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """The dense array (rows, columns) of `pack`'s parts; offsets may lack. Raises `MatrixError` for a damaged one."""
    values, mask, shape = parts[VALUES].reshape(-1), parts[MASK], parts[SHAPE]
    rows, columns = map(int, shape) if shape.shape == (2,) and shape.dtype.kind in "iu" else (0, 0)
    if min(rows, columns) < 1 or mask.dtype != np.uint8 or mask.shape != (rows, -(-columns // 8)):
        raise MatrixError(f"{where}: a bitmask of {mask.shape} is none of the shape {shape.tolist()}.")
    require_memory(where, rows * columns * (1 + values.itemsize))
    bits = np.unpackbits(mask, axis=1, bitorder="little")
    counts = bits.sum(axis=1, dtype=np.int64)
    ends = np.cumsum(counts)
    if ends[-1] != values.size or bits[:, columns:].any():
        raise MatrixError(f"{where}: its bitmask counts {ends[-1]} nonzeros, and {values.size} are there.")
    if STARTS in parts and not np.array_equal(parts[STARTS], ends - counts):
        raise MatrixError(f"{where}: its row offsets are not those of its bitmask.")
    dense = np.zeros((rows, columns), values.dtype)
    dense[bits[:, :columns].astype(bool)] = values
    return dense
