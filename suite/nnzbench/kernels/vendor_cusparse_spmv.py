"""cuSPARSE SpMV: every algorithm of CSR (with and without preprocessing), COO and sliced ELL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernel import Array, Candidate, Prepared
from nnzbench.kernels.vendor_cusparse_support import Descriptors, Routine, open_handle, prepare_call, row_indices
from nnzbench.kernels.vendor_support import CUDA_TYPE, Output, require_math, to_storage
from nnzbench.matrices.formats import CSR

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
    for case in spmv_cases():

        def prepare(case: SpmvCase = case) -> Prepared:
            return prepare_spmv(device, case, matrix, b, dtype)

        yield Candidate(case.variant, dtype, prepare)


def sliced_ell(matrix: CSR) -> tuple[Array, Array, Array]:
    """Slice offsets, columns and values: each slice as wide as its longest row, column-major, padded with -1 and 0."""
    slices = -(-matrix.m // SLICE)
    lengths = np.zeros(slices * SLICE, np.int64)
    lengths[: matrix.m] = matrix.row_lengths
    offsets = np.concatenate([[0], np.cumsum(lengths.reshape(slices, SLICE).max(axis=1) * SLICE)])
    columns = np.full(int(offsets[-1]), -1, np.int32)
    values = np.zeros(int(offsets[-1]), matrix.values.dtype)
    rows = row_indices(matrix).astype(np.int64)
    nth = np.arange(matrix.nnz) - matrix.offsets[:-1].astype(np.int64)[rows]
    place = offsets[rows // SLICE] + nth * SLICE + rows % SLICE
    columns[place], values[place] = matrix.indices, matrix.values
    return offsets.astype(np.int32), columns, values


def prepare_spmv(device: GpuDevice, case: SpmvCase, matrix: CSR, b: Array, dtype: str) -> Prepared:
    """y (m, 1) = A (m, k, sparse) x (k, 1). Raises `Unsupported` without cuSPARSE or where it refuses."""
    require_math(device, dtype)
    started = time.perf_counter()
    handle = open_handle(device)
    lib = handle.cusparse
    kind = case.algorithm.partition("_")[0]
    structure: tuple[Array, Array]
    if kind == "SELL":
        *indices, stored = sliced_ell(matrix)
        structure = (indices[0], indices[1])
    else:
        structure = (row_indices(matrix) if kind == "COO" else matrix.offsets, matrix.indices)
        stored = matrix.values
    parts = [device.upload(part) for part in (*structure, to_storage(stored, dtype))]
    x = device.upload(to_storage(b, dtype))
    output = Output(device, matrix.m, 1, dtype)

    def describe(descriptors: Descriptors) -> tuple[int, ...]:
        a = _descriptor(descriptors, kind, matrix, parts)
        x_ = descriptors.vector(matrix.k, x.pointer)
        y = descriptors.vector(matrix.m, output.array.pointer)
        none, algorithm = int(lib.Operation.NON_TRANSPOSE), int(getattr(lib.SpMVAlg, case.algorithm))
        return (handle.value, none, handle.alpha, a, x_, handle.beta, y, CUDA_TYPE["f32"], algorithm)

    preprocess = lib.sp_mv_preprocess if case.preprocess else None
    routine = Routine(f"cusparse {case.variant}", lib.sp_mv_buffer_size, lib.sp_mv, preprocess)
    return prepare_call(device, routine, describe, dtype, output, [*parts, x], started)


def _descriptor(descriptors: Descriptors, kind: str, matrix: CSR, parts: list[DeviceArray]) -> int:
    first, second, third = (part.pointer for part in parts)
    shape = (matrix.m, matrix.k, matrix.nnz)
    if kind == "SELL":
        return descriptors.sliced_ell(shape, parts[2].shape[0], SLICE, (first, second, third))
    make = descriptors.coo if kind == "COO" else descriptors.csr
    return make(shape, (first, second, third))
