"""Dense 1x1 convolutions with bias and ReLU: cuBLAS, then one launch for both (Sputnik, section VII-D)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnzbench.devices import Device
from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import About
from nnzbench.kernels.sputnik.pointwise import bias_relu_plan
from nnzbench.kernels.vendor.cublas import MODES, GemmCase, Handle, gemm_cases, product
from nnzbench.kernels.vendor.inputs import Inputs, Preparing
from nnzbench.kernels.vendor.support import Output, finish, open_library, require_gpu, require_math
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Array, Candidate, Prepared
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem


def prepare_pointwise(inputs: Inputs, case: GemmCase, a: CSR, b: Array, bias: Array) -> Prepared:
    """max(A B + bias, 0) for A (m, k), B (k, n), bias (m,). Raises as `prepare_gemm` does."""
    device, m, n = inputs.device, a.m, b.shape[1]
    require_math(device, case.math)
    preparing = Preparing(inputs)
    handle = open_library(device, "cublas", lambda: Handle(device))
    weights = preparing.array(("weights", case.transposed), case.weights(a))
    dense, shift = preparing.arrays(("b", "bias"), lambda: (b, bias))
    output = Output(device, m, n, "f32")
    multiply = product(handle, case.math, (m, a.k, n), weights, dense, output.array, a_transposed=case.transposed)
    finishing = device.bind(bias_relu_plan(bias, np.empty((m, n))), {"bias": shift, "c": output.array})

    def run() -> None:
        multiply()
        finishing()

    return finish(device, run, output, [], preparing)


class CublasBiasRelu:
    """cublasGemmEx followed by a launch that adds the bias and applies ReLU."""

    name = "cublas_bias_relu"
    paper = "NVIDIA cuBLAS and a bias and ReLU kernel of this suite"
    ops = frozenset({"pointwise"})
    dtypes = frozenset({"f32"})

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """One per math mode and layout of the weights. Raises `Unsupported` without a GPU."""
        inputs = Inputs(require_gpu(device, self.name))
        a, b, bias = operands.sparse, operands.dense["b"], operands.dense["bias"]
        for case in gemm_cases("f32", turned=False):

            def prepare(case: GemmCase = case) -> Prepared:
                return prepare_pointwise(inputs, case, a, b, bias)

            yield Candidate(case.variant, case.math, prepare)


register(
    CublasBiasRelu(),
    About("library", maths=frozenset(MODES["f32"]), work="dense", reference=True, rank=250),
)
