"""cuBLASLt: the dense product with every algorithm its heuristic proposes, in place of cuBLAS's single choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnzbench.devices import Device
from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import TENSOR_CORES, About
from nnzbench.kernels.vendor.cublas import MODES, UNPRUNED, GemmCase, compute_type, gemm_cases, scalars_of
from nnzbench.kernels.vendor.support import (
    CUDA_TYPE,
    RESULT_TYPE,
    WORKSPACE_BYTES,
    Inputs,
    Output,
    Preparing,
    dense_operand,
    finish,
    load_bindings,
    open_library,
    refusal,
    refusing,
    require_gpu,
    require_math,
)
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Array, Candidate, Ends, Prepared, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

ALGORITHMS = 8
"""Most heuristic results tried per math mode and layout, best guess first: later ones have not been seen to win."""
FURTHER = 3
"""Of layouts other than the problem's own of B and C, which are many."""


class Handle:
    """A cuBLASLt handle and the workspace its products share."""

    def __init__(self, device: GpuDevice) -> None:
        self.lt: Any = load_bindings("cublasLt")
        self.value: int = self.lt.create()
        self.workspace: DeviceArray = device.empty((WORKSPACE_BYTES,), np.uint8)

    def close(self) -> None:
        """Destroys the handle and frees the workspace."""
        self.lt.destroy(self.value)
        self.workspace.free()


class Product:
    """Descriptors of one column-major product C^T (n, m) = B^T (n, k) A^T (k, m); see `cublas.prepare_gemm`.

    Of C (m, n) = A (m, k) B (k, n) where the case turns C: then `first` is A.
    """

    def __init__(self, handle: Handle, case: GemmCase, m: int, k: int, n: int) -> None:
        self._handle, lt = handle, handle.lt
        self._undo: list[Callable[[], None]] = []
        kind = CUDA_TYPE[case.dtype]
        blas = load_bindings("cublas")
        scale = RESULT_TYPE["i8" if case.math == "i8" else "f32"]
        try:
            self.operation = lt.matmul_desc_create(compute_type(blas, case.math), scale)
            self._undo.append(lambda: lt.matmul_desc_destroy(self.operation))
            a_turned, b_turned = case.transposed != case.c_turned, case.b_turned != case.c_turned
            turned = (a_turned, b_turned) if case.c_turned else (b_turned, a_turned)
            sides = (lt.MatmulDescAttribute.TRANSA, lt.MatmulDescAttribute.TRANSB)
            for attribute, turn in zip(sides, turned, strict=True):
                value = np.array([int(blas.Operation.T if turn else blas.Operation.N)], np.int32)
                lt.matmul_desc_set_attribute(self.operation, int(attribute), value.ctypes.data, value.nbytes)
            dense = self._layout(kind, k, n, k) if case.b_turned else self._layout(kind, n, k, n)
            weights = self._layout(kind, m, k, m) if case.transposed else self._layout(kind, k, m, k)
            self.first, self.second = (weights, dense) if case.c_turned else (dense, weights)
            sums = RESULT_TYPE[case.dtype]
            self.result = self._layout(sums, m, n, m) if case.c_turned else self._layout(sums, n, m, n)
        except BaseException:
            self.close()
            raise

    def _layout(self, kind: int, rows: int, columns: int, leading: int) -> int:
        lt = self._handle.lt
        layout: int = lt.matrix_layout_create(kind, rows, columns, max(1, leading))
        self._undo.append(lambda: lt.matrix_layout_destroy(layout))
        return layout

    def algorithms(self, most: int) -> list[Array]:
        """What the heuristic proposes within the workspace, best first: each a one-element `cublasLtMatmulAlgo_t`."""
        lt = self._handle.lt
        preference = lt.matmul_preference_create()
        try:
            limit = np.array([WORKSPACE_BYTES], np.uint64)
            attribute = int(lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES)
            lt.matmul_preference_set_attribute(preference, attribute, limit.ctypes.data, limit.nbytes)
            results = np.zeros(most, lt.matmul_heuristic_result_dtype)
            found = np.zeros(1, np.int32)
            lt.matmul_algo_get_heuristic(
                self._handle.value,
                self.operation,
                self.first,
                self.second,
                self.result,
                self.result,
                preference,
                most,
                results.ctypes.data,
                found.ctypes.data,
            )
        finally:
            lt.matmul_preference_destroy(preference)
        return [results[i : i + 1]["algo"].copy() for i in range(int(found[0])) if results[i]["state"] == 0]

    def close(self) -> None:
        """Destroys the descriptors."""
        while self._undo:
            self._undo.pop()()


