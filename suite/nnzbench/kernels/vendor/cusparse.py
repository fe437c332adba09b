"""cuSPARSE: SpMM, SpMV and SDDMM with every algorithm, format and layout that fits, preprocessing included.

SpMM has every algorithm of CSR and COO in both dense layouts (B and C both row-major or both column-major), and block
formats, which hold the matrix as the blocks that have a nonzero, zeros inside them stored and multiplied: the baseline
for block patterns, pointless on scattered ones.

The life of one call: describe, size the workspace, preprocess, run. Conversion, workspace and preprocessing are untimed
and counted in `prepare_ms`. Accumulation is fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import scipy  # its parts are loaded when they are first used

from nnzbench.core.plan import Array, Candidate, Prepared, Unsupported
from nnzbench.data.matrices.formats import CSR, prefix_sums, ranks
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernels.registry import TENSOR_CORES, About
from nnzbench.kernels.vendor import support
from nnzbench.kernels.vendor.support import CUDA_TYPE, Closable, Inputs, Output, Preparing, to_storage

T = TypeVar("T")

REFUSES_F16 = (
    "the cuSPARSE of CUDA 13.1 and 13.2 refuses 16-bit SpMM with fp32 sums: take that of CUDA 12.9, 13.0 or 13.3"
)
"""Told beside a refusal of 16-bit operands. Seen by the authors of CUDA.jl (JuliaGPU/CUDA.jl, pull request 3253)."""


class CusparseHandle(support.Handle):
    """A cuSPARSE handle on the device's stream, with the scalars of every product: alpha is 1, beta is 0."""

    library = "cusparse"

    def __init__(self, device: GpuDevice) -> None:
        super().__init__(device)
        self.lib.set_stream(self.value, device.backend.stream)
        self._scalars = np.array([1.0, 0.0], np.float32)  # read by the host at each call
        self.alpha = self._scalars.ctypes.data
        self.beta = self.alpha + self._scalars.itemsize

    def refusing(self, what: str, dtype: str, call: Callable[[], T]) -> T:
        """As `support.refusing`; where 16-bit operands are refused, with the version and what is known of that."""
        try:
            return support.refusing(f"cusparse {what}", call)
        except Unsupported as refused:
            if dtype == "f32" or "NOT_SUPPORTED" not in str(refused):
                raise
            raise Unsupported(f"{refused} ({self.version()}; {REFUSES_F16})") from None

    def version(self) -> str:
        """Of the library, in words; what it does may depend on it."""
        try:
            return "cuSPARSE " + ".".join(str(self.lib.get_property(part)) for part in range(3))
        except Exception:  # a version that can't be told must not hide what it is told for
            return "cuSPARSE of unknown version"


