"""cuSPARSE SDDMM: the dot products at a CSR pattern's positions, with B in each layout it may come in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.vendor.cusparse_support import Descriptors, Routine, open_handle, prepare_call
from nnzbench.kernels.vendor.inputs import Inputs, Preparing, dense_operand, to_storage
from nnzbench.kernels.vendor.support import CUDA_TYPE, Output, require_math
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Array, Candidate, Prepared


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
    (m, k), n = a.shape, b.shape[0]
    offsets, indices = preparing.arrays(("pattern",), lambda: (pattern.offsets, pattern.indices))
    left = preparing.array(("a",), lambda: to_storage(a, dtype))
    right = dense_operand(preparing, b, dtype, case.layout == "row")
    output = Values(device, 1, pattern.nnz, dtype)

    def describe(descriptors: Descriptors) -> tuple[int, ...]:
        none, transpose = int(lib.Operation.NON_TRANSPOSE), int(lib.Operation.TRANSPOSE)
        a_ = descriptors.dense(m, k, left.pointer)
        if case.layout == "transposed":
            operation, b_ = transpose, descriptors.dense(n, k, right.pointer)
        else:
            operation, b_ = none, descriptors.dense(k, n, right.pointer, case.layout == "col")
        c = descriptors.csr((m, n, pattern.nnz), (offsets.pointer, indices.pointer, output.array.pointer))
        compute, algorithm = CUDA_TYPE["f32"], int(lib.SDDMMAlg.DEFAULT)
        return (handle.value, none, operation, handle.alpha, a_, b_, handle.beta, c, compute, algorithm)

    def buffer_size(*arguments: int) -> int:
        size = np.zeros(1, np.uint64)
        lib.sddmm_buffer_size(*arguments, size.ctypes.data)
        return int(size[0])

    preprocess = lib.sddmm_preprocess if case.preprocess else None
    routine = Routine(f"cusparse {case.variant}", buffer_size, lib.sddmm, preprocess)
    return prepare_call(device, routine, describe, dtype, output, [offsets, indices, left, right], preparing)
