"""cuSPARSE: SpMM, SpMV and SDDMM with every algorithm, format and layout that fits, preprocessing included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nnzbench.devices import Device
from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import TENSOR_CORES, About
from nnzbench.kernels.vendor.cusparse_spmm import spmm_candidates
from nnzbench.kernels.vendor.cusparse_support import Descriptors, Routine, csr_parts, open_handle, prepare_call
from nnzbench.kernels.vendor.support import (
    CUDA_TYPE,
    Inputs,
    Output,
    Preparing,
    dense_operand,
    require_gpu,
    require_math,
    to_storage,
)
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Array, Candidate, Prepared
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem


@dataclass(frozen=True)
class SddmmCase:
    """A layout of the (n, k) operand and use of preprocessing; cuSPARSE has one algorithm.

    `transposed`: (n, k) row-major with the transpose operation; `col`: the same memory as a column-major (k, n);
    `row`: rearranged ahead of time to (k, n) row-major.
    """

    layout: str
    preprocess: bool

    @property
    def variant(self) -> str:
        """Such as `sddmm_default_col` or `sddmm_preprocess_col`."""
        return f"sddmm_{'preprocess' if self.preprocess else 'default'}_{self.layout}"


def sddmm_cases() -> list[SddmmCase]:
    """Each layout without and with preprocessing."""
    return [SddmmCase(layout, again) for layout in ("transposed", "col", "row") for again in (False, True)]


def sddmm_candidates(device: GpuDevice, pattern: CSR, a: Array, b: Array, dtype: str) -> Iterator[Candidate]:
    """One per layout and preprocessing."""
    inputs = Inputs(device)
    for case in sddmm_cases():

        def prepare(case: SddmmCase = case) -> Prepared:
            return prepare_sddmm(inputs, case, pattern, a, b, dtype)

        yield Candidate(case.variant, dtype, prepare)


class Values(Output):
    """The (nnz,) values of a sparse result."""

    def read(self) -> Array:
        """Waits, then copies to the host."""
        return super().read().ravel()


def prepare_sddmm(inputs: Inputs, case: SddmmCase, pattern: CSR, a: Array, b: Array, dtype: str) -> Prepared:
    """Values (nnz,) of A (m, k) B^T (k, n) at the (m, n) pattern. Raises `Unsupported` where cuSPARSE refuses it."""
    device = inputs.device
    require_math(device, dtype)
    preparing = Preparing(inputs)
    handle = open_handle(device)
    lib = handle.cusparse
    (m, k), n, nnz = a.shape, b.shape[0], pattern.nnz
    structure = preparing.arrays(("pattern",), lambda: (pattern.offsets, pattern.indices))
    left = preparing.array(("a",), lambda: to_storage(a, dtype))
    right = dense_operand(preparing, b, dtype, case.layout == "row")
    output = Values(device, 1, pattern.nnz, dtype)

    def describe(descriptors: Descriptors, pattern: Sequence[DeviceArray]) -> tuple[int, ...]:
        none, transpose = int(lib.Operation.NON_TRANSPOSE), int(lib.Operation.TRANSPOSE)
        a_ = descriptors.dense(m, k, left.pointer)
        if case.layout == "transposed":
            operation, b_ = transpose, descriptors.dense(n, k, right.pointer)
        else:
            operation, b_ = none, descriptors.dense(k, n, right.pointer, case.layout == "col")
        offsets, indices = (part.pointer for part in pattern)
        c = descriptors.csr((m, n, nnz), (offsets, indices, output.array.pointer))
        compute, algorithm = CUDA_TYPE["f32"], int(lib.SDDMMAlg.DEFAULT)
        return (handle.value, none, operation, handle.alpha, a_, b_, handle.beta, c, compute, algorithm)

    def buffer_size(*arguments: int) -> int:
        size = np.zeros(1, np.uint64)
        lib.sddmm_buffer_size(*arguments, size.ctypes.data)
        return int(size[0])

    preprocess = lib.sddmm_preprocess if case.preprocess else None
    routine = Routine(f"cusparse {case.variant}", buffer_size, lib.sddmm, preprocess)
    return prepare_call(device, routine, describe, dtype, output, structure, [left, right], preparing)


CSR_ALGORITHMS = ("CSR_ALG1", "CSR_ALG2")
SLICE = 32
"""Rows per slice of sliced ELL: one warp's."""


@dataclass(frozen=True)
class SpmvCase:
    """One algorithm (its name in cuSPARSE) and use of preprocessing."""

    algorithm: str
    preprocess: bool = False

    @property
    def variant(self) -> str:
        """Such as `spmv_csr_alg2`; the library's own choice is `spmv_csr_default`."""
        name = "csr_default" if self.algorithm == "DEFAULT" else self.algorithm.lower()
        return f"spmv_{name}{'_preprocess' if self.preprocess else ''}"


def spmv_cases() -> list[SpmvCase]:
    """The library's own choice and every algorithm, those of CSR again with preprocessing."""
    csr = [SpmvCase(name, preprocess) for name in CSR_ALGORITHMS for preprocess in (False, True)]
    return [SpmvCase("DEFAULT"), *csr, *(SpmvCase(name) for name in ("COO_ALG1", "COO_ALG2", "SELL_ALG1"))]


