"""Generated programs of SparseRT, interpreted or run on the processor, for the tests of both forms. Not a test file."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_interpreter import Kernel

from nnzbench.devices import open_device
from nnzbench.kernels.codegen.model import Planner
from nnzbench.kernels.codegen.program import ImagePixels, MatrixColumns
from nnzbench.kernels.codegen.schedule import Tiling
from nnzbench.kernels.sparsert import spmm as sparsert
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import ConvShape, Problem
from nnzbench.problems.reference import Reference, reference


def random_matrix(m: int, k: int, density: float, seed: int = 0) -> CSR:
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((m, k)).astype(np.float32)
    return CSR.from_dense(np.where(rng.random((m, k)) < density, dense, np.float32(0)))


def truth(matrix: CSR, b: np.ndarray) -> Reference:
    a = matrix.to_scipy()
    return Reference(a @ b.astype(np.float64), abs(a) @ abs(b.astype(np.float64)))


def interpret(plan: Plan, backward: bool = False) -> np.ndarray:
    kernel = Kernel(plan.source)
    buffers = {name: array.copy().reshape(-1) for name, array in plan.buffers.items()}
    buffers["c"].view(np.uint8)[:] = 0xFF  # NaN
    launch = plan.launches[0]
    kernel.launch(launch.grid, launch.block[0], buffers, launch.shared_bytes, backward)
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


def conv_plan(shape: ConvShape, tiling: Tiling, arch: str = "sm_90", dtype: str = "f32") -> tuple[Plan, Reference]:
    matrix = random_matrix(shape.filters, shape.channels * shape.r * shape.s, 0.3)
    x = np.random.default_rng(3).standard_normal((shape.batch, shape.channels, shape.height, shape.width))
    x = x.astype(np.float16 if dtype == "f16" else np.float32)
    if dtype == "f16":
        matrix = matrix.with_values(matrix.values.astype(np.float16).astype(np.float32))
    n = shape.batch * shape.out_height * shape.out_width
    problem = Problem("t", "t", "conv2d", matrix.m, matrix.k, n, 0.7, "uniform:0", conv=shape, dtype=dtype)  # type: ignore[arg-type]
    expected = reference(problem, Operands(matrix, {"x": x}, "p"))
    planner = sparsert.make_planner(matrix, ImagePixels(shape), arch, dtype)
    return sparsert.make_plan(planner, tiling, x, arch, expected.value.shape), expected


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def run_on_cpu(plan: Plan) -> np.ndarray:
    try:
        device = open_device("cpu")
    except Unsupported as error:
        pytest.skip(str(error))
    prepared = device.prepare(plan)
    try:
        prepared.poison()
        prepared.run()
        return prepared.read()
    finally:
        prepared.close()
        device.close()


def interpret_paper(plan: Plan) -> np.ndarray:
    """Of one of the paper's programs, whose blocks have two axes."""
    launch = plan.launches[0]
    buffers = {name: array.copy().reshape(-1) for name, array in plan.buffers.items()}
    buffers["c"][:] = np.nan
    threads = launch.block[0] * launch.block[1]
    kernel = Kernel(plan.source)
    kernel.launch(launch.grid, threads, buffers, launch.shared_bytes, False, launch.block[0])
    return buffers["c"].reshape(plan.buffers["c"].shape)
