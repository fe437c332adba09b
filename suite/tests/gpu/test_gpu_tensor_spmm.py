"""`tensor_spmm` on a real GPU over awkward sizes: every tiling is exact, as often as it runs. For sanitizers, too.

    compute-sanitizer --tool memcheck python -m pytest -q -k "33x520x7 or empty" suite/tests/gpu/test_gpu_tensor_spmm.py

With NNZBENCH_TEST_UNPOOLED=1 every buffer is an allocation of its own, so that an access past its end is seen.
"""

import os

import numpy as np
import pytest
from on_cpu import matrix
from test_tensor_spmm import problem, whole

from nnzbench.kernels.tensor.spmm import tensor_spmm
from nnzbench.matrices.formats import CSR
from nnzbench.measure.trial import enumerate_candidates
from nnzbench.plans.architectures import architecture
from nnzbench.plans.plan import Candidate
from nnzbench.problems import tables
from nnzbench.problems.check import TOLERANCE, relative_error
from nnzbench.problems.operands import Operands, make_operands, round_to
from nnzbench.problems.reference import reference

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir", "unpooled")]

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


@pytest.fixture(scope="module")
def unpooled():
    """Without CuPy's pool, where asked for."""
    if not os.environ.get("NNZBENCH_TEST_UNPOOLED"):
        yield
        return
    cuda = pytest.importorskip("cupy").cuda
    before = cuda.get_allocator()
    cuda.set_allocator(None)
    yield
    cuda.set_allocator(before)


@pytest.fixture
def tensor(gpu):
    """The GPU, where its tensor cores multiply 2:4 tiles."""
    if not architecture(gpu.arch).has("mma_sparse"):
        pytest.skip(f"tensor cores of {gpu.arch} do not multiply 2:4 tiles")
    return gpu


def every_tiling(device, data, dtype):
    """Each tiling's name and what runs it; programs are compiled many at a time."""
    count = 0
    for one in enumerate_candidates(tensor_spmm, problem(data, dtype), data, device):
        assert isinstance(one, Candidate), one.reason
        prepared = one.prepare()
        yield one.variant, prepared
        prepared.close()
        count += 1
    assert count > 0


def assert_exact(device, data, dtype):
    value = reference(problem(data, dtype), data).value.astype(np.float32)
    expected = round_to(value, "f16" if dtype == "f8" else dtype)
    for variant, prepared in every_tiling(device, data, dtype):
        for _ in range(3):
            prepared.poison()
            prepared.run()
            assert np.array_equal(prepared.read(), expected), variant


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape[:3])))
def test_every_tiling_is_exact(tensor, shape, dtype):
    m, k, n, density = shape
    data = whole(matrix(m, k, density, empty=(m - 1,) if m > 1 else (), full=m // 2), n, dtype)
    assert_exact(tensor, data, dtype)


def test_an_empty_matrix(tensor):
    assert_exact(tensor, whole(CSR.from_dense(np.zeros((41, 190), np.float32)), 20), "f16")


def test_inf_and_nan_touch_only_the_rows_that_use_them(tensor):
    data = whole(matrix(100, 700, 0.3, empty=(4,), full=9), 40)
    b = data.dense["b"].copy()
    b[7, 3], b[130, 3], b[131, 35], b[699, 10] = np.inf, -np.inf, np.nan, np.inf
    with np.errstate(invalid="ignore"):
        expected = data.sparse.to_scipy() @ b.astype(np.float64)
    for variant, prepared in every_tiling(tensor, Operands(data.sparse, {"b": b}, ""), "f16"):
        prepared.poison()
        prepared.run()
        assert np.array_equal(prepared.read().astype(np.float64), expected, equal_nan=True), variant


def test_uneven_rows(tensor):
    """The matrices of Sputnik's figure 7, where single rows are up to full."""
    for one in tables.load("sputnik_figure7"):
        data = make_operands(one).cast("f16")
        truth = reference(one, data)
        for variant, prepared in every_tiling(tensor, data, "f16"):
            prepared.poison()
            prepared.run()
            assert relative_error(prepared.read(), truth) < TOLERANCE["f16"], (one.name, variant)
