"""cuBLAS: the dense product that a pruned weight matrix must beat. Zeros are multiplied like any other value.

Math modes: `f32` is IEEE fp32 (TF32 off), `tf32` rounds fp32 operands to 11 bits, `f16` and `bf16` take half-width
inputs and outputs with fp32 accumulation. Each with the weights stored (m, k) row-major and (k, m) row-major
(`colmajor`: the column-major matrix), because the fastest layout is the user's to choose ahead of time. On tensor cores
also with the dense operand stored (n, k) (`_bcol`) and the result stored (n, m) (`_ccol`), as networks keep
activations, one token after another. `cublas_bias_relu` follows it with one launch for bias and ReLU: a dense 1x1
convolution (Sputnik, section VII-D).

`cublaslt` is the same with every algorithm that the heuristic of cuBLASLt proposes in place of one choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from nnzbench.core.plan import Array, Candidate, Ends, Prepared, Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import F8_SCALE, Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import Reference
from nnzbench.devices.gpu import DeviceArray, GpuDevice
from nnzbench.kernels.copies import each
from nnzbench.kernels.registry import TENSOR_CORES, About
from nnzbench.kernels.sputnik.layers import bias_relu_plan
from nnzbench.kernels.vendor import support
from nnzbench.kernels.vendor.support import (
    CUDA_TYPE,
    RESULT_TYPE,
    WORKSPACE_BYTES,
    Inputs,
    Output,
    Preparing,
    dense_weights,
    library,
)

UNPRUNED = "_unpruned"
"""End of the variants whose weights are those before pruning, as who does not prune would multiply by."""
ALGORITHMS = 8
"""Most heuristic results tried per math mode and layout, best guess first: later ones have not been seen to win."""
FURTHER = 3
"""Of layouts other than the problem's own of B and C, which are many."""
STORED = {"tf32": "f32", "f16_sums": "f16"}
"""Storage type of arithmetic that is not named after it; `f16_sums` is fp16 summed in fp16, which no candidate does."""
MODES = {"f32": ("f32", "tf32"), "f16": ("f16",), "bf16": ("bf16",), "i8": ("i8",)}
"""Math modes by problem dtype."""


@dataclass(frozen=True)
class GemmCase:
    """One math mode and layout of the weights."""

    math: str
    transposed: bool
    """Whether the weights are stored (k, m) row-major."""
    b_turned: bool = False
    """Whether the dense operand is stored (n, k) row-major."""
    c_turned: bool = False
    """Whether the result is stored (n, m) row-major."""
    pruned: bool = True
    """Whether the weights are the problem's, or those before pruning (`support.before_pruning`)."""

    @property
    def variant(self) -> str:
        """Such as `f32_rowmajor` or `f16_colmajor_bcol_ccol`."""
        name = f"{self.math}_{'colmajor' if self.transposed else 'rowmajor'}"
        return name + "_bcol" * self.b_turned + "_ccol" * self.c_turned + UNPRUNED * (not self.pruned)

    @property
    def dtype(self) -> str:
        """Storage type of operands and result."""
        return STORED.get(self.math, self.math)

    @property
    def form(self) -> support.Form:
        """Of the weights among the inputs of a problem."""
        return (support.WEIGHTS, self.dtype, self.transposed, *(["unpruned"] * (not self.pruned)))

    def weights(self, a: CSR) -> Callable[[], Array]:
        """Makes the weights (m, k) as they lie in memory."""
        return lambda: dense_weights(a, self.dtype, self.transposed, self.pruned)

    def truth(self, device: GpuDevice, a: CSR, b: Array) -> Callable[[], Reference] | None:
        """What its result is compared with, where that is not the problem's."""
        return None if self.pruned else partial(device.library("unpruned_truth", support.UnprunedTruth), a, b)


def gemm_cases(dtype: str, turned: bool = True) -> list[GemmCase]:
    """Every math mode and layout for operands of `dtype`; the layouts that B and C have in a problem come first.

    Without `turned` only those. Of 8-bit integers those contiguous along k come first: the others take eight times as
    long (one H100).
    """
    if dtype == "f8":  # cuBLASLt's alone; Hopper wants both operands contiguous along k
        return [GemmCase("f8", False, True, c_turned) for c_turned in (False, True)]
    turns = ((False, False), (True, True), (True, False), (False, True))
    if dtype == "i8" and turned:
        turns = (*turns[1:3], turns[0], turns[3])
    return [
        GemmCase(math, transposed, *turn)
        for math in MODES[dtype]
        for turn in (turns if turned and math != "f32" else turns[:1])
        for transposed in (False, True)
    ]


