"""cuSPARSELt: a 2:4 sparse matrix on sparse tensor cores (1:2 for fp32 operands, which are rounded to TF32).

The pattern must already be there: this suite prunes beforehand (`matrices.prune.n_of_m`) and asks the library to check
it. Compression and the search for the fastest algorithm are untimed and counted in `prepare_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from nnzbench.core.architectures import architecture
from nnzbench.core.plan import Array, Candidate, Ends, Prepared, Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernels.registry import TENSOR_CORES, About
from nnzbench.kernels.vendor import support
from nnzbench.kernels.vendor.cublas import scalars_of
from nnzbench.kernels.vendor.support import (
    CUDA_TYPE,
    RESULT_TYPE,
    WORKSPACE_BYTES,
    Inputs,
    Output,
    Preparing,
    dense_weights,
)

T = TypeVar("T")

PATTERN = {"f32": (1, 2), "f16": (2, 4), "bf16": (2, 4), "i8": (2, 4), "f8": (2, 4)}
"""Nonzeros allowed in each aligned group of a row, and the size of the group."""
ROWS = 256
"""Whose pattern is looked at together: most matrices that do not fit show it in the first."""
ALIGNMENT = 16
"""Bytes; device memory is aligned to 256."""


@dataclass(frozen=True)
class LtCase:
    """Layout of B, and the library's own choice of algorithm or its search."""

    math: str
    column_major: bool
    search: bool

    @property
    def variant(self) -> str:
        """Such as `f16_rowmajor_default` or `tf32_colmajor_search`."""
        return f"{self.math}_{'col' if self.column_major else 'row'}major_{'search' if self.search else 'default'}"


def lt_cases(dtype: str) -> list[LtCase]:
    """Both layouts, default before search; of FP8 the one that Hopper takes.

    Column-major first for TF32 and INT8: with B as it is, version 0.8 has no INT8 product and its default algorithm for
    TF32 fails (one H200).
    """
    math = "tf32" if dtype == "f32" else dtype
    layouts = (True,) if dtype == "f8" else (True, False) if dtype in ("f32", "i8") else (False, True)
    return [LtCase(math, column_major, search) for column_major in layouts for search in (False, True)]


