"""Matrices and results as GPU libraries store them: their types, bf16 and FP8 as bits, zeros and swapped axes."""

from __future__ import annotations

import numpy as np

from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Array, bf16_bits, from_bf16
from nnzbench.problems.operands import to_e4m3
from nnzbench.problems.parts import PART_ELEMENTS, Part, over_parts

CUDA_TYPE = {"f32": 0, "f16": 2, "bf16": 14, "i8": 3, "f8": 28}
"""cudaDataType of the operands, by problem dtype."""
RESULT_TYPE = {**CUDA_TYPE, "i8": 10, "f8": 2}
"""Of the result: sums of 8-bit products are 32-bit integers, or fp16."""

STORAGE = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "i8": np.int32, "f8": np.float16}
"""How results lie in device memory, by problem dtype."""
STRIP = 16
"""Rows copied at a time where two axes are swapped: what they write are whole cache lines, what they read stays."""


def to_storage(array: Array, dtype: str) -> Array:
    """`array` as the GPU stores it: rounded float32 of bf16 as 16 bits, of f8 as 8 of `F8_SCALE` times it."""
    if dtype == "f8":
        return np.ascontiguousarray(to_e4m3(array)).view(np.uint8)
    return bf16_bits(array) if dtype == "bf16" else np.ascontiguousarray(array)


def from_storage(array: Array, dtype: str) -> Array:
    """The inverse of `to_storage`."""
    return from_bf16(array) if dtype == "bf16" else array


def swapped(array: Array) -> Array:
    """A C-contiguous copy with the last two axes swapped, many times as fast as NumPy's own on large arrays."""
    *batch, rows, columns = array.shape
    result = np.empty((*batch, columns, rows), array.dtype)

    def strips(part: Part) -> None:
        for at in range(part[0].start * STRIP, min(part[0].stop * STRIP, rows), STRIP):
            result[..., at : at + STRIP] = np.swapaxes(array[..., at : at + STRIP, :], -1, -2)

    over_parts(strips, (-(-rows // STRIP),), max(1, PART_ELEMENTS // (STRIP * max(1, columns))))
    return result


def before_pruning(matrix: CSR) -> Array:
    """A matrix (m, k) that pruning may have made this one of: where it has zeros, its values over again.

    Who does not prune multiplies by such a one: the power that tensor cores take, and so their clock, depends on the
    zeros. The values that were pruned in fact are nowhere recorded.
    """
    dense = matrix.to_dense()
    zeros = dense == 0
    if matrix.nnz:
        dense[zeros] = np.resize(matrix.values, np.count_nonzero(zeros))
    return dense


def dense_weights(matrix: CSR, dtype: str, transposed: bool = False, pruned: bool = True) -> Array:
    """The matrix as the GPU stores it with its zeros, or with the values before pruning; (m, k) or (k, m) row-major."""
    if pruned:
        dense = matrix.with_values(to_storage(matrix.values, dtype)).to_dense()
    else:
        dense = to_storage(before_pruning(matrix), dtype)
    return swapped(dense) if transposed else dense
