"""`delta_spmv` on a real GPU over awkward sizes: every plan is exact, as often as it runs. For sanitizers, too."""

from __future__ import annotations

import numpy as np
import pytest
from on_cpu import matrix
from test_tensor_spmm import problem, whole

from nnzbench.devices import Device
from nnzbench.kernels.tensor.spmv import delta_spmv
from nnzbench.problems.operands import Operands, round_to
from nnzbench.problems.problem import DType
from nnzbench.problems.reference import reference

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]

SHAPES = ((1, 300, 0.5), (70, 1001, 0.02), (33, 700, 0.3), (5000, 49, 0.9), (513, 6000, 0.1), (40, 90, 0.0))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_plan_is_exact(gpu: Device, shape: tuple[int, int, float], dtype: DType) -> None:
    m, k, density = shape
    data = whole(matrix(m, k, density, empty=(m - 1,) if m > 1 else (), full=m // 2 if density else -1), 1, dtype)
    expected = round_to(reference(problem(data, dtype), data).value.astype(np.float32), dtype)
    for plan in delta_spmv.plans(problem(data, dtype), data, gpu.arch):
        prepared = gpu.prepare(plan)
        for _ in range(3):
            prepared.poison()
            prepared.run()
            assert np.array_equal(prepared.read(), expected), plan.variant
        prepared.close()


def test_inf_and_nan_touch_only_the_rows_that_use_them(gpu: Device) -> None:
    data = whole(matrix(300, 700, 0.02, empty=(4,), full=9), 1)
    b = np.zeros((700, 1), dtype=np.float16)
    b[::7] = np.nan
    expected = data.sparse.to_scipy() @ b.astype(np.float64)
    for plan in delta_spmv.plans(problem(data, "f16"), Operands(data.sparse, {"b": b}, ""), gpu.arch):
        prepared = gpu.prepare(plan)
        prepared.run()
        assert np.array_equal(np.isnan(prepared.read()), np.isnan(expected)), plan.variant
        prepared.close()
