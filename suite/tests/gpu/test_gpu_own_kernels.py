"""Own kernels and small networks on a real GPU over awkward sizes: every plan is right as often as it runs, in a graph
too, and exact where whole numbers are summed. For sanitizers, too:

    compute-sanitizer --tool memcheck python -m pytest -q -k 33x520x7 suite/tests/gpu/test_gpu_own_kernels.py

With NNZBENCH_TEST_UNPOOLED=1 every buffer is an allocation of its own, so that an access past its end is seen.
"""

import os
from dataclasses import replace

import numpy as np
import pytest
from kernel_problems import AWKWARD, TRANSFORMER, coded_operands, mobilenet, sampled, v_two_m
from on_cpu import matrix, spmm_operands, spmm_problem
from test_tensor_papers import NAMES
from test_tensor_spmm import problem, whole
from vendor_candidates import check_on_gpu

from nnzbench.data.problems import tables
from nnzbench.data.problems.operands import Operands, make_operands
from nnzbench.data.problems.reference import reference
from nnzbench.kernels.registry import kernels
from nnzbench.kernels.tensor import spmm
from nnzbench.kernels.tensor.spmm import tilings

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir", "unpooled")]


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


def check_all(gpu, name, problem, data, exact=False):
    outcomes = check_on_gpu(gpu, name, problem, data, exact)
    assert not outcomes["no graph"]
    if not outcomes["ok"]:
        pytest.skip(f"{name} has no plan for {gpu.arch}")


def results(gpu, plans):
    """Variant and result of each plan."""
    for plan in plans:
        prepared = gpu.prepare(plan)
        prepared.poison()
        prepared.run()
        yield plan.variant, prepared.read()
        prepared.close()


# m, k, n, density: edges of strips, steps and panels, one column and row, several blocks along every axis, parts of k
# of which the last is short, matrices without nonzeros
TENSOR = ((1, 300, 1, 0.5), (33, 520, 7, 0.2), (70, 1300, 16, 0.1), (300, 2000, 30, 0.3), (257, 1030, 49, 0.6))
TENSOR += ((64, 700, 64, 1.0), (520, 4100, 104, 0.05), (96, 256, 264, 0.25), (41, 190, 20, 0.0))
VECTOR = ((1, 300, 1, 0.5), (70, 1001, 1, 0.02), (33, 700, 1, 0.3), (5000, 49, 1, 0.9), (513, 6000, 1, 0.1))
VECTOR += ((40, 90, 1, 0.0),)
FEW = ((70, 1001, 2, 0.02), (513, 6000, 3, 0.1), (5000, 49, 4, 0.9), (300, 14336, 4, 0.1))
PAPERS = ((256, 64, 8, 0.4), (1024, 1984, 8, 0.1), (512, 640, 16, 0.3), (768, 1088, 32, 0.2), (640, 704, 64, 0.25))
PAPERS += ((384, 576, 128, 0.4), (256, 320, 384, 0.05), (256, 448, 16, 0.0))
EXACT = [
    *(("tensor_spmm_tf32", "f32", shape) for shape in TENSOR),
    *(("tensor_spmm", dtype, shape) for shape in TENSOR for dtype in ("f16", "bf16", "f8")),
    *(("delta_spmv", dtype, shape) for shape in (*VECTOR, *FEW) for dtype in ("f16", "bf16")),
    *(("macko", "f16", shape) for shape in VECTOR),
    *((name, "f16", shape) for name in NAMES for shape in PAPERS),
]


