"""`tensor_spmm` on a real GPU over awkward sizes: every tiling is exact, as often as it runs. For sanitizers, too."""

from __future__ import annotations

import numpy as np
import pytest
from on_cpu import matrix
from test_tensor_spmm import problem, whole

from nnzbench.devices import Device
from nnzbench.kernels.tensor.spmm import TensorSpmm
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.operands import Operands, reference, round_to
from nnzbench.problems.problem import DType

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]

# m, k, n, density: edges of strips, steps and panels; copies of 2, 4, 8 and 16 bytes; several tiles of columns
SHAPES = (
    (1, 300, 1, 0.5),
    (33, 520, 7, 0.2),
    (70, 1300, 16, 0.1),
    (300, 2000, 30, 0.3),
    (257, 1030, 49, 0.6),
    (64, 700, 64, 1.0),
    (520, 4100, 104, 0.05),
    (96, 256, 264, 0.25),
)


def assert_exact(gpu: Device, data: Operands, dtype: DType) -> None:
    expected = round_to(reference(problem(data, dtype), data).value.astype(np.float32), dtype)
    for plan in TensorSpmm().plans(problem(data, dtype), data, gpu.arch):
        prepared = gpu.prepare(plan)
        for _ in range(3):
            prepared.poison()
            prepared.run()
            assert np.array_equal(prepared.read(), expected), plan.variant
        prepared.close()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_tiling_is_exact(gpu: Device, shape: tuple[int, int, int, float], dtype: DType) -> None:
    m, k, n, density = shape
    data = whole(matrix(m, k, density, empty=(m - 1,) if m > 1 else (), full=m // 2), n, dtype)
    try:
        assert_exact(gpu, data, dtype)
    except Unsupported as reason:
        pytest.skip(str(reason))


def test_an_empty_matrix(gpu: Device) -> None:
    assert_exact(gpu, whole(CSR.from_dense(np.zeros((41, 190), np.float32)), 20), "f16")


def test_inf_and_nan_touch_only_the_rows_that_use_them(gpu: Device) -> None:
    data = whole(matrix(100, 700, 0.3, empty=(4,), full=9), 40)
    b = data.dense["b"].copy()
    b[7, 3], b[130, 3], b[131, 35], b[699, 10] = np.inf, -np.inf, np.nan, np.inf
    with np.errstate(invalid="ignore"):
        expected = data.sparse.to_scipy() @ b.astype(np.float64)
    spoilt = Operands(data.sparse, {"b": b}, "")
    for plan in TensorSpmm().plans(problem(data, "f16"), spoilt, gpu.arch):
        prepared = gpu.prepare(plan)
        prepared.run()
        assert np.array_equal(prepared.read().astype(np.float64), expected, equal_nan=True), plan.variant
        prepared.close()
