"""cuSPARSE SpMM: every algorithm of CSR and COO in both dense layouts, with and without preprocessing, and blocks.

B and C are both row-major or both column-major. The block formats hold the matrix as the blocks that have a nonzero,
zeros inside them stored and multiplied: the baseline for block patterns, pointless on scattered ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernels.vendor.cusparse_support import Descriptors, Routine, csr_parts, open_handle, prepare_call
from nnzbench.kernels.vendor.support import (
    CUDA_TYPE,
    Inputs,
    Output,
    Preparing,
    dense_operand,
    refusal,
    require_math,
    to_storage,
)
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Array, Candidate, Prepared, Unsupported

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
    inputs = Inputs(device)
    for case in spmm_cases():

        def prepare(case: SpmmCase = case) -> Prepared:
            return prepare_spmm(inputs, case, matrix, b, dtype)

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
                    return prepare_spmm(inputs, case, matrix, b, dtype, blocks)

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

    @staticmethod
    def of(matrix: CSR, size: int) -> Blocks:
        """The blocks of a matrix whose m and k are multiples of `size`."""
        held = np.zeros((matrix.m // size, matrix.k // size), bool)
        for row, offset in enumerate(matrix.offsets[:-1:size]):
            held[row, matrix.indices[offset : matrix.offsets[(row + 1) * size]] // size] = True
        return Blocks(size, *held.shape, np.flatnonzero(held))

    @property
    def occupied(self) -> float:
        """Share of all blocks that hold a nonzero."""
        return self.ids.size / (self.rows * self.columns)

    def bsr(self, matrix: CSR) -> tuple[Array, Array, Array]:
        """Block row offsets, block columns, and values (blocks, size, size)."""
        offsets = np.searchsorted(self.ids, np.arange(self.rows + 1) * self.columns).astype(np.int32)
        values = np.zeros((self.ids.size, self.size, self.size), matrix.values.dtype)
        for nonzeros, rows, places in self._by_block_row(matrix):
            first = offsets[rows[0] // self.size]
            values[first + places, rows % self.size, matrix.indices[nonzeros] % self.size] = matrix.values[nonzeros]
        return offsets, (self.ids % self.columns).astype(np.int32), values

    def blocked_ell(self, matrix: CSR) -> tuple[Array, Array]:
        """Block columns (block rows, width), -1 where a row has fewer blocks, and values (m, width * size)."""
        block_rows = self.ids // self.columns
        slots = np.arange(self.ids.size) - np.searchsorted(self.ids, block_rows * self.columns)
        width = int(slots.max()) + 1 if slots.size else 1
        columns = np.full((self.rows, width), -1, np.int32)
        columns[block_rows, slots] = self.ids % self.columns
        values = np.zeros((matrix.m, width * self.size), matrix.values.dtype)
        for nonzeros, rows, places in self._by_block_row(matrix):
            values[rows, places * self.size + matrix.indices[nonzeros] % self.size] = matrix.values[nonzeros]
        return columns, values

    def _by_block_row(self, matrix: CSR) -> Iterator[tuple[slice, Array, Array]]:
        """The nonzeros of each block row that has some, their rows, and their blocks' places in the block row.

        One block row at a time stays in the caches, which is several times as fast as all at once.
        """
        place = np.zeros(self.columns, np.int64)
        starts = np.searchsorted(self.ids, np.arange(self.rows + 1) * self.columns)
        for block_row in np.flatnonzero(np.diff(starts)):
            block_columns = self.ids[starts[block_row] : starts[block_row + 1]] % self.columns
            place[block_columns] = np.arange(block_columns.size)
            offsets = matrix.offsets[block_row * self.size : (block_row + 1) * self.size + 1]
            nonzeros = slice(offsets[0], offsets[-1])
            rows = np.repeat(np.arange(self.size) + block_row * self.size, np.diff(offsets))
            yield nonzeros, rows, place[matrix.indices[nonzeros] // self.size]


def prepare_spmm(
    inputs: Inputs, case: SpmmCase, matrix: CSR, b: Array, dtype: str, blocks: Blocks | None = None
) -> Prepared:
    """C (m, n) = A (m, k, sparse) B (k, n). Raises `Unsupported` without cuSPARSE or where it refuses, `LaunchError`.

    `blocks` are those of the matrix, for a `BlockCase`.
    """
    device = inputs.device
    require_math(device, dtype)
    preparing = Preparing(inputs)
    handle = open_handle(device)
    lib, n = handle.cusparse, b.shape[1]
    parts = _parts(preparing, case, matrix, dtype, blocks)
    dense = dense_operand(preparing, b, dtype, turned=case.column_major)
    output = Output(device, matrix.m, n, dtype, case.column_major)

    def describe(descriptors: Descriptors, parts: Sequence[DeviceArray]) -> tuple[int, ...]:
        none = int(lib.Operation.NON_TRANSPOSE)
        a = _descriptor(descriptors, case, matrix, parts, blocks)
        b_ = descriptors.dense(matrix.k, n, dense.pointer, case.column_major)
        c = descriptors.dense(matrix.m, n, output.array.pointer, case.column_major)
        algorithm = int(getattr(lib.SpMMAlg, case.algorithm))
        return (handle.value, none, none, handle.alpha, a, b_, handle.beta, c, CUDA_TYPE["f32"], algorithm)

    preprocess = lib.sp_mm_preprocess if case.preprocess else None
    routine = Routine(f"cusparse {case.variant}", lib.sp_mm_buffer_size, lib.sp_mm, preprocess)
    return prepare_call(device, routine, describe, dtype, output, parts, [dense], preparing)


def _parts(
    preparing: Preparing, case: SpmmCase, matrix: CSR, dtype: str, blocks: Blocks | None
) -> tuple[DeviceArray, ...]:
    """The sparse operand in device memory, values last."""
    if blocks is None:
        return csr_parts(preparing, matrix, dtype, coordinates=case.algorithm.startswith("COO"))

    def make() -> tuple[Array, ...]:
        *structure, values = blocks.bsr(matrix) if case.algorithm == "BSR_ALG1" else blocks.blocked_ell(matrix)
        return *structure, to_storage(values, dtype)

    return preparing.arrays((case.algorithm, blocks.size), make)


def _descriptor(
    descriptors: Descriptors, case: SpmmCase, matrix: CSR, parts: Sequence[DeviceArray], blocks: Blocks | None
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
