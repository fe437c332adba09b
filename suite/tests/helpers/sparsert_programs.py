"""Generated programs of SparseRT, interpreted, for the tests of both forms. Not a test file."""

import numpy as np
import pytest
from on_cpu import conv_layer
from ptx_interpreter import Kernel

from nnzbench.core.plan import Plan, Resources, Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.problem import ConvShape, DType
from nnzbench.data.problems.reference import Reference, reference
from nnzbench.devices.build.cache import Job, build
from nnzbench.kernels.sparsert import spmm as sparsert
from nnzbench.kernels.sparsert.program import MatrixColumns
from nnzbench.kernels.sparsert.schedule import Tiling
from nnzbench.kernels.sparsert.spmm import Planner


def truth(matrix: CSR, b: np.ndarray) -> Reference:
    a = matrix.to_scipy()
    return Reference(a @ b.astype(np.float64), abs(a) @ abs(b.astype(np.float64)))


def assembled(source: str, arch: str, entry: str) -> Resources:
    """What the assembler says of the PTX; skips the test where there is none."""
    try:
        return build(Job("ptx", source, arch).program()).resources[entry]
    except Unsupported as error:
        pytest.skip(str(error))


def right(result: np.ndarray, expected: Reference, math: str = "f32") -> bool:
    """Whether it is, for that arithmetic."""
    return passes(relative_error(result, expected), math)


def interpret(plan: Plan, backward: bool = False) -> np.ndarray:
    """What the text computes; the blocks of the paper's programs have two axes."""
    kernel, launch = Kernel(plan.source), plan.launches[0]
    buffers = {name: array.copy().reshape(-1) for name, array in plan.buffers.items()}
    buffers["c"].view(np.uint8)[:] = 0xFF  # NaN
    width, height, _ = launch.block
    kernel.launch(launch.grid, width * height, buffers, launch.shared_bytes, backward, width)
    return buffers["c"].reshape(plan.buffers["c"].shape)


def spmm_plan(matrix: CSR, n: int, tiling: Tiling, arch: str = "sm_90", **options: object) -> tuple[Plan, np.ndarray]:
    element = options.pop("element", 4)
    dtype = np.float16 if element == 2 else np.float32
    b = np.random.default_rng(7).standard_normal((matrix.k, n)).astype(dtype)
    planner = Planner(matrix, MatrixColumns(n), arch, int(str(element)))
    return sparsert.make_plan(planner, tiling, b, arch, (matrix.m, n), **options), b  # type: ignore[arg-type]


CONVOLUTIONS = [
    ConvShape(1, 5, 9, 7, 12, 3, 3, 1, 1),
    ConvShape(2, 3, 6, 6, 9, 3, 3, 1, 1),
    ConvShape(1, 4, 8, 8, 10, 3, 3, 0, 0),
    ConvShape(1, 4, 9, 11, 10, 3, 3, 1, 1, stride=2),
    ConvShape(1, 3, 1, 40, 6, 1, 5, 0, 2),
]


POINTWISE = [
    ConvShape(3, 24, 4, 6, 21, 1, 1),
    ConvShape(5, 24, 5, 7, 21, 1, 1),
    ConvShape(4, 24, 2, 6, 21, 1, 1),
    ConvShape(70, 24, 1, 1, 21, 1, 1),
    ConvShape(1, 24, 9, 8, 21, 1, 1),
]
"""Blocks cross images in all but the last. Staging copies 16 bytes of the first and last, one element of the second and
fourth, and of the third 16 bytes in fp32 but one element in fp16, whose planes are no multiple of 16 bytes."""

STAGED = [
    Tiling(8, row_tiles=4, staged=True),
    Tiling(16, row_tiles=2, column_tiles=2, staged=True),
    Tiling(8, parts=4, row_tiles=2, staged=True),
    Tiling(8, row_tiles=4, column_tiles=2, columns_per_thread=2, staged=True),
]


def conv_plan(shape: ConvShape, tiling: Tiling, arch: str = "sm_90", dtype: DType = "f32") -> tuple[Plan, Reference]:
    problem, operands = conv_layer(shape, dtype)
    expected = reference(problem, operands)
    planner, x, output = sparsert.planned(problem, operands, arch)
    return sparsert.make_plan(planner, tiling, x, arch, output), expected
