"""cuSPARSE SpMM: every algorithm of CSR and COO in both dense layouts, with and without preprocessing, and blocks.

B and C are both row-major or both column-major. The block formats hold the matrix as the blocks that have a nonzero,
zeros inside them stored and multiplied: the baseline for block patterns, pointless on scattered ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernel import Array, Candidate, Prepared, Unsupported
from nnzbench.kernels.vendor_cusparse_support import Descriptors, Routine, open_handle, prepare_call, row_indices
from nnzbench.kernels.vendor_support import CUDA_TYPE, Output, refusal, require_math, to_storage
from nnzbench.matrices.formats import CSR

CSR_ALGORITHMS = ("DEFAULT", "CSR_ALG1", "CSR_ALG2", "CSR_ALG3")
COO_ALGORITHMS = ("COO_ALG1", "COO_ALG2", "COO_ALG3", "COO_ALG4")
PREPROCESSED = ("CSR_ALG1", "CSR_ALG3")
"""Algorithms that preprocessing helps, by cuSPARSE's documentation; it does nothing for the others."""

BLOCK_SIZES = (8, 16, 32)
MOST_OCCUPIED = 0.9
"""Share of occupied blocks above which a block format is a dense product in disguise."""


@dataclass(frozen=True)
class SpmmCase:
    """One algorithm (its name in cuSPARSE), layout and use of preprocessing."""

    algorithm: str
    column_major: bool
    preprocess: bool = False

    @property
    def variant(self) -> str:
        """Such as `csr_alg2_row` or `csr_alg1_col_preprocess`; the library's own choice is `csr_default_row`."""
        name = "csr_default" if self.algorithm == "DEFAULT" else self.algorithm.lower()
        return f"{name}_{'col' if self.column_major else 'row'}{'_preprocess' if self.preprocess else ''}"


@dataclass(frozen=True)
class BlockCase(SpmmCase):
    """A block format: `BSR_ALG1` or `BLOCKED_ELL_ALG1`, with square blocks of `size`."""

    size: int = 16

    @property
    def math(self) -> str:
        """Blocked-ELL runs on tensor cores, with fp32 operands in TF32."""
        return "tf32" if self.algorithm == "BLOCKED_ELL_ALG1" else "f32"

    @property
    def variant(self) -> str:
        """Such as `bsr16_row` or `tf32_bell32_col` (for fp32 operands)."""
        return f"{'bsr' if self.algorithm == 'BSR_ALG1' else 'bell'}{self.size}_{'col' if self.column_major else 'row'}"


def spmm_cases() -> list[SpmmCase]:
    """Every algorithm in both layouts, and again with preprocessing where that means something."""
    return [
        SpmmCase(algorithm, column_major, preprocess)
        for algorithm in CSR_ALGORITHMS + COO_ALGORITHMS
        for column_major in (False, True)
        for preprocess in ((False, True) if algorithm in PREPROCESSED else (False,))
    ]


def spmm_candidates(device: GpuDevice, matrix: CSR, b: Array, dtype: str) -> Iterator[Candidate]:
    """One per algorithm, layout and preprocessing, then the block formats or the one reason against them."""
    for case in spmm_cases():

        def prepare(case: SpmmCase = case) -> Prepared:
            return prepare_spmm(device, case, matrix, b, dtype)

        yield Candidate(case.variant, dtype, prepare)
    sizes = [size for size in BLOCK_SIZES if matrix.m % size == 0 and matrix.k % size == 0]
    blocks = [Blocks.of(matrix, size) for size in sizes]
    useful = [one for one in blocks if one.occupied <= MOST_OCCUPIED]
    if not useful:
        least = min((one.occupied for one in blocks), default=None)
        sizes_text = "8, 16 or 32"
        yield refusal(
            "blocks",
            dtype,
            f"m and k are no multiples of {sizes_text}"
            if least is None
            else f"at least {100 * least:.0f} % of the blocks of {sizes_text} hold a nonzero",
        )
    for one in useful:
        for algorithm in ("BSR_ALG1", "BLOCKED_ELL_ALG1"):
            for column_major in (False, True):
                block_case = BlockCase(algorithm, column_major, size=one.size)
                math = block_case.math if dtype == "f32" else dtype
                variant = block_case.variant if math == dtype else f"{math}_{block_case.variant}"

                def prepare_blocks(case: BlockCase = block_case, blocks: Blocks = one, math: str = math) -> Prepared:
                    require_math(device, math)
                    return prepare_spmm(device, case, matrix, b, dtype, blocks)

                yield Candidate(variant, math, prepare_blocks)


