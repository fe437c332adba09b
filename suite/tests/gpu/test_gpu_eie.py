"""`eie` on a real GPU over awkward sizes: every tiling is right, as often as it runs."""

from __future__ import annotations

import pytest
from kernel_problems import coded_operands as case
from on_cpu import spmm_problem

from nnzbench.devices import Device
from nnzbench.kernels.eie import eie
from nnzbench.problems.check import passes, relative_error
from nnzbench.problems.problem import DType
from nnzbench.problems.reference import reference

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize(
    ("m", "k", "n", "density"),
    [
        (1, 1, 1, 1.0),
        (37, 203, 7, 0.1),
        (65, 4096, 8, 0.04),
        (600, 1201, 1, 0.1),
        (9, 30000, 16, 0.02),
        (40, 640, 2, 0.3),
    ],
)
def test_every_tiling_is_right(m: int, k: int, n: int, density: float, dtype: DType, gpu: Device) -> None:
    data = case(m, k, n, density, dtype, full=m // 2)
    expected = reference(spmm_problem(data), data)
    plans = list(eie.plans(spmm_problem(data), data, gpu.arch))
    assert plans
    for plan in plans:
        prepared = gpu.prepare(plan)
        for _ in range(3):
            prepared.poison()
            prepared.run()
            assert passes(relative_error(prepared.read(), expected), plan.math), plan.variant
        prepared.close()
