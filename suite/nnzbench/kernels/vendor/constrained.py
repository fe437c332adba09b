"""cuSPARSE's constrained product, which CUDA 12 took out: A B^T at a pattern, B transposed by cuBLAS in each launch.

Sputnik's authors compare with it so, all dense matrices column-major. CUDA 11.8 has it in `libcusparse.so.11`, which
stands beside any newer one (package `nvidia-cusparse-cu11`).
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

from nnzbench.core.plan import Candidate, Prepared
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernels.registry import About
from nnzbench.kernels.vendor import support
from nnzbench.kernels.vendor.cublas import CublasHandle
from nnzbench.kernels.vendor.cusparse import CusparseHandle, Descriptors
from nnzbench.kernels.vendor.support import CUDA_TYPE, Closable, Inputs, Output, Preparing, swapped

FILE = "libcusparse.so.11"


class cuSPARSEError(RuntimeError):  # noqa: N801 - as nvmath's bindings name it
    """A status other than success."""


class Bindings:
    """What is called of the library, by the names and arguments of nvmath's bindings."""

    Order = IntEnum("Order", {"COL": 1, "ROW": 2})
    IndexType = IntEnum("IndexType", {"INDEX_32I": 2})
    IndexBase = IntEnum("IndexBase", {"ZERO": 0})
    Operation = IntEnum("Operation", {"NON_TRANSPOSE": 0, "TRANSPOSE": 1})

    def __init__(self) -> None:
        self._lib = ctypes.CDLL(_found())
        self._lib.cusparseGetErrorName.restype = ctypes.c_char_p

    def _call(self, name: str, *arguments: int | ctypes.c_void_p) -> None:
        wide = [one if isinstance(one, ctypes.c_void_p) else ctypes.c_int64(one) for one in arguments]
        if status := getattr(self._lib, name)(*wide):
            raise cuSPARSEError(f"{self._lib.cusparseGetErrorName(status).decode()} ({status})")

    def _made(self, name: str, *arguments: int) -> int:
        made = ctypes.c_void_p()
        self._call(name, ctypes.c_void_p(ctypes.addressof(made)), *arguments)
        return made.value or 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """`create_dn_mat` is `cusparseCreateDnMat`, say; what creates returns what it made."""
        call = self._made if name.startswith("create") else self._call
        return partial(call, "cusparse" + name.title().replace("_", ""))

    def constrained_gemm_buffer_size(self, *arguments: int) -> int:
        size = ctypes.c_size_t()
        self._call("cusparseConstrainedGeMM_bufferSize", *arguments, ctypes.addressof(size))
        return size.value

    def constrained_gemm(self, *arguments: int) -> None:
        self._call("cusparseConstrainedGeMM", *arguments)


def _found() -> str:
    """The library in its package, else wherever the loader finds it."""
    package = importlib.util.find_spec("nvidia")
    roots = package.submodule_search_locations or () if package else ()
    places = (Path(root) / "cusparse" / "lib" / FILE for root in roots)
    return next((str(place) for place in places if place.is_file()), FILE)


class ConstrainedHandle(CusparseHandle):
    """A handle of the old library."""

    library = "cusparse_of_cuda_11"

    def _load(self) -> Any:
        return Bindings()


def prepare(inputs: Inputs, problem: Problem, operands: Operands) -> Prepared:
    """The values (nnz,) of A (m, n) times the transpose of B (k, n). Raises `Unsupported` without the library."""
    matrix, b = operands.sparse, operands.dense["b"]
    preparing, n = Preparing(inputs), b.shape[1]
    handle, blas = ConstrainedHandle.of(inputs.device), CublasHandle.of(inputs.device)
    lib, none, kind = handle.lib, int(handle.lib.Operation.NON_TRANSPOSE), CUDA_TYPE["f32"]
    weights = preparing.arrays(("pattern",), lambda: (matrix.offsets, matrix.indices))
    left = preparing.array(("a", "columns"), lambda: swapped(operands.dense["a"]))
    right = preparing.dense(b, "f32", turned=True)
    turned = inputs.device.empty((matrix.k, n), "f4")
    output = Output(inputs.device, (matrix.nnz,), "f32")
    held: list[Closable] = [turned]

    def over(arrays: Sequence[DeviceArray]) -> Callable[[], None]:
        of = Descriptors(lib, kind)
        held.append(of)
        first, second = of.dense(matrix.m, n, left.pointer, True), of.dense(n, matrix.k, turned.pointer, True)
        result = of.sparse("CSR", (matrix.m, matrix.k, matrix.nnz), (*arrays, output.array))
        product = (handle.value, none, none, handle.alpha, first, second, handle.beta, result, kind)
        size = support.refusing("the constrained product", lambda: lib.constrained_gemm_buffer_size(*product))
        workspace = inputs.device.empty((max(1, size),), "u1")
        held.append(workspace)

        def run(keep: Any = (handle, blas, arrays, left, right, turned, output, workspace)) -> None:
            turn = (1, none, n, matrix.k, handle.alpha, right.pointer, matrix.k, handle.beta, turned.pointer, n)
            support.refusing("cublas geam", lambda: blas.lib.sgeam(blas.value, *turn, turned.pointer, n))
            support.refusing("the constrained product", lambda: lib.constrained_gemm(*product, workspace.pointer))

        return run

    return support.finish(preparing, over(weights), output, held, weights, over)


@support.library(
    "NVIDIA cuSPARSE of CUDA 11.8",
    "sddmm",
    "f32",
    About("library", "cuSPARSE's constrained product", maths=frozenset({"f32"}), rank=201),
)
def constrained_gemm(problem: Problem, operands: Operands, gpu: GpuDevice) -> Iterator[Candidate]:
    """cuSPARSE's constrained product after a transposition, as Sputnik's authors call it."""
    yield Candidate("transposed", "f32", partial(prepare, Inputs(gpu), problem, operands))
