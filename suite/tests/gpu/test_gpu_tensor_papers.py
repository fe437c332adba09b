"""Papers' tensor-core SpMMs on a real GPU: every number of parts is exact, as often as it runs. For sanitizers, too."""

from __future__ import annotations

import numpy as np
import pytest
from on_cpu import matrix, spmm_problem
from test_tensor_papers import NAMES
from test_tensor_spmm import whole

from nnzbench.devices import Device
from nnzbench.kernels.registry import Kernel, kernels
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.reference import reference

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]

# m, k, n, density: each form, several blocks along every axis, parts of which the last is short
SHAPES = (
    (256, 64, 8, 0.4),
    (1024, 1984, 8, 0.1),
    (512, 640, 16, 0.3),
    (768, 1088, 32, 0.2),
    (640, 704, 64, 0.25),
    (384, 576, 128, 0.4),
    (256, 320, 384, 0.05),
    (256, 448, 16, 0.0),
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_number_of_parts_is_exact(gpu: Device, shape: tuple[int, int, int, float], name: str) -> None:
    m, k, n, density = shape
    data = whole(matrix(m, k, density, empty=(0, m - 1), full=m // 2 if density else -1), n)
    expected = reference(spmm_problem(data), data).value
    kernel = kernels()[name]
    assert isinstance(kernel, Kernel)
    try:
        plans = list(kernel.plans(spmm_problem(data), data, gpu.arch))
    except Unsupported as reason:
        pytest.skip(str(reason))
    for plan in plans:
        prepared = gpu.prepare(plan)
        for _ in range(3):
            prepared.poison()
            prepared.run()
            assert np.array_equal(prepared.read(), expected), plan.variant
        prepared.close()