@dataclass(frozen=True)
class Blocks:
    """The square blocks of a matrix that hold a nonzero, in row-major order of blocks."""

    size: int
    rows: int
    """Block rows of the matrix."""
    columns: int
    """Block columns of the matrix."""
    ids: NDArray[np.int64]
    """Block row * `columns` + block column, ascending."""
    where: NDArray[np.int64]
    """For each nonzero, its block's place in `ids`."""

    @staticmethod
    def of(matrix: CSR, size: int) -> Blocks:
        """The blocks of a matrix whose m and k are multiples of `size`."""
        columns = matrix.k // size
        block = row_indices(matrix).astype(np.int64) // size * columns + matrix.indices // size
        ids, where = np.unique(block, return_inverse=True)
        return Blocks(size, matrix.m // size, columns, ids, where)

    @property
    def occupied(self) -> float:
        """Share of all blocks that hold a nonzero."""
        return self.ids.size / (self.rows * self.columns)

    def bsr(self, matrix: CSR) -> tuple[Array, Array, Array]:
        """Block row offsets, block columns, and values (blocks, size, size)."""
        offsets = np.searchsorted(self.ids, np.arange(self.rows + 1) * self.columns).astype(np.int32)
        values = np.zeros((self.ids.size, self.size, self.size), matrix.values.dtype)
        values[self.where, row_indices(matrix) % self.size, matrix.indices % self.size] = matrix.values
        return offsets, (self.ids % self.columns).astype(np.int32), values

    def blocked_ell(self, matrix: CSR) -> tuple[Array, Array]:
        """Block columns (block rows, width), -1 where a row has fewer blocks, and values (m, width * size)."""
        block_rows = self.ids // self.columns
        slots = np.arange(self.ids.size) - np.searchsorted(self.ids, block_rows * self.columns)
        width = int(slots.max()) + 1 if slots.size else 1
        columns = np.full((self.rows, width), -1, np.int32)
        columns[block_rows, slots] = self.ids % self.columns
        values = np.zeros((matrix.m, width * self.size), matrix.values.dtype)
        place = slots[self.where] * self.size + matrix.indices % self.size
        values[row_indices(matrix), place] = matrix.values
        return columns, values


def prepare_spmm(
    device: GpuDevice, case: SpmmCase, matrix: CSR, b: Array, dtype: str, blocks: Blocks | None = None
) -> Prepared:
    """C (m, n) = A (m, k, sparse) B (k, n). Raises `Unsupported` without cuSPARSE or where it refuses, `LaunchError`.

    `blocks` are those of the matrix, for a `BlockCase`.
    """
    require_math(device, dtype)
    started = time.perf_counter()
    handle = open_handle(device)
    lib, n = handle.cusparse, b.shape[1]
    parts = [device.upload(part) for part in _arrays(case, matrix, dtype, blocks)]
    dense = device.upload(to_storage(b.T if case.column_major else b, dtype))
    output = Output(device, matrix.m, n, dtype, case.column_major)

    def describe(descriptors: Descriptors) -> tuple[int, ...]:
        none = int(lib.Operation.NON_TRANSPOSE)
        a = _descriptor(descriptors, case, matrix, parts, blocks)
        b_ = descriptors.dense(matrix.k, n, dense.pointer, case.column_major)
        c = descriptors.dense(matrix.m, n, output.array.pointer, case.column_major)
        algorithm = int(getattr(lib.SpMMAlg, case.algorithm))
        return (handle.value, none, none, handle.alpha, a, b_, handle.beta, c, CUDA_TYPE["f32"], algorithm)

    preprocess = lib.sp_mm_preprocess if case.preprocess else None
    routine = Routine(f"cusparse {case.variant}", lib.sp_mm_buffer_size, lib.sp_mm, preprocess)
    return prepare_call(device, routine, describe, dtype, output, [*parts, dense], started)


def _arrays(case: SpmmCase, matrix: CSR, dtype: str, blocks: Blocks | None) -> tuple[Any, ...]:
    """The sparse operand as it lies in memory, values last."""
    if blocks is None:
        structure = row_indices(matrix) if case.algorithm.startswith("COO") else matrix.offsets
        return structure, matrix.indices, to_storage(matrix.values, dtype)
    *structure, values = blocks.bsr(matrix) if case.algorithm == "BSR_ALG1" else blocks.blocked_ell(matrix)
    return *structure, to_storage(values, dtype)


def _descriptor(
    descriptors: Descriptors, case: SpmmCase, matrix: CSR, parts: list[DeviceArray], blocks: Blocks | None
) -> int:
    first, *others = (part.pointer for part in parts)
    shape = (matrix.m, matrix.k, matrix.nnz)
    if blocks is None:
        make = descriptors.coo if case.algorithm.startswith("COO") else descriptors.csr
        return make(shape, (first, others[0], others[1]))
    if case.algorithm == "BSR_ALG1":
        grid = (blocks.rows, blocks.columns, blocks.ids.size)
        return descriptors.bsr(grid, blocks.size, (first, others[0], others[1]))
    if case.algorithm == "BLOCKED_ELL_ALG1":
        return descriptors.blocked_ell(shape[:2], blocks.size, parts[1].shape[1], (first, others[0]))
    raise Unsupported(f"cusparse {case.algorithm} is no block format")