class LtHandle(support.Handle):
    """A cuBLASLt handle, and a workspace for all of its products so that nothing is allocated later."""

    library = "cublasLt"

    def __init__(self, device: GpuDevice) -> None:
        super().__init__(device)
        self.workspace = device.empty((WORKSPACE_BYTES,), np.uint8)

    def close(self) -> None:
        super().close()
        self.workspace.close()


class CublasHandle(LtHandle):
    """The same of cuBLAS, on the device's stream."""

    library = "cublas"

    def __init__(self, device: GpuDevice) -> None:
        super().__init__(device)
        self.lib.set_stream(self.value, device.backend.stream)  # resets the workspace, so it goes first
        self.lib.set_workspace(self.value, self.workspace.pointer, WORKSPACE_BYTES)


def compute_type(cublas: Any, math: str) -> int:
    """cublasComputeType of an arithmetic class: sums in fp32 but for `f16_sums`, of 8-bit integers in 32-bit ones."""
    names = {"tf32": "COMPUTE_32F_FAST_TF32", "i8": "COMPUTE_32I", "f16_sums": "COMPUTE_16F"}
    return int(cublas.ComputeType[names.get(math, "COMPUTE_32F")])


def scalars_of(math: str) -> Array:
    """Alpha and beta = 0 in the type of the sums; the host reads them at each call. Alpha takes FP8's scales away."""
    kinds = {"i8": np.int32, "f16_sums": np.float16}
    return np.array([1 / F8_SCALE**2 if math == "f8" else 1, 0], kinds.get(math, np.float32))


def prepare_gemm(
    inputs: Inputs,
    case: GemmCase,
    m: int,
    weights: Callable[[], Array],
    b: Array,
    algorithm: Array | None = None,
) -> Prepared:
    """C (m, n) = A (m, k) B (k, n), all row-major unless `case` turns them; cuBLAS's choice, or cuBLASLt's `algorithm`.

    `weights` makes A as it lies in memory, where `inputs` has no such form yet.

    Raises `Unsupported` without the library or where it refuses, `LaunchError` where the product fails.
    """
    preparing, device, (k, n) = Preparing(inputs, case.math), inputs.device, b.shape
    handle = (LtHandle if algorithm is not None else CublasHandle).of(device)
    a = preparing.array(case.form, weights)
    dense = preparing.dense(b, case.dtype, case.b_turned)
    output = Output(device, (m, n), case.dtype, 0 if case.c_turned else 1)
    turns = {"a_transposed": case.transposed, "b_transposed": case.b_turned, "c_transposed": case.c_turned}
    held = [] if algorithm is None else [support.refusing("cublaslt", lambda: LtProduct(handle, case, m, k, n))]

    def over(weights: Sequence[DeviceArray]) -> Callable[[], None]:
        if algorithm is None:
            return product(handle, case.math, (m, k, n), weights[0], dense, output.array, **turns)
        return held[0].over(algorithm, weights[0], dense, output.array)

    ends = Ends(dense, output.array, case.b_turned, case.c_turned)
    return support.finish(preparing, over([a]), output, held, [a], over, ends)