@pytest.mark.parametrize(
    ("name", "dtype", "shape"), EXACT, ids=lambda one: one if isinstance(one, str) else "x".join(map(str, one[:3]))
)
def test_every_plan_is_exact(gpu, name, dtype, shape):
    m, k, n, density = shape
    rows = (0, m - 1) if name in NAMES else (m - 1,) if m > 1 else ()
    data = whole(matrix(m, k, density, empty=rows, full=m // 2 if density else -1), n, dtype)
    check_all(gpu, name, problem(data, dtype), data, exact=True)


@pytest.mark.parametrize(("m", "k", "v", "group"), [(300, 2000, 64, 8), (1000, 1003, 128, 10), (90, 331, 32, 16)])
@pytest.mark.parametrize("n", [1, 8, 33, 50, 260])
def test_every_plan_of_a_v_n_m_pattern_is_exact(gpu, m, k, v, group, n):
    data = whole(v_two_m(m, k, v, group), n)
    check_all(gpu, "venom", replace(problem(data), source=f"vnm:{v}:2:{group}:0"), data, exact=True)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_panels_go_round_their_ring(gpu, dtype):
    """Of few rows K is split until a slice has a panel or two. Here it is whole: every place is filled many times."""
    data = whole(matrix(70, 2100, 0.1, full=35), 40, dtype)
    some = problem(data, dtype)
    expected = reference(some, data).value
    found = tilings(some, data.sparse, gpu.arch, "tf32" if dtype == "f32" else "")
    whole_k = dict.fromkeys(replace(one, slices=1, separate=False) for one in found)
    for variant, result in results(gpu, spmm.plans(some, data, gpu.arch, whole_k)):
        assert np.array_equal(result, expected), variant


def test_nan_touches_only_the_rows_of_a_vector_that_use_it(gpu):
    data = whole(matrix(300, 700, 0.02, empty=(4,), full=9), 1)
    b = np.zeros((700, 1), dtype=np.float16)
    b[::7] = np.nan
    expected = data.sparse.to_scipy() @ b.astype(np.float64)
    plans = kernels()["delta_spmv"].plans(problem(data, "f16"), Operands(data.sparse, {"b": b}, ""), gpu.arch)
    for variant, result in results(gpu, plans):
        assert np.array_equal(np.isnan(result), np.isnan(expected)), variant


def test_inf_and_nan_touch_only_the_rows_that_use_them(gpu):
    data = whole(matrix(100, 700, 0.3, empty=(4,), full=9), 40)
    b = data.dense["b"].copy()
    b[7, 3], b[130, 3], b[131, 35], b[699, 10] = np.inf, -np.inf, np.nan, np.inf
    with np.errstate(invalid="ignore"):
        expected = data.sparse.to_scipy() @ b.astype(np.float64)
    plans = kernels()["tensor_spmm"].plans(problem(data, "f16"), Operands(data.sparse, {"b": b}, ""), gpu.arch)
    for variant, result in results(gpu, plans):
        assert np.array_equal(result.astype(np.float64), expected, equal_nan=True), variant


def test_uneven_rows(gpu):
    """The matrices of Sputnik's figure 7, where single rows are up to full."""
    for one in tables.load("sputnik_figure7"):
        check_all(gpu, "tensor_spmm", replace(one, dtype="f16"), make_operands(one).cast("f16"))


EIE = ((1, 1, 1, 1.0), (37, 203, 7, 0.1), (65, 4096, 8, 0.04), (600, 1201, 1, 0.1), (9, 30000, 16, 0.02))


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize(("m", "k", "n", "density"), [*EIE, (40, 640, 2, 0.3)])
def test_eie(gpu, m, k, n, density, dtype):
    data = coded_operands(m, k, n, density, dtype, full=m // 2)
    check_all(gpu, "eie", spmm_problem(data), data)


@pytest.mark.parametrize("n", [1, 7, 32, 49, 64, 128, 500])
def test_merge_spmm(gpu, n):
    for sparse in (matrix(37, 470, empty=(0, 5, 36), full=9), matrix(2000, 60, 0.05), matrix(300, 2000, 0.3)):
        data = spmm_operands(sparse, n)
        check_all(gpu, "merge_spmm", spmm_problem(data), data)


@pytest.mark.parametrize("n", [32, 128])
def test_aspt(gpu, n):
    for sparse in (*AWKWARD.values(), matrix(1000, 2048, 0.2), matrix(500, 8192, 0.1)):
        data = spmm_operands(sparse, n)
        check_all(gpu, "aspt", spmm_problem(data), data)
        check_all(gpu, "aspt_sddmm", *sampled(sparse, n))


@pytest.mark.parametrize(
    ("name", "problems"),
    [
        ("sparse_transformer", [TRANSFORMER]),
        ("dense_transformer", [TRANSFORMER]),
        ("sparse_mobilenet", [mobilenet(0.9), mobilenet(0.9, 1.0, 224)]),
        ("dense_mobilenet", [mobilenet(level, *size) for level in (0.9, 0.0) for size in ((), (1.0, 224))]),
    ],
)
def test_networks(gpu, name, problems):
    for one in problems:
        check_all(gpu, name, one, make_operands(one))