def require_pattern(matrix: CSR, dtype: str) -> None:
    """Raises `Unsupported` where a group of a row has more nonzeros than sparse tensor cores take."""
    most, group = PATTERN[dtype]
    if matrix.k % group:
        raise Unsupported(f"cusparselt needs a k that is a multiple of {group}, not {matrix.k}")
    # `most` entries further on in the same row lies an entry of another group
    rows = np.arange(matrix.m)
    for first in range(0, matrix.m, ROWS):
        some = rows[first : first + ROWS]
        held = slice(matrix.offsets[first], matrix.offsets[first + some.size])
        groups = np.repeat(some * (matrix.k // group), matrix.row_lengths[some]) + matrix.indices[held] // group
        over = np.flatnonzero(groups[most:] == groups[: groups.size - most])
        if over.size:
            row, place = divmod(int(groups[over[0]]), matrix.k // group)
            raise Unsupported(
                f"cusparselt needs {most}:{group} sparsity for {dtype}: "
                f"in row {row} more of columns {place * group} to {place * group + group - 1} are nonzero"
            )


def library_version() -> str:
    """Such as `0.8.1`. Raises `Unsupported` saying what to install."""
    lt = support.load_bindings("cusparseLt")
    return _loading(lambda: ".".join(str(lt.get_property(part)) for part in range(3)))  # major, minor, patch


def _loading(call: Callable[[], T]) -> T:
    """Makes the call that loads the library. Raises `Unsupported` where it can't be loaded."""
    sentence = f"cusparselt can't be loaded ({{}}): {support.INSTALL_VENDOR}"
    with support.needing(sentence, ImportError, OSError, RuntimeError):
        return support.refusing("cusparselt", call)


class CusparseLtHandle(support.Handle):
    """A cuSPARSELt handle and the stream list."""

    library = "cusparseLt"

    def __init__(self, device: GpuDevice) -> None:
        super().__init__(device)
        self.streams = np.array([device.backend.stream], np.uint64)

    def _create(self) -> Any:
        return _loading(self.lib.init)


class SparseLtProduct(ExitStack):
    """Descriptors and plan of C (m, n) = A (m, k) B (k, n); A and C row-major, B (k, n) or (n, k) row-major."""

    def __init__(self, handle: CusparseLtHandle, case: LtCase, dtype: str, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self._handle, lt, value = handle, handle.lib, handle.value
        m, k, n = shape
        kind = CUDA_TYPE[dtype]
        cusparse = support.load_bindings("cusparse")
        row = int(cusparse.Order.ROW)
        none, transpose = int(cusparse.Operation.NON_TRANSPOSE), int(cusparse.Operation.TRANSPOSE)
        half = int(lt.Sparsity.SPARSITY_50_PERCENT)
        b_rows, b_columns = (n, k) if case.column_major else (k, n)

        def made(what: str, init: Callable[..., int], *arguments: int) -> int:
            descriptor = init(value, *arguments)
            self.callback(getattr(lt, f"{what}_destroy"), descriptor)
            return descriptor

        try:
            a = made("mat_descriptor", lt.structured_descriptor_init, m, k, k, ALIGNMENT, kind, row, half)
            b = made("mat_descriptor", lt.dense_descriptor_init, b_rows, b_columns, b_columns, ALIGNMENT, kind, row)
            c = made("mat_descriptor", lt.dense_descriptor_init, m, n, n, ALIGNMENT, RESULT_TYPE[dtype], row)
            operation = transpose if case.column_major else none
            sums = int(lt.ComputeType.COMPUTE_32I if dtype == "i8" else lt.ComputeType.COMPUTE_32F)
            self.matmul = made("matmul_descriptor", lt.matmul_descriptor_init, none, operation, a, b, c, c, sums)
            default = int(lt.MatmulAlg.DEFAULT)
            algorithm = made("matmul_alg_selection", lt.matmul_alg_selection_init, self.matmul, default)
            self.plan = made("matmul_plan", lt.matmul_plan_init, self.matmul, algorithm)
        except BaseException:
            self.close()
            raise

    def compress(self, device: GpuDevice, dense: DeviceArray) -> DeviceArray:
        """The compressed form of the dense (m, k) matrix. Raises `Unsupported` where it fails the library's check."""
        lt, value, stream = self._handle.lib, self._handle.value, device.backend.stream
        failed = device.upload(np.zeros(1, np.int32))  # the check writes 1 at a fault, and nothing elsewhere
        lt.sp_mma_prune_check(value, self.matmul, dense.pointer, failed.pointer, stream)
        if failed.read()[0] != 0:
            raise Unsupported("the matrix fails cusparselt's own check of its sparsity")
        size, buffer_size = lt.sp_mma_compressed_size(value, self.plan)
        compressed = device.empty((max(1, size),), np.uint8)
        buffer = device.empty((max(1, buffer_size),), np.uint8)
        lt.sp_mma_compress(value, self.plan, dense.pointer, compressed.pointer, buffer.pointer, stream)
        device.synchronise()
        return compressed

    def workspace_bytes(self) -> int:
        """What the plan needs, and never less than what a search may use."""
        return max(WORKSPACE_BYTES, int(self._handle.lib.matmul_get_workspace(self._handle.value, self.plan)))


def _weights(a: CSR, dtype: str) -> tuple[support.Form, Callable[[], Array]]:
    """The form of the weights with their zeros, and what makes them."""
    return (support.WEIGHTS, dtype, False), partial(dense_weights, a, dtype)


def prepare_product(inputs: Inputs, case: LtCase, a: CSR, b: Array, dtype: str) -> Prepared:
    """C (m, n) = A (m, k) B (k, n). Raises `Unsupported` without cuSPARSELt or where it refuses, `LaunchError`."""
    preparing, device, n = Preparing(inputs), inputs.device, b.shape[1]
    handle = CusparseLtHandle.of(device)
    lt, value = handle.lib, handle.value
    what = f"cusparselt {case.variant}"
    product = support.refusing(what, lambda: SparseLtProduct(handle, case, dtype, (a.m, a.k, n)))
    try:
        sparse = preparing.array(*_weights(a, dtype))
        compressed = support.refusing(what, lambda: product.compress(device, sparse))
        dense = preparing.dense(b, dtype, case.column_major)
        output = Output(device, (a.m, n), dtype)
        result, streams = output.array.pointer, handle.streams
        scalars = scalars_of("f8" if dtype == "f8" else "f32")  # fp32 also where the sums are integers
        alpha, beta = scalars.ctypes.data, scalars.ctypes.data + scalars.itemsize
        operands = (alpha, compressed.pointer, dense.pointer, beta, result, result)
        workspace = device.empty((support.refusing(what, product.workspace_bytes),), np.uint8)
        if case.search:
            target = (workspace.pointer, streams.ctypes.data, streams.size)
            support.refusing(what, lambda: lt.matmul_search(value, product.plan, *operands, *target))
            device.synchronise()
            workspace = device.empty((support.refusing(what, product.workspace_bytes),), np.uint8)  # of the one found
    except BaseException:
        product.close()
        raise

    def over(arrays: Sequence[DeviceArray]) -> Callable[[], None]:
        operands = (alpha, arrays[0].pointer, dense.pointer, beta, result, result)
        arguments = (value, product.plan, *operands, workspace.pointer, streams.ctypes.data, streams.size)

        def run(keep: Any = (handle, product, arrays, dense, workspace, output, scalars)) -> None:
            support.refusing(what, lambda: lt.matmul(*arguments))

        return run

    ends = Ends(dense, output.array, case.column_major, False)
    held = (product, compressed, workspace)
    return support.finish(preparing, over([compressed]), output, held, [compressed], over, ends)


@support.library(
    "NVIDIA cuSPARSELt",
    "spmm",
    " ".join(PATTERN),
    About(
        "library",
        "cuSPARSELt",
        maths=TENSOR_CORES - {"f32"} | {"i8", "f8"},
        pattern="2:4",
        rank=210,
        refuses=lambda problem, matrix: require_pattern(matrix, problem.dtype),
        structure_bytes=lambda problem, nnz: nnz // 4,  # two bits a value say which of four it is
    ),
)
def cusparselt(problem: Problem, operands: Operands, gpu: GpuDevice) -> Iterator[Candidate]:
    """cusparseLtMatmul on matrices that are 2:4 sparse already: one per layout, default and search.

    Raises `Unsupported` without sparse tensor cores.
    """
    if not architecture(gpu.arch).has("mma_sparse"):
        raise Unsupported(f"sparse tensor cores start with sm_80, this GPU is {gpu.arch}")
    support.require_math(gpu, problem.dtype)
    require_pattern(operands.sparse, problem.dtype)
    a, b = operands.sparse, operands.dense["b"]
    inputs = Inputs(gpu, a)
    ready = partial(inputs.ahead, *_weights(a, problem.dtype))
    for case in lt_cases(problem.dtype):
        prepare = partial(prepare_product, inputs, case, a, b, problem.dtype)
        yield Candidate(case.variant, case.math, prepare, ready=ready)