def product(
    handle: LtHandle,
    math: str,
    sizes: tuple[int, int, int],
    a: DeviceArray,
    b: DeviceArray,
    c: DeviceArray,
    a_transposed: bool = False,
    b_transposed: bool = False,
    c_transposed: bool = False,
    accumulate: bool = False,
) -> Callable[[], None]:
    """Enqueues C (m, n) = A (m, k) B (k, n) at each call, row-major, or each the other way: (k, m), (n, k), (n, m).

    With `accumulate` the product is added to what C holds.

    `sizes` is (m, k, n). cuBLAS is column-major, where the row-major C is C^T = B^T A^T: the operands swap places.
    """
    m, k, n = sizes
    cublas = handle.lib
    dtype = STORED.get(math, math)
    kind, compute = CUDA_TYPE[dtype], compute_type(cublas, math)
    plain, turned = int(cublas.Operation.N), int(cublas.Operation.T)
    scalars = scalars_of(math)
    scalars[1] = accumulate
    alpha, beta = scalars.ctypes.data, scalars.ctypes.data + scalars.itemsize
    left, right = (b_transposed, b, k if b_transposed else n), (a_transposed, a, m if a_transposed else k)
    rows, columns = n, m
    if c_transposed:  # C itself, whose operands are the column-major transposes of what lies in memory
        left, right = (not a_transposed, *right[1:]), (not b_transposed, *left[1:])
        rows, columns = m, n
    # fmt: off
    arguments = (
        handle.value, turned if left[0] else plain, turned if right[0] else plain, rows, columns, k,
        alpha, left[1].pointer, kind, max(1, left[2]), right[1].pointer, kind, max(1, right[2]),
        beta, c.pointer, RESULT_TYPE[dtype], max(1, rows), compute, int(cublas.GemmAlgo.DFALT),
    )
    # fmt: on
    what = f"cublas {math} {m}x{k}x{n}"

    def run(keep: Any = (scalars, a, b, c, handle)) -> None:
        support.refusing(what, lambda: cublas.gemm_ex(*arguments))

    return run


@library(
    "NVIDIA cuBLAS",
    "spmm spmv gemm",
    "f32 f16 bf16 i8",
    About("library", "cuBLAS", maths=TENSOR_CORES | {"i8"}, work="dense", reference=True, rank=220),
)
def cublas(problem: Problem, operands: Operands, gpu: GpuDevice) -> Iterator[Candidate]:
    """cublasGemmEx with its default heuristic: two per math mode and layout, weights before and after pruning."""
    a, b = operands.sparse, operands.dense["b"]
    inputs = Inputs(gpu, a)
    both = [one for case in gemm_cases(problem.dtype) for one in (replace(case, pruned=False), case)]
    for case in both if a.nnz < a.m * a.k else both[1::2]:
        prepare = partial(prepare_gemm, inputs, case, a.m, case.weights(a), b)
        ready = partial(inputs.ahead, case.form, case.weights(a))
        yield Candidate(case.variant, case.math, prepare, truth=case.truth(gpu, a, b), ready=ready)


def prepare_pointwise(inputs: Inputs, case: GemmCase, a: CSR, b: Array, bias: Array) -> Prepared:
    """max(A B + bias, 0) for A (m, k), B (k, n), bias (m,). Raises as `prepare_gemm` does."""
    preparing, device, m, n = Preparing(inputs, case.math), inputs.device, a.m, b.shape[1]
    handle = CublasHandle.of(device)
    weights = preparing.array(("weights", case.transposed), case.weights(a))
    dense, shift = preparing.arrays(("b", "bias"), lambda: (b, bias))
    output = Output(device, (m, n), "f32")
    multiply = product(handle, case.math, (m, a.k, n), weights, dense, output.array, a_transposed=case.transposed)
    finishing = device.bind(bias_relu_plan(bias, np.empty((m, n))), {"bias": shift, "c": output.array})
    return support.finish(preparing, partial(each, (multiply, finishing)), output)


@library(
    "NVIDIA cuBLAS and a bias and ReLU kernel of this suite",
    "pointwise",
    "f32",
    About("library", maths=frozenset(MODES["f32"]), work="dense", reference=True, rank=250),
)
def cublas_bias_relu(problem: Problem, operands: Operands, gpu: GpuDevice) -> Iterator[Candidate]:
    """cublasGemmEx, then a launch that adds the bias and applies ReLU: one per math mode and layout of the weights."""
    inputs = Inputs(gpu)
    a, b, bias = operands.sparse, operands.dense["b"], operands.dense["bias"]
    for case in gemm_cases("f32", turned=False):
        yield Candidate(case.variant, case.math, partial(prepare_pointwise, inputs, case, a, b, bias))