class Descriptors(ExitStack):
    """The matrix and vector descriptors of one product, destroyed last first; 32-bit zero-based indices."""

    def __init__(self, cusparse: Any, kind: int) -> None:
        super().__init__()
        self._lib, self._kind = cusparse, kind
        self._index, self._base = int(cusparse.IndexType.INDEX_32I), int(cusparse.IndexBase.ZERO)

    def _kept(self, descriptor: int, destroy: Callable[[int], None]) -> int:
        self.callback(destroy, descriptor)
        return descriptor

    def sparse(
        self,
        algorithm: str,
        shape: tuple[int, int, int],
        parts: Sequence[DeviceArray],
        size: int = 0,
    ) -> int:
        """Rows, columns and nonzeros in the format of an algorithm (its name in cuSPARSE), as `stored` gives them."""
        lib, index, end = self._lib, self._index, (self._base, self._kind)
        pointers = [part.pointer for part in parts]
        if algorithm.startswith("SELL"):
            made = lib.create_sliced_ell(*shape, parts[2].shape[0], SLICE, *pointers, index, index, *end)
        elif algorithm.startswith("COO"):
            made = lib.create_coo(*shape, *pointers, index, *end)
        elif not size:
            made = lib.create_csr(*shape, *pointers, index, index, *end)
        elif algorithm == "BSR_ALG1":
            grid = (shape[0] // size, shape[1] // size, parts[1].shape[0], size, size)
            made = lib.create_bsr(*grid, *pointers, index, index, *end, int(lib.Order.ROW))
        else:
            made = lib.create_blocked_ell(*shape[:2], size, parts[1].shape[1], *pointers, index, *end)
        return self._kept(made, lib.destroy_sp_mat)

    def dense(self, rows: int, columns: int, pointer: int, column_major: bool = False) -> int:
        """A dense matrix without padding."""
        lib = self._lib
        order = lib.Order.COL if column_major else lib.Order.ROW
        leading = max(1, rows if column_major else columns)
        made = lib.create_dn_mat(rows, columns, leading, pointer, self._kind, int(order))
        return self._kept(made, lib.destroy_dn_mat)

    def vector(self, size: int, pointer: int) -> int:
        """A dense vector."""
        return self._kept(self._lib.create_dn_vec(size, pointer, self._kind), self._lib.destroy_dn_vec)


SLICE = 32
"""Rows per slice of sliced ELL: one warp's."""


def sliced_ell(matrix: CSR) -> tuple[Array, Array, Array]:
    """Slice offsets, columns and values: each slice as wide as its longest row, column-major, padded with -1 and 0."""
    slices = -(-matrix.m // SLICE)
    lengths = np.pad(matrix.row_lengths, (0, slices * SLICE - matrix.m))
    offsets = prefix_sums(lengths.reshape(slices, SLICE).max(axis=1) * SLICE)
    columns = np.full(int(offsets[-1]), -1, np.int32)
    values = np.zeros(int(offsets[-1]), matrix.values.dtype)
    for first, at, end in zip(range(0, matrix.m, SLICE), offsets[:-1], offsets[1:], strict=True):
        held = slice(matrix.offsets[first], matrix.offsets[min(first + SLICE, matrix.m)])
        # (place in the row, row) as stored; its transpose, masked, has the nonzeros in the order of CSR
        filled = np.arange((end - at) // SLICE) < lengths[first : first + SLICE, None]
        columns[at:end].reshape(-1, SLICE).T[filled] = matrix.indices[held]
        values[at:end].reshape(-1, SLICE).T[filled] = matrix.values[held]
    return offsets.astype(np.int32), columns, values


def occupied(matrix: CSR, size: int) -> float:
    """Share of the blocks of `size` x `size`, which divides m and k, that hold a nonzero."""
    held = np.zeros((matrix.m // size, matrix.k // size), bool)
    held[matrix.rows // size, matrix.indices // size] = True
    return float(held.mean())


def block_rows(matrix: CSR, size: int) -> tuple[Array, Array, Array]:
    """Block row offsets, block columns, and values (blocks, size, size)."""
    bits = np.ascontiguousarray(matrix.values).view(f"u{matrix.values.itemsize}")  # SciPy knows no half precision
    shape = (matrix.m, matrix.k)
    found = scipy.sparse.csr_array((bits, matrix.indices, matrix.offsets), shape=shape).tobsr((size, size))
    found.sort_indices()
    return found.indptr, found.indices, found.data.view(matrix.values.dtype)


def blocked_ell(matrix: CSR, size: int) -> tuple[Array, Array]:
    """Block columns (block rows, width), -1 where a row has fewer blocks, and values (m, width * size)."""
    offsets, columns, blocks = block_rows(matrix, size)
    counts = np.diff(offsets)
    at = np.repeat(np.arange(counts.size), counts), ranks(counts)
    places = np.full((counts.size, max(1, counts.max())), -1, np.int32)
    places[at] = columns
    values = np.zeros((*places.shape, size, size), blocks.dtype)
    values[at] = blocks
    return places, np.ascontiguousarray(values.swapaxes(1, 2)).reshape(matrix.m, -1)


def stored(preparing: Preparing, matrix: CSR, algorithm: str, dtype: str, size: int = 0) -> tuple[DeviceArray, ...]:
    """The matrix in device memory in the format of an algorithm (its name in cuSPARSE), values last.

    `size` is that of blocks, for `BSR_ALG1` and `BLOCKED_ELL_ALG1`.
    """
    if size or algorithm.startswith("SELL"):

        def make() -> tuple[Array, ...]:
            blocks = block_rows if algorithm == "BSR_ALG1" else blocked_ell
            *structure, values = blocks(matrix, size) if size else sliced_ell(matrix)
            return *structure, to_storage(values, dtype)

        return preparing.arrays((algorithm, size), make)
    if algorithm.startswith("COO"):
        first = preparing.array(("rows",), lambda: matrix.rows.astype(np.int32))
    else:
        first = preparing.array(("offsets",), lambda: matrix.offsets)
    return first, *preparing.arrays(("nonzeros",), lambda: (matrix.indices, to_storage(matrix.values, dtype)))


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
class CusparseCase:
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


def product_cases(op: str) -> list[CusparseCase]:
    """Every algorithm, of `spmm` in both layouts, and again with preprocessing where that means something.

    Variants are such as `csr_alg1_col_preprocess` and `spmv_coo_alg2`; the library's own choice is `csr_default_row`.
    """
    cases = []
    for algorithm in SPMM_ALGORITHMS if op == "spmm" else SPMV_ALGORITHMS:
        name = "csr_default" if algorithm == "DEFAULT" else algorithm.lower()
        for layout in ("row", "col") if op == "spmm" else ("",):
            variant = f"{name}_{layout}" if layout else f"spmv_{name}"
            cases.append(CusparseCase(variant, algorithm, layout))
            if algorithm in PREPROCESSED[op]:
                cases.append(CusparseCase(f"{variant}_preprocess", algorithm, layout, True))
    return cases


def block_cases(matrix: CSR) -> list[CusparseCase]:
    """Variants such as `bsr16_row` and `bell32_col`. Raises `Unsupported` with the one reason against block formats."""
    sizes = [size for size in BLOCK_SIZES if matrix.m % size == 0 and matrix.k % size == 0]
    if not sizes:
        raise Unsupported("m and k are no multiples of 8, 16 or 32")
    shares = {size: occupied(matrix, size) for size in sizes}
    if min(shares.values()) > MOST_OCCUPIED:
        raise Unsupported(f"at least {100 * min(shares.values()):.0f} % of the blocks of 8, 16 or 32 hold a nonzero")
    return [
        CusparseCase(f"{name}{size}_{layout}", algorithm, layout, size=size)
        for size, share in shares.items()
        if share <= MOST_OCCUPIED
        for name, algorithm in (("bsr", "BSR_ALG1"), ("bell", "BLOCKED_ELL_ALG1"))
        for layout in ("row", "col")
    ]


def sddmm_cases() -> list[CusparseCase]:
    """cuSPARSE's one algorithm over each layout without and with preprocessing; such as `sddmm_default_col`."""
    return [
        CusparseCase(f"sddmm_{'preprocess' if again else 'default'}_{layout}", "DEFAULT", layout, again)
        for layout in ("transposed", "col", "row")
        for again in (False, True)
    ]


def prepare(inputs: Inputs, case: CusparseCase, problem: Problem, operands: Operands) -> Prepared:
    """One case of C (m, n) = A (m, k) B (k, n) or y = A x with A sparse, or of the values (nnz,) of A B^T at a pattern.

    Raises `Unsupported` without cuSPARSE or where it refuses.
    """
    op, dtype, matrix, b = problem.op, problem.dtype, operands.sparse, operands.dense["b"]
    preparing, held = Preparing(inputs, case.math(dtype)), list[Closable]()
    handle = CusparseHandle.of(inputs.device)
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
    execute, call = getattr(lib, routine), partial(handle.refusing, case.variant, dtype)

    def buffer_size(arguments: tuple[int, ...]) -> int:
        ask = getattr(lib, f"{routine}_buffer_size")
        if op != "sddmm":
            return int(ask(*arguments))
        size = np.zeros(1, np.uint64)
        ask(*arguments, size.ctypes.data)
        return int(size[0])

    def over(arrays: Sequence[DeviceArray]) -> Callable[[], None]:
        descriptors = Descriptors(lib, CUDA_TYPE[dtype])
        try:
            operations, first, second, result = call(lambda: terms(descriptors, arrays))
            how = CUDA_TYPE["f32"], int(getattr(getattr(lib, algorithms), case.algorithm))
            arguments = (handle.value, *operations, handle.alpha, first, second, handle.beta, result, *how)
            workspace = inputs.device.empty((max(1, call(lambda: buffer_size(arguments))),), np.uint8)
            if case.preprocess:
                call(lambda: getattr(lib, f"{routine}_preprocess")(*arguments, workspace.pointer))
        except BaseException:
            descriptors.close()
            raise
        held.extend((descriptors, workspace))

        def run(keep: Any = (handle, arrays, others, workspace, output)) -> None:
            call(lambda: execute(*arguments, workspace.pointer))

        return run

    return support.finish(preparing, over(weights), output, held, weights, over)


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

    def candidate(case: CusparseCase) -> Candidate:
        math = case.math(dtype)
        variant = case.variant if math == dtype else f"{math}_{case.variant}"
        return Candidate(variant, math, partial(prepare, inputs, case, problem, operands))

    yield from map(candidate, sddmm_cases() if op == "sddmm" else product_cases(op))
    if op == "spmm":
        try:
            yield from map(candidate, block_cases(operands.sparse))
        except Unsupported as reason:
            yield support.refusal("blocks", dtype, str(reason))
