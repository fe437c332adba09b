"""cuSPARSE: SpMM, SpMV and SDDMM with every algorithm, format and layout that fits, preprocessing included.

SpMM has every algorithm of CSR and COO in both dense layouts (B and C both row-major or both column-major), and block
formats: the baseline for block patterns, pointless on scattered ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernels.registry import TENSOR_CORES, About
from nnzbench.kernels.vendor.cusparse_support import Blocks, Descriptors, open_handle, prepare_call, stored
from nnzbench.kernels.vendor.support import (
    CUDA_TYPE,
    Inputs,
    Output,
    Preparing,
    dense_operand,
    library,
    refusal,
    require_math,
    to_storage,
)
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Array, Candidate, Prepared, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

SPMM_ALGORITHMS = ("DEFAULT", "CSR_ALG1", "CSR_ALG2", "CSR_ALG3", "COO_ALG1", "COO_ALG2", "COO_ALG3", "COO_ALG4")
SPMV_ALGORITHMS = ("DEFAULT", "CSR_ALG1", "CSR_ALG2", "COO_ALG1", "COO_ALG2", "SELL_ALG1")
PREPROCESSED = {"spmm": ("CSR_ALG1", "CSR_ALG3"), "spmv": ("CSR_ALG1", "CSR_ALG2")}
"""Algorithms tried with preprocessing too: of SpMM those that it helps, by cuSPARSE's documentation."""

BLOCK_SIZES = (8, 16, 32)
MOST_OCCUPIED = 0.9
"""Share of occupied blocks above which a block format is a dense product in disguise."""


@dataclass(frozen=True)
class Case:
    """One algorithm (its name in cuSPARSE), layout of the dense operands and use of preprocessing."""

    variant: str
    algorithm: str
    layout: str = "row"
    """`row` or `col`, of both B and C. Of SDDMM's (n, k) operand `transposed`, which is row-major with the transpose
    operation; `col`, the same memory as a column-major (k, n); or `row`, rearranged ahead of time to (k, n) row-major.
    """
    preprocess: bool = False
    blocks: Blocks | None = None
    """Those of the matrix, of a block format."""

    def math(self, dtype: str) -> str:
        """Blocked-ELL runs on tensor cores, with fp32 operands in TF32."""
        return "tf32" if self.algorithm == "BLOCKED_ELL_ALG1" and dtype == "f32" else dtype


def product_cases(op: str) -> list[Case]:
    """Every algorithm, of `spmm` in both layouts, and again with preprocessing where that means something.

    Variants are such as `csr_alg1_col_preprocess` and `spmv_coo_alg2`; the library's own choice is `csr_default_row`.
    """
    cases = []
    for algorithm in SPMM_ALGORITHMS if op == "spmm" else SPMV_ALGORITHMS:
        name = "csr_default" if algorithm == "DEFAULT" else algorithm.lower()
        for layout in ("row", "col") if op == "spmm" else ("",):
            variant = f"{name}_{layout}" if layout else f"spmv_{name}"
            cases.append(Case(variant, algorithm, layout))
            if algorithm in PREPROCESSED[op]:
                cases.append(Case(f"{variant}_preprocess", algorithm, layout, True))
    return cases


def block_cases(matrix: CSR) -> list[Case]:
    """Variants such as `bsr16_row` and `bell32_col`. Raises `Unsupported` with the one reason against block formats."""
    sizes = [size for size in BLOCK_SIZES if matrix.m % size == 0 and matrix.k % size == 0]
    if not sizes:
        raise Unsupported("m and k are no multiples of 8, 16 or 32")
    blocks = [Blocks.of(matrix, size) for size in sizes]
    least = min(one.occupied for one in blocks)
    if least > MOST_OCCUPIED:
        raise Unsupported(f"at least {100 * least:.0f} % of the blocks of 8, 16 or 32 hold a nonzero")
    return [
        Case(f"{name}{one.size}_{layout}", algorithm, layout, blocks=one)
        for one in blocks
        if one.occupied <= MOST_OCCUPIED
        for name, algorithm in (("bsr", "BSR_ALG1"), ("bell", "BLOCKED_ELL_ALG1"))
        for layout in ("row", "col")
    ]


def prepare_spmm(inputs: Inputs, case: Case, matrix: CSR, b: Array, dtype: str) -> Prepared:
    """C (m, n) = A (m, k, sparse) B (k, n). Raises `Unsupported` without cuSPARSE or where it refuses."""
    device, n, shape = inputs.device, b.shape[1], (matrix.m, matrix.k, matrix.nnz)
    require_math(device, case.math(dtype))
    preparing = Preparing(inputs)
    handle = open_handle(device)
    lib, turned = handle.cusparse, case.layout == "col"
    parts = stored(preparing, matrix, case.algorithm, dtype, case.blocks)
    dense = dense_operand(preparing, b, dtype, turned)
    output = Output(device, (matrix.m, n), dtype, 0 if turned else 1)

    def describe(descriptors: Descriptors, parts: Sequence[DeviceArray]) -> tuple[int, ...]:
        none = int(lib.Operation.NON_TRANSPOSE)
        a = descriptors.sparse(case.algorithm, shape, parts, case.blocks)
        b_ = descriptors.dense(matrix.k, n, dense.pointer, turned)
        c = descriptors.dense(matrix.m, n, output.array.pointer, turned)
        algorithm = int(getattr(lib.SpMMAlg, case.algorithm))
        return (handle.value, none, none, handle.alpha, a, b_, handle.beta, c, CUDA_TYPE["f32"], algorithm)

    how = ("sp_mm", case.variant, case.preprocess)
    return prepare_call(handle, *how, describe, dtype, output, parts, [dense], preparing)


