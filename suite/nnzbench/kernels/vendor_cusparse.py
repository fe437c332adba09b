"""cuSPARSE: CSR times dense with every algorithm it has, both layouts, with and without its preprocessing step.

B and C are both row-major or both column-major; conversion, workspace and `cusparseSpMM_preprocess` are untimed and
counted in `prepare_ms`. Accumulation is fp32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnzbench.devices import Device
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernel import Array, Candidate, Prepared, register
from nnzbench.kernels.vendor_support import (
    CUDA_TYPE,
    Freed,
    Output,
    finish,
    load_bindings,
    open_library,
    refusing,
    require_gpu,
    require_math,
    to_storage,
)
from nnzbench.matrices.formats import CSR
from nnzbench.operands import Operands
from nnzbench.problem import Problem

PREPROCESSED = ("CSR_ALG1", "CSR_ALG3")
"""Algorithms that preprocessing helps, by cuSPARSE's documentation; it does nothing for the others."""


@dataclass(frozen=True)
class SpmmCase:
    """One algorithm (its name in cuSPARSE), layout and use of preprocessing."""

    algorithm: str
    column_major: bool
    preprocess: bool

    @property
    def variant(self) -> str:
        """Such as `csr_alg2_row` or `csr_alg1_col_preprocess`; the library's own choice is `csr_default_row`."""
        name = "csr_default" if self.algorithm == "DEFAULT" else self.algorithm.lower()
        return f"{name}_{'col' if self.column_major else 'row'}{'_preprocess' if self.preprocess else ''}"


def spmm_cases() -> list[SpmmCase]:
    """Every algorithm in both layouts, and again with preprocessing where that means something."""
    return [
        SpmmCase(algorithm, column_major, preprocess)
        for algorithm in ("DEFAULT", "CSR_ALG1", "CSR_ALG2", "CSR_ALG3")
        for column_major in (False, True)
        for preprocess in ((False, True) if algorithm in PREPROCESSED else (False,))
    ]


class Handle:
    """A cuSPARSE handle on the device's stream."""

    def __init__(self, device: GpuDevice) -> None:
        self.cusparse: Any = load_bindings("cusparse")
        self.value: int = self.cusparse.create()
        self.cusparse.set_stream(self.value, device.backend.stream)

    def close(self) -> None:
        """Destroys the handle."""
        self.cusparse.destroy(self.value)


class Descriptors:
    """The three matrix descriptors of one product."""

    def __init__(self, cusparse: Any) -> None:
        self._cusparse = cusparse
        self._undo: list[Callable[[], None]] = []

    def sparse(self, shape: tuple[int, int, int], pointers: tuple[int, int, int], kind: int) -> int:
        """CSR of (m, k, nnz) at (offsets, indices, values), 32-bit zero-based indices."""
        lib = self._cusparse
        index, base = int(lib.IndexType.INDEX_32I), int(lib.IndexBase.ZERO)
        descriptor: int = lib.create_csr(*shape, *pointers, index, index, base, kind)
        self._undo.append(lambda: lib.destroy_sp_mat(descriptor))
        return descriptor

    def dense(self, rows: int, columns: int, pointer: int, kind: int, column_major: bool) -> int:
        """A dense matrix without padding."""
        lib = self._cusparse
        order = lib.Order.COL if column_major else lib.Order.ROW
        leading = max(1, rows if column_major else columns)
        descriptor: int = lib.create_dn_mat(rows, columns, leading, pointer, kind, int(order))
        self._undo.append(lambda: lib.destroy_dn_mat(descriptor))
        return descriptor

    def close(self) -> None:
        """Destroys them, last first."""
        while self._undo:
            self._undo.pop()()


def prepare_spmm(device: GpuDevice, case: SpmmCase, matrix: CSR, b: Array, dtype: str) -> Prepared:
    """C (m, n) = A (m, k, CSR) B (k, n). Raises `Unsupported` without cuSPARSE or where it refuses, `LaunchError`."""
    require_math(device, dtype)
    started = time.perf_counter()
    handle = open_library(device, "cusparse", lambda: Handle(device))
    lib, kind, n = handle.cusparse, CUDA_TYPE[dtype], b.shape[1]
    offsets, indices = device.upload(matrix.offsets), device.upload(matrix.indices)
    values = device.upload(to_storage(matrix.values, dtype))
    dense = device.upload(to_storage(b.T if case.column_major else b, dtype))
    output = Output(device, matrix.m, n, dtype, case.column_major)
    scalars = np.array([1.0, 0.0], np.float32)
    alpha, beta = scalars.ctypes.data, scalars.ctypes.data + scalars.itemsize
    descriptors = Descriptors(lib)
    what = f"cusparse {case.variant}"

    def describe() -> tuple[int, ...]:
        shape, pointers = (matrix.m, matrix.k, matrix.nnz), (offsets.pointer, indices.pointer, values.pointer)
        none = int(lib.Operation.NON_TRANSPOSE)
        a = descriptors.sparse(shape, pointers, kind)
        b_ = descriptors.dense(matrix.k, n, dense.pointer, kind, case.column_major)
        c = descriptors.dense(matrix.m, n, output.array.pointer, kind, case.column_major)
        algorithm = int(getattr(lib.SpMMAlg, case.algorithm))
        return (handle.value, none, none, alpha, a, b_, beta, c, CUDA_TYPE["f32"], algorithm)

    try:
        arguments = refusing(what, describe)
        size = refusing(what, lambda: lib.sp_mm_buffer_size(*arguments))
        workspace = device.empty((max(1, size),), np.uint8)
        if case.preprocess:
            refusing(what, lambda: lib.sp_mm_preprocess(*arguments, workspace.pointer))
    except BaseException:
        descriptors.close()
        raise

    def run(keep: Any = (scalars, offsets, indices, values, dense, workspace, output, handle)) -> None:
        refusing(what, lambda: lib.sp_mm(*arguments, workspace.pointer))

    return finish(device, run, output, [descriptors, Freed(offsets, indices, values, dense, workspace)], started)


class Cusparse:
    """cusparseSpMM on CSR."""

    name = "cusparse"
    paper = "NVIDIA cuSPARSE"
    ops = frozenset({"spmm", "spmv"})
    dtypes = frozenset({"f32", "f16", "bf16"})

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """One per algorithm, layout and preprocessing. Raises `Unsupported` without a GPU."""
        gpu = require_gpu(device, self.name)
        for case in spmm_cases():

            def prepare(case: SpmmCase = case) -> Prepared:
                return prepare_spmm(gpu, case, operands.sparse, operands.dense["b"], problem.dtype)

            yield Candidate(case.variant, problem.dtype, prepare)


register(Cusparse())
