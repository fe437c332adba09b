"""The data of a problem and its float64 reference. Pure: the same problem and files give the same bits."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import CSR
from nnzbench.problem import DType, Problem

Array = NDArray[Any]


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """NumPy type that holds operands of `dtype`. bf16 values are kept as float32 already rounded to bf16."""
    return np.dtype(np.float16 if dtype == "f16" else np.float32)


def round_to(array: Array, dtype: DType) -> Array:
    """`array` rounded to `dtype` and stored as `storage_dtype(dtype)`."""
    if dtype != "bf16":
        return array.astype(storage_dtype(dtype))
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded & np.uint32(0xFFFF0000)).astype(np.uint32).view(np.float32)


@dataclass(frozen=True)
class Operands:
    """Inputs of one problem.

    `sparse` is the sparse operand (for `sddmm` the output's pattern, m x n). `dense` holds by op:
    spmm, spmv, gemm: `b` (k, n) row-major; sddmm: `a` (m, k) and `b` (n, k); sparse_softmax: nothing;
    conv2d, conv1d: `x` (batch, channels, height, width), with `sparse` the (filters, channels*r*s) weights.
    """

    sparse: CSR
    dense: Mapping[str, Array]
    pattern: str
    """Hash of the sparse pattern, kept with the record."""

    def cast(self, dtype: DType) -> Operands:
        """The same operands rounded to `dtype`."""
        return replace(
            self,
            sparse=self.sparse.with_values(round_to(self.sparse.values, dtype)),
            dense={name: round_to(array, dtype) for name, array in self.dense.items()},
        )


@dataclass(frozen=True)
class Reference:
    """Float64 result and, for each element, the sum of the products' magnitudes that errors are measured by."""

    value: NDArray[np.float64]
    scale: NDArray[np.float64]

    @functools.cached_property
    def weight(self) -> NDArray[np.float64]:
        """1/scale, and 0 where nothing is summed."""
        return np.divide(1.0, self.scale, out=np.zeros_like(self.scale), where=self.scale > 0)

    @functools.cached_property
    def empty(self) -> NDArray[np.bool_] | None:
        """Where nothing is summed and the result must be exactly zero; None where that is nowhere."""
        empty = self.scale == 0
        return empty if empty.any() else None


def make_operands(problem: Problem) -> Operands:
    """Loads or generates the pattern of `problem.source`, draws seeded normal values, casts to `problem.dtype`.

    Raises `MatrixError` where a real file is missing or wrong.
    """
    from nnzbench.matrices.sources import load_sparse

    matrix = load_sparse(problem)
    rng = np.random.default_rng([problem.seed, 0xB])
    operands = Operands(matrix, _dense(problem, rng), matrix.pattern_hash())
    return operands.cast(problem.dtype)


def _dense(problem: Problem, rng: np.random.Generator) -> dict[str, Array]:
    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, dtype=np.float32)

    if problem.op == "sddmm":
        return {"a": normal(problem.m, problem.k), "b": normal(problem.n, problem.k)}
    if problem.op == "sparse_softmax":
        return {}
    if problem.conv is not None:
        c = problem.conv
        return {"x": normal(c.batch, c.channels, c.height, c.width)}
    return {"b": normal(problem.k, problem.n)}


def reference(problem: Problem, operands: Operands) -> Reference:
    """The float64 result: (m, n) for products, (nnz,) for sddmm and softmax, NCHW for convolutions."""
    if problem.op == "sddmm":
        return _sddmm(operands)
    if problem.op == "sparse_softmax":
        return _softmax(operands.sparse)
    if problem.conv is not None:
        return _convolution(problem, operands)
    b = operands.dense["b"].astype(np.float64)
    a = operands.sparse.to_scipy()
    return Reference(a @ b, abs(a) @ abs(b))


def _sddmm(operands: Operands) -> Reference:
    pattern, a, b = operands.sparse, operands.dense["a"], operands.dense["b"]
    rows = np.repeat(np.arange(pattern.m), pattern.row_lengths)
    value, scale = np.empty(pattern.nnz), np.empty(pattern.nnz)
    step = max(1, (1 << 24) // max(1, a.shape[1]))  # keeps the gathered rows near 128 MB
    for at in range(0, pattern.nnz, step):
        part = slice(at, at + step)
        products = a[rows[part]].astype(np.float64) * b[pattern.indices[part]]
        value[part] = products.sum(axis=1)
        scale[part] = np.abs(products).sum(axis=1)
    return Reference(value, scale)


def _softmax(matrix: CSR) -> Reference:
    value = np.zeros(matrix.nnz)
    lengths = matrix.row_lengths
    filled = lengths > 0
    if matrix.nnz:
        starts = matrix.offsets[:-1][filled]
        x = matrix.values.astype(np.float64)
        top = np.repeat(np.maximum.reduceat(x, starts), lengths[filled])
        e = np.exp(x - top)
        value = e / np.repeat(np.add.reduceat(e, starts), lengths[filled])
    return Reference(value, np.ones_like(value))


def _convolution(problem: Problem, operands: Operands) -> Reference:
    """Sums shifted input planes, one sparse product per filter tap: cross-correlation as in cuDNN."""
    c = problem.conv
    assert c is not None
    x = operands.dense["x"].astype(np.float64)
    padded = np.pad(x, ((0, 0), (0, 0), (c.pad_h, c.pad_h), (c.pad_w, c.pad_w)))
    weights = operands.sparse.to_scipy().tocsc()
    shape = (c.filters, c.batch * c.out_height * c.out_width)
    value, scale = np.zeros(shape), np.zeros(shape)
    for tap in range(c.r * c.s):
        i, j = divmod(tap, c.s)
        rows = slice(i, i + (c.out_height - 1) * c.stride + 1, c.stride)
        columns = slice(j, j + (c.out_width - 1) * c.stride + 1, c.stride)
        plane = padded[:, :, rows, columns].transpose(1, 0, 2, 3).reshape(c.channels, -1)
        w = weights[:, tap :: c.r * c.s].tocsr()
        value += w @ plane
        scale += abs(w) @ np.abs(plane)
    out = (c.filters, c.batch, c.out_height, c.out_width)
    return Reference(value.reshape(out).swapaxes(0, 1), scale.reshape(out).swapaxes(0, 1))