def prepare_spmv(inputs: Inputs, case: Case, matrix: CSR, b: Array, dtype: str) -> Prepared:
    """y (m, 1) = A (m, k, sparse) x (k, 1). Raises `Unsupported` without cuSPARSE or where it refuses."""
    device = inputs.device
    require_math(device, dtype)
    preparing = Preparing(inputs)
    handle = open_handle(device)
    lib = handle.cusparse
    parts = stored(preparing, matrix, case.algorithm, dtype)
    x = dense_operand(preparing, b, dtype)
    output = Output(device, (matrix.m, 1), dtype)

    def describe(descriptors: Descriptors, parts: Sequence[DeviceArray]) -> tuple[int, ...]:
        a = descriptors.sparse(case.algorithm, (matrix.m, matrix.k, matrix.nnz), parts)
        x_ = descriptors.vector(matrix.k, x.pointer)
        y = descriptors.vector(matrix.m, output.array.pointer)
        none, algorithm = int(lib.Operation.NON_TRANSPOSE), int(getattr(lib.SpMVAlg, case.algorithm))
        return (handle.value, none, handle.alpha, a, x_, handle.beta, y, CUDA_TYPE["f32"], algorithm)

    how = ("sp_mv", case.variant, case.preprocess)
    return prepare_call(handle, *how, describe, dtype, output, parts, [x], preparing)


def sddmm_cases() -> list[Case]:
    """cuSPARSE's one algorithm over each layout without and with preprocessing; such as `sddmm_default_col`."""
    return [
        Case(f"sddmm_{'preprocess' if again else 'default'}_{layout}", "DEFAULT", layout, again)
        for layout in ("transposed", "col", "row")
        for again in (False, True)
    ]


def prepare_sddmm(inputs: Inputs, case: Case, pattern: CSR, a: Array, b: Array, dtype: str) -> Prepared:
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
    output = Output(device, (nnz,), dtype)

    def describe(descriptors: Descriptors, pattern: Sequence[DeviceArray]) -> tuple[int, ...]:
        none, transpose = int(lib.Operation.NON_TRANSPOSE), int(lib.Operation.TRANSPOSE)
        a_ = descriptors.dense(m, k, left.pointer)
        if case.layout == "transposed":
            operation, b_ = transpose, descriptors.dense(n, k, right.pointer)
        else:
            operation, b_ = none, descriptors.dense(k, n, right.pointer, case.layout == "col")
        c = descriptors.sparse("CSR", (m, n, nnz), (*pattern, output.array))
        compute, algorithm = CUDA_TYPE["f32"], int(lib.SDDMMAlg.DEFAULT)
        return (handle.value, none, operation, handle.alpha, a_, b_, handle.beta, c, compute, algorithm)

    how = ("sddmm", case.variant, case.preprocess)
    return prepare_call(handle, *how, describe, dtype, output, structure, [left, right], preparing)


@library(
    "NVIDIA cuSPARSE",
    "spmm spmv sddmm",
    "f32 f16 bf16",
    About("library", "cuSPARSE", maths=TENSOR_CORES, reference=True, searched=True, rank=200),
)
def cusparse(problem: Problem, operands: Operands, gpu: GpuDevice) -> Iterator[Candidate]:
    """The generic API of cuSPARSE: one candidate per algorithm, format, layout and preprocessing.

    Of `spmm` the block formats too, or the one reason against them.
    """
    inputs, matrix, dense, dtype = Inputs(gpu), operands.sparse, operands.dense, problem.dtype
    if problem.op == "sddmm":
        for case in sddmm_cases():
            prepare = partial(prepare_sddmm, inputs, case, matrix, dense["a"], dense["b"], dtype)
            yield Candidate(case.variant, dtype, prepare)
        return
    make = prepare_spmm if problem.op == "spmm" else prepare_spmv
    for case in product_cases(problem.op):
        yield Candidate(case.variant, dtype, partial(make, inputs, case, matrix, dense["b"], dtype))
    if problem.op == "spmm":
        try:
            blocks = block_cases(matrix)
        except Unsupported as reason:
            yield refusal("blocks", dtype, str(reason))
            return
        for case in blocks:
            math = case.math(dtype)
            variant = case.variant if math == dtype else f"{math}_{case.variant}"
            yield Candidate(variant, math, partial(prepare_spmm, inputs, case, matrix, dense["b"], dtype))