def prepare_algorithm(inputs: Inputs, case: GemmCase, algorithm: Array, a: CSR, b: Array) -> Prepared:
    """One algorithm on C = A B; layouts as in `cublas.prepare_gemm`. Raises `Unsupported`, `LaunchError`."""
    device, n = inputs.device, b.shape[1]
    preparing = Preparing(inputs)
    handle = open_library(device, "cublaslt", lambda: Handle(device))
    lt = handle.lt
    product = refusing("cublaslt", lambda: Product(handle, case, a.m, a.k, n))
    weights = preparing.array(case.form, case.weights(a))
    dense = dense_operand(preparing, b, case.dtype, case.b_turned)
    output = Output(device, a.m, n, case.dtype, case.c_turned)
    scalars = scalars_of(case.math)
    result = output.array.pointer
    what = f"cublaslt {case.variant}"

    def over(arrays: Sequence[DeviceArray]) -> Callable[[], None]:
        first, second = (arrays[0], dense) if case.c_turned else (dense, arrays[0])
        # fmt: off
        arguments = (
            handle.value, product.operation, scalars.ctypes.data, first.pointer, product.first,
            second.pointer, product.second, scalars.ctypes.data + scalars.itemsize, result, product.result,
            result, product.result, algorithm.ctypes.data, handle.workspace.pointer, WORKSPACE_BYTES,
            device.backend.stream,
        )
        # fmt: on

        def run(keep: Any = (scalars, algorithm, arrays, dense, output, handle)) -> None:
            refusing(what, lambda: lt.matmul(*arguments))

        return run

    ends = Ends(dense, output.array, case.b_turned, case.c_turned)
    return finish(device, over([weights]), output, [product], preparing, [weights], over, ends)


class CublasLt:
    """cublasLtMatmul, one candidate per algorithm of the heuristic."""

    name = "cublaslt"
    paper = "NVIDIA cuBLASLt"
    ops = frozenset({"spmm", "spmv", "gemm"})
    dtypes = frozenset(MODES) | {"f8"}

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """At most `ALGORITHMS` per math mode and layout, `FURTHER` where B or C are turned; on weights before pruning.

        Raises `Unsupported` without a GPU or cuBLASLt.
        """
        gpu = require_gpu(device, self.name)
        handle = open_library(gpu, "cublaslt", lambda: Handle(gpu))
        a, b = operands.sparse, operands.dense["b"]
        inputs = Inputs(gpu, a)
        whole = a.nnz == a.m * a.k
        for case in gemm_cases(problem.dtype):
            try:
                proposed = _proposed(gpu, handle, case, problem)
            except Unsupported as error:
                yield refusal(case.variant, case.math, str(error))
                continue
            ours = replace(case, pruned=whole)
            for index, algorithm in enumerate(proposed):

                def prepare(case: GemmCase = ours, algorithm: Array = algorithm) -> Prepared:
                    return prepare_algorithm(inputs, case, algorithm, a, b)

                name = f"{case.variant}_algo{index:02}{'' if whole else UNPRUNED}"
                yield Candidate(name, case.math, prepare, truth=ours.truth(gpu, a, b))


def _proposed(device: GpuDevice, handle: Handle, case: GemmCase, problem: Problem) -> list[Array]:
    """The heuristic's algorithms for a mode and shape. Raises `Unsupported` where it knows none."""
    require_math(device, case.math)
    product = refusing("cublaslt", lambda: Product(handle, case, problem.m, problem.k, problem.n))
    try:
        most = FURTHER if (case.b_turned or case.c_turned) and case.math != "f8" else ALGORITHMS
        found = refusing("cublaslt", lambda: product.algorithms(most))
    finally:
        product.close()
    if not found:
        raise Unsupported(f"cublaslt knows no {case.variant} algorithm for this shape")
    return found


register(
    CublasLt(),
    About("library", "cuBLASLt", maths=TENSOR_CORES | {"i8", "f8"}, work="dense", searched=True, rank=230),
)