class LtProduct(ExitStack):
    """Descriptors of one column-major product C^T (n, m) = B^T (n, k) A^T (k, m); see `product`.

    Of C (m, n) = A (m, k) B (k, n) where the case turns C: then `first` is A.
    """

    def __init__(self, handle: LtHandle, case: GemmCase, m: int, k: int, n: int) -> None:
        super().__init__()
        self._handle, self._case, lt = handle, case, handle.lib
        kind = CUDA_TYPE[case.dtype]
        blas = support.load_bindings("cublas")
        scale = RESULT_TYPE["i8" if case.math == "i8" else "f32"]
        try:
            self.operation = lt.matmul_desc_create(compute_type(blas, case.math), scale)
            self.callback(lt.matmul_desc_destroy, self.operation)
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
        lt = self._handle.lib
        layout: int = lt.matrix_layout_create(kind, rows, columns, max(1, leading))
        self.callback(lt.matrix_layout_destroy, layout)
        return layout

    def algorithms(self, most: int) -> list[Array]:
        """What the heuristic proposes within the workspace, best first: each a one-element `cublasLtMatmulAlgo_t`."""
        lt = self._handle.lib
        preference = lt.matmul_preference_create()
        try:
            limit = np.array([WORKSPACE_BYTES], np.uint64)
            attribute = int(lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES)
            lt.matmul_preference_set_attribute(preference, attribute, limit.ctypes.data, limit.nbytes)
            results = np.zeros(most, lt.matmul_heuristic_result_dtype)
            found = np.zeros(1, np.int32)
            described = (self.operation, self.first, self.second, self.result, self.result)
            answers = (results.ctypes.data, found.ctypes.data)
            lt.matmul_algo_get_heuristic(self._handle.value, *described, preference, most, *answers)
        finally:
            lt.matmul_preference_destroy(preference)
        return [results[i : i + 1]["algo"].copy() for i in range(int(found[0])) if results[i]["state"] == 0]

    def over(self, algorithm: Array, a: DeviceArray, b: DeviceArray, c: DeviceArray) -> Callable[[], None]:
        """Enqueues C = A B by one algorithm at each call."""
        handle, scalars, result = self._handle, scalars_of(self._case.math), c.pointer
        first, second = (a, b) if self._case.c_turned else (b, a)
        # fmt: off
        arguments = (
            handle.value, self.operation, scalars.ctypes.data, first.pointer, self.first, second.pointer, self.second,
            scalars.ctypes.data + scalars.itemsize, result, self.result, result, self.result, algorithm.ctypes.data,
            handle.workspace.pointer, WORKSPACE_BYTES, handle.device.backend.stream,
        )
        # fmt: on

        def run(keep: Any = (scalars, algorithm, a, b, c, handle)) -> None:
            support.refusing(f"cublaslt {self._case.variant}", lambda: handle.lib.matmul(*arguments))

        return run


def _proposed(device: GpuDevice, handle: LtHandle, case: GemmCase, problem: Problem) -> list[Array]:
    """The heuristic's algorithms for a mode and shape. Raises `Unsupported` where it knows none."""
    support.require_math(device, case.math)
    most = FURTHER if (case.b_turned or case.c_turned) and case.math not in ("f8", "i8") else ALGORITHMS
    with support.refusing("cublaslt", lambda: LtProduct(handle, case, problem.m, problem.k, problem.n)) as product:
        found = support.refusing("cublaslt", lambda: product.algorithms(most))
    if not found:
        raise Unsupported(f"cublaslt knows no {case.variant} algorithm for this shape")
    return found


@library(
    "NVIDIA cuBLASLt",
    "spmm spmv gemm",
    "f32 f16 bf16 i8 f8",
    About("library", "cuBLASLt", maths=TENSOR_CORES | {"i8", "f8"}, work="dense", searched=True, rank=230),
)
def cublaslt(problem: Problem, operands: Operands, gpu: GpuDevice) -> Iterator[Candidate]:
    """cublasLtMatmul, one candidate per algorithm of the heuristic, on weights before pruning.

    At most `ALGORITHMS` per math mode and layout, `FURTHER` where B or C are turned.
    """
    handle = LtHandle.of(gpu)
    a, b = operands.sparse, operands.dense["b"]
    inputs = Inputs(gpu, a)
    whole = a.nnz == a.m * a.k
    for case in gemm_cases(problem.dtype):
        try:
            proposed = _proposed(gpu, handle, case, problem)
        except Unsupported as error:
            yield support.refusal(case.variant, case.math, str(error))
            continue
        ours = replace(case, pruned=whole)
        ready = partial(inputs.ahead, ours.form, ours.weights(a))
        for index, algorithm in enumerate(proposed):
            name = f"{case.variant}_algo{index:02}{'' if whole else UNPRUNED}"
            prepare = partial(prepare_gemm, inputs, ours, a.m, ours.weights(a), b, algorithm)
            yield Candidate(name, case.math, prepare, truth=ours.truth(gpu, a, b), ready=ready)
