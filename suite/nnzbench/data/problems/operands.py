"""The data of a problem. Pure: the same problem and files give the same bits."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems import networks
from nnzbench.data.problems.parts import PART_ELEMENTS
from nnzbench.data.problems.problem import NETWORKS, DType, Problem
from nnzbench.data.problems.sources import input_density, load_sparse, shape_of

Array = NDArray[Any]

I8_STEPS = 32
"""Steps of a standard deviation: 127 of them are four, so that normal values are rarely cut."""
F8_SCALE = 64
"""Per-tensor scale of e4m3: its largest number is then seven standard deviations, its smallest normal one 1/4096."""
F8_LARGEST = 448


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """NumPy type that holds operands of `dtype`. Values of bf16 and f8 are kept as float32 already rounded."""
    return np.dtype({"f16": np.float16, "i8": np.int8}.get(dtype, np.float32))


def round_to(array: Array, dtype: DType) -> Array:
    """`array` rounded to `dtype` and stored as `storage_dtype(dtype)`; floats as i8 are so many steps of 1/32."""
    if dtype == "i8" and array.dtype.kind == "f":
        return np.clip(np.rint(array * np.float32(I8_STEPS)), -127, 127).astype(np.int8)
    if dtype == "f8":
        return to_e4m3(array).astype(np.float32) / np.float32(F8_SCALE)
    if dtype != "bf16":
        return array.astype(storage_dtype(dtype), copy=False)
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    rounded = bits >> 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += bits
    rounded &= 0xFFFF0000
    return rounded.view(np.float32)


def to_e4m3(array: Array) -> Array:
    """The nearest e4m3 numbers to `F8_SCALE` times the values; those beyond the largest become the largest."""
    with np.errstate(over="ignore"):
        halves = array.astype(np.float16, copy=False)
    if halves is array or np.array_equal(halves, array):
        return _e4m3_of_halves()[halves.view(np.uint16)]
    return _to_e4m3(array)


def _to_e4m3(array: Array) -> Array:
    return np.clip(array * np.float32(F8_SCALE), -F8_LARGEST, F8_LARGEST).astype(ml_dtypes.float8_e4m3fn)


@functools.cache
def _e4m3_of_halves() -> Array:
    """By the bits of an fp16 number: looked up many times as fast as converted."""
    with np.errstate(invalid="ignore"):
        return _to_e4m3(np.arange(1 << 16, dtype=np.uint16).view(np.float16))


@dataclass(frozen=True)
class Operands:
    """Inputs of one problem.

    `sparse` is the sparse operand (for `sddmm` the output's pattern, m x n). `dense` holds by op:
    spmm, spmv, gemm: `b` (k, n) row-major, with zeros where the source is `sparse_inputs`;
    sddmm: `a` (m, k) and `b` (n, k); sparse_softmax: nothing;
    conv2d, conv1d: `x` (batch, channels, height, width), with `sparse` the (filters, channels*r*s) weights;
    depthwise: `x` and `bias` (channels,), with `sparse` the dense (channels, r*s) weights; pointwise: `b` (k, n) and
    `bias` (m,); attention: `q` (m, n), `k` and `v` (k, n), with `sparse` the mask, whose values are not used;
    transformer and mobilenet: what `problems.networks` says.
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


def make_operands(problem: Problem) -> Operands:
    """Loads or generates the pattern of `problem.source`, draws seeded normal values, casts to `problem.dtype`.

    Raises `MatrixError` where a real file is missing or wrong.
    """
    return Maker().operands(problem)


def matrix_of(problem: Problem) -> tuple[object, ...]:
    """Equal for problems with one sparse matrix, its rounding included."""
    return shape_of(problem), problem.sparsity, problem.source, problem.seed, problem.conv, problem.dtype


class Maker:
    """Makes operands of one problem after another; those that follow one another with one matrix share the object."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._matrix: tuple[CSR, str] | None = None

    def operands(self, problem: Problem) -> Operands:
        """As `make_operands`."""
        of = matrix_of(problem)
        if self._matrix is None or of != self._of:
            self._matrix = None  # there may be no memory for two
            matrix = load_sparse(problem)
            held = matrix.with_values(round_to(matrix.values, problem.dtype))
            self._of, self._matrix = of, (held, matrix.pattern_hash())
        return operands_of(problem, *self._matrix)


def operands_of(problem: Problem, matrix: CSR, pattern: str) -> Operands:
    """The operands of a problem whose sparse one is at hand, rounded to its type, with seeded normal dense ones."""
    return Operands(matrix, _dense(problem, np.random.default_rng([problem.seed, 0xB])), pattern)


def _dense(problem: Problem, rng: np.random.Generator) -> dict[str, Array]:
    def normal(*shape: int) -> Array:
        """Rounded as it is drawn: in float32 only what stays in cache is held."""
        values = np.empty(shape, dtype=storage_dtype(problem.dtype))
        for part in np.split(values.reshape(-1), range(PART_ELEMENTS, values.size, PART_ELEMENTS)):
            part[:] = round_to(rng.standard_normal(part.size, dtype=np.float32), problem.dtype)
        return values

    if problem.op in NETWORKS:
        drawn = networks.dense_operands(problem, rng)
        return {name: round_to(array, problem.dtype) for name, array in drawn.items()}
    if problem.op == "sddmm":
        return {"a": normal(problem.m, problem.k), "b": normal(problem.n, problem.k)}
    if problem.op == "sparse_softmax":
        return {}
    if problem.op == "attention":  # the scores' factor 1/sqrt(features) is part of Q, as it can be of Q's weights
        q = rng.standard_normal((problem.m, problem.n), dtype=np.float32) / np.float32(np.sqrt(problem.n))
        return {"q": round_to(q, problem.dtype), "k": normal(problem.k, problem.n), "v": normal(problem.k, problem.n)}
    bias = {"bias": normal(problem.m)} if problem.op in ("pointwise", "depthwise") else {}
    if problem.conv is not None:
        c = problem.conv
        return {"x": normal(c.batch, c.channels, c.height, c.width), **bias}
    b = normal(problem.k, problem.n)
    density = input_density(problem)
    if density < 1.0:  # what a ReLU leaves: positive values, as many in every column
        places = rng.permuted(np.tile(np.arange(problem.k)[:, None], problem.n), axis=0)
        b = np.where(places < round(density * problem.k), np.abs(b), b.dtype.type(0))
    return {"b": b, **bias}
