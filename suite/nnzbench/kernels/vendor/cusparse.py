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
from nnzbench.kernels.vendor import support
from nnzbench.kernels.vendor.cusparse_support import Descriptors, Handle, occupied, prepare_call, stored
from nnzbench.kernels.vendor.storage import CUDA_TYPE, to_storage
from nnzbench.kernels.vendor.support import Inputs, Output, Preparing
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Candidate, Prepared, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

SPMM_ALGORITHMS = ("DEFAULT", "CSR_ALG1", "CSR_ALG2", "CSR_ALG3", "COO_ALG1", "COO_ALG2", "COO_ALG3", "COO_ALG4")
SPMV_ALGORITHMS = ("DEFAULT", "CSR_ALG1", "CSR_ALG2", "COO_ALG1", "COO_ALG2", "SELL_ALG1")
PREPROCESSED = {"spmm": ("CSR_ALG1", "CSR_ALG3"), "spmv": ("CSR_ALG1", "CSR_ALG2")}
"""Algorithms tried with preprocessing too: of SpMM those that it helps, by cuSPARSE's documentation."""

ROUTINES = {"spmm": ("sp_mm", "SpMMAlg"), "spmv": ("sp_mv", "SpMVAlg"), "sddmm": ("sddmm", "SDDMMAlg")}
"""In the bindings, and the enumeration of their algorithms."""
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
    size: int = 0
    """Of the blocks of a block format."""

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
    shares = {size: occupied(matrix, size) for size in sizes}
    if min(shares.values()) > MOST_OCCUPIED:
        raise Unsupported(f"at least {100 * min(shares.values()):.0f} % of the blocks of 8, 16 or 32 hold a nonzero")
    return [
        Case(f"{name}{size}_{layout}", algorithm, layout, size=size)
        for size, share in shares.items()
        if share <= MOST_OCCUPIED
        for name, algorithm in (("bsr", "BSR_ALG1"), ("bell", "BLOCKED_ELL_ALG1"))
        for layout in ("row", "col")
    ]


def sddmm_cases() -> list[Case]:
    """cuSPARSE's one algorithm over each layout without and with preprocessing; such as `sddmm_default_col`."""
    return [
        Case(f"sddmm_{'preprocess' if again else 'default'}_{layout}", "DEFAULT", layout, again)
        for layout in ("transposed", "col", "row")
        for again in (False, True)
    ]


def prepare(inputs: Inputs, case: Case, problem: Problem, operands: Operands) -> Prepared:
    """One case of C (m, n) = A (m, k) B (k, n) or y = A x with A sparse, or of the values (nnz,) of A B^T at a pattern.

    Raises `Unsupported` without cuSPARSE or where it refuses.
    """
    op, dtype, matrix, b = problem.op, problem.dtype, operands.sparse, operands.dense["b"]
    preparing = Preparing(inputs, case.math(dtype))
    handle = Handle.of(inputs.device)
    lib, turned, transposed = handle.lib, case.layout == "col", case.layout == "transposed"
    none, shape, n = int(lib.Operation.NON_TRANSPOSE), (matrix.m, matrix.k, matrix.nnz), b.shape[1]
    if op == "sddmm":
        weights = preparing.arrays(("pattern",), lambda: (matrix.offsets, matrix.indices))
        left = preparing.array(("a",), lambda: to_storage(operands.dense["a"], dtype))
        right = preparing.dense(b, dtype, case.layout == "row")
        output, others = Output(inputs.device, (matrix.nnz,), dtype), [left, right]

        def terms(of: Descriptors, parts: Sequence[DeviceArray]) -> tuple[tuple[int, ...], int, int, int]:
            operations, (rows, columns) = (none, none), (n, matrix.k)
            if transposed:
                operations, (rows, columns) = (none, int(lib.Operation.TRANSPOSE)), (matrix.k, n)
            second = of.dense(rows, columns, right.pointer, turned)
            result = of.sparse("CSR", shape, (*parts, output.array))
            return operations, of.dense(matrix.m, n, left.pointer), second, result

    else:
        weights = stored(preparing, matrix, case.algorithm, dtype, case.size)
        right = preparing.dense(b, dtype, turned)
        output, others = Output(inputs.device, (matrix.m, n), dtype, 0 if turned else 1), [right]

        def terms(of: Descriptors, parts: Sequence[DeviceArray]) -> tuple[tuple[int, ...], int, int, int]:
            a, result = of.sparse(case.algorithm, shape, parts, case.size), output.array.pointer
            if op == "spmv":
                return (none,), a, of.vector(matrix.k, right.pointer), of.vector(matrix.m, result)
            second = of.dense(matrix.k, n, right.pointer, turned)
            return (none, none), a, second, of.dense(matrix.m, n, result, turned)

    routine, algorithms = ROUTINES[op]

    def describe(of: Descriptors, parts: Sequence[DeviceArray]) -> tuple[int, ...]:
        operations, first, second, result = terms(of, parts)
        sums, algorithm = CUDA_TYPE["f32"], int(getattr(getattr(lib, algorithms), case.algorithm))
        return (handle.value, *operations, handle.alpha, first, second, handle.beta, result, sums, algorithm)

    how = (routine, case.variant, case.preprocess)
    return prepare_call(handle, *how, describe, dtype, output, weights, others, preparing)


@support.library(
    "NVIDIA cuSPARSE",
    "spmm spmv sddmm",
    "f32 f16 bf16",
    About("library", "cuSPARSE", maths=TENSOR_CORES, reference=True, searched=True, rank=200),
)
def cusparse(problem: Problem, operands: Operands, gpu: GpuDevice) -> Iterator[Candidate]:
    """The generic API of cuSPARSE: one candidate per algorithm, format, layout and preprocessing.

    Of `spmm` the block formats too, or the one reason against them.
    """
    inputs, op, dtype = Inputs(gpu), problem.op, problem.dtype

    def candidate(case: Case) -> Candidate:
        math = case.math(dtype)
        variant = case.variant if math == dtype else f"{math}_{case.variant}"
        return Candidate(variant, math, partial(prepare, inputs, case, problem, operands))

    yield from map(candidate, sddmm_cases() if op == "sddmm" else product_cases(op))
    if op == "spmm":
        try:
            yield from map(candidate, block_cases(operands.sparse))
        except Unsupported as reason:
            yield support.refusal("blocks", dtype, str(reason))