def spmv_candidates(device: GpuDevice, matrix: CSR, b: Array, dtype: str) -> Iterator[Candidate]:
    """One per algorithm and preprocessing."""
    inputs = Inputs(device)
    for case in spmv_cases():

        def prepare(case: SpmvCase = case) -> Prepared:
            return prepare_spmv(inputs, case, matrix, b, dtype)

        yield Candidate(case.variant, dtype, prepare)


def sliced_ell(matrix: CSR) -> tuple[Array, Array, Array]:
    """Slice offsets, columns and values: each slice as wide as its longest row, column-major, padded with -1 and 0."""
    slices = -(-matrix.m // SLICE)
    lengths = np.zeros(slices * SLICE, np.int64)
    lengths[: matrix.m] = matrix.row_lengths
    offsets = np.concatenate([[0], np.cumsum(lengths.reshape(slices, SLICE).max(axis=1) * SLICE)])
    columns = np.full(int(offsets[-1]), -1, np.int32)
    values = np.zeros(int(offsets[-1]), matrix.values.dtype)
    for first, at, end in zip(range(0, matrix.m, SLICE), offsets[:-1], offsets[1:], strict=True):
        held = slice(matrix.offsets[first], matrix.offsets[min(first + SLICE, matrix.m)])
        # (place in the row, row) as stored; its transpose, masked, has the nonzeros in the order of CSR
        filled = np.arange((end - at) // SLICE) < lengths[first : first + SLICE, None]
        columns[at:end].reshape(-1, SLICE).T[filled] = matrix.indices[held]
        values[at:end].reshape(-1, SLICE).T[filled] = matrix.values[held]
    return offsets.astype(np.int32), columns, values


def prepare_spmv(inputs: Inputs, case: SpmvCase, matrix: CSR, b: Array, dtype: str) -> Prepared:
    """y (m, 1) = A (m, k, sparse) x (k, 1). Raises `Unsupported` without cuSPARSE or where it refuses."""
    device = inputs.device
    require_math(device, dtype)
    preparing = Preparing(inputs)
    handle = open_handle(device)
    lib = handle.cusparse
    kind = case.algorithm.partition("_")[0]
    if kind == "SELL":
        parts = preparing.arrays(("sell",), lambda: _stored_sliced_ell(matrix, dtype))
    else:
        parts = csr_parts(preparing, matrix, dtype, coordinates=kind == "COO")
    x = dense_operand(preparing, b, dtype)
    output = Output(device, matrix.m, 1, dtype)

    def describe(descriptors: Descriptors, parts: Sequence[DeviceArray]) -> tuple[int, ...]:
        a = _descriptor(descriptors, kind, matrix, parts)
        x_ = descriptors.vector(matrix.k, x.pointer)
        y = descriptors.vector(matrix.m, output.array.pointer)
        none, algorithm = int(lib.Operation.NON_TRANSPOSE), int(getattr(lib.SpMVAlg, case.algorithm))
        return (handle.value, none, handle.alpha, a, x_, handle.beta, y, CUDA_TYPE["f32"], algorithm)

    preprocess = lib.sp_mv_preprocess if case.preprocess else None
    routine = Routine(f"cusparse {case.variant}", lib.sp_mv_buffer_size, lib.sp_mv, preprocess)
    return prepare_call(device, routine, describe, dtype, output, parts, [x], preparing)


def _stored_sliced_ell(matrix: CSR, dtype: str) -> tuple[Array, Array, Array]:
    offsets, columns, values = sliced_ell(matrix)
    return offsets, columns, to_storage(values, dtype)


def _descriptor(descriptors: Descriptors, kind: str, matrix: CSR, parts: Sequence[DeviceArray]) -> int:
    first, second, third = (part.pointer for part in parts)
    shape = (matrix.m, matrix.k, matrix.nnz)
    if kind == "SELL":
        return descriptors.sliced_ell(shape, parts[2].shape[0], SLICE, (first, second, third))
    make = descriptors.coo if kind == "COO" else descriptors.csr
    return make(shape, (first, second, third))


class Cusparse:
    """The generic API of cuSPARSE."""

    name = "cusparse"
    paper = "NVIDIA cuSPARSE"
    ops = frozenset({"spmm", "spmv", "sddmm"})
    dtypes = frozenset({"f32", "f16", "bf16"})

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """One per algorithm, format, layout and preprocessing. Raises `Unsupported` without a GPU."""
        gpu = require_gpu(device, self.name)
        matrix, dense = operands.sparse, operands.dense
        if problem.op == "sddmm":
            return sddmm_candidates(gpu, matrix, dense["a"], dense["b"], problem.dtype)
        make = spmv_candidates if problem.op == "spmv" else spmm_candidates
        return make(gpu, matrix, dense["b"], problem.dtype)


register(
    Cusparse(),
    About("library", "cuSPARSE", maths=TENSOR_CORES, reference=True, searched=True, rank=200),
)
