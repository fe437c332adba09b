"""`tensor_spmm_tf32` on a real GPU: every tiling is exact over awkward sizes, as often as it runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from on_cpu import matrix
from test_tensor_spmm import problem, whole

from nnzbench.devices import Device
from nnzbench.kernels.tensor import spmm, tf32
from nnzbench.kernels.tensor.tf32 import tensor_spmm_tf32
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.problem import DType
from nnzbench.problems.reference import reference

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]

SHAPES = (
    (1, 300, 1, 0.5),
    (33, 520, 7, 0.2),
    (70, 1300, 16, 0.1),
    (300, 2000, 30, 0.3),
    (257, 1030, 49, 0.6),
    (520, 4100, 104, 0.05),
    (41, 190, 20, 0.0),
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_tiling_is_exact(gpu: Device, shape: tuple[int, int, int, float]) -> None:
    m, k, n, density = shape
    data = whole(matrix(m, k, density, empty=(m - 1,) if m > 1 else (), full=m // 2 if density else -1), n, "f32")
    expected = reference(problem(data, "f32"), data).value
    try:
        plans = list(tensor_spmm_tf32.plans(problem(data, "f32"), data, gpu.arch))
    except Unsupported as reason:
        pytest.skip(str(reason))
    for plan in plans:
        prepared = gpu.prepare(plan)
        for _ in range(3):
            prepared.poison()
            prepared.run()
            assert np.array_equal(prepared.read(), expected), plan.variant
        prepared.close()


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_panels_go_round_their_ring(gpu: Device, dtype: DType) -> None:
    """Of few rows K is split until a slice has a panel or two. Here it is whole: every place is filled many times."""
    data = whole(matrix(70, 2100, 0.1, full=35), 40, dtype)
    some = problem(data, dtype)
    expected = reference(some, data).value
    if dtype == "f32":
        found = spmm.tilings(some, data.sparse, gpu.arch, tf32._SHAPES, tf32=True)
    else:
        found = spmm.tilings(some, data.sparse, gpu.arch)
    whole_k = dict.fromkeys(replace(one, slices=1, separate=False) for one in found)
    for plan in spmm.plans(some, data, gpu.arch, whole_k):
        prepared = gpu.prepare(plan)
        prepared.poison()
        prepared.run()
        assert np.array_equal(prepared.read(), expected), plan.variant
        prepared.close()
