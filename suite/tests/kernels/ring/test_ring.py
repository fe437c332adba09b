"""The ring kernel against float64 on the processor, and its packed form against the matrix it holds."""

import itertools

import numpy as np
import pytest
from kernel_problems import without_columns
from on_cpu import error_of, execute, matrix
from on_cpu import spmm_operands as operands
from on_cpu import spmm_problem as problem

from nnzbench.kernels.ring import spmm as ring
from nnzbench.kernels.ring.spmm import RingSpmmTiling
from nnzbench.matrices.formats import CSR
from nnzbench.plans.architectures import block_shared_bytes
from nnzbench.plans.plan import SharedWork, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import DType, Problem
from nnzbench.problems.reference import reference

# lanes, columns per lane, warps, row sets, rows of B per chunk, window, ahead, stages
TILINGS = (
    RingSpmmTiling(8, 16, 8, 1, 16, 3, 2, 5),
    RingSpmmTiling(4, 16, 4, 2, 32, 2, 1, 3),
    RingSpmmTiling(4, 8, 4, 1, 16, 3, 2, 6, ksplit=2),
    RingSpmmTiling(2, 16, 2, 1, 32, 2, 1, 4),
    RingSpmmTiling(8, 4, 8, 1, 16, 1, 2, 3, ksplit=4),
    RingSpmmTiling(16, 4, 4, 3, 24, 2, 1, 4),
    RingSpmmTiling(32, 4, 4, 4, 16, 2, 2, 4),
    RingSpmmTiling(4, 8, 8, 4, 16, 3, 2, 6, ksplit=4),
)
HALF_TILINGS = (
    RingSpmmTiling(8, 16, 8, 1, 16, 3, 2, 5, value_bytes=2),
    RingSpmmTiling(4, 16, 4, 2, 32, 2, 1, 3, value_bytes=2),
    RingSpmmTiling(4, 8, 4, 1, 16, 3, 2, 6, ksplit=2, value_bytes=2),
    RingSpmmTiling(2, 32, 2, 1, 32, 2, 1, 4, value_bytes=2),
    RingSpmmTiling(8, 8, 8, 1, 16, 1, 2, 3, ksplit=4, value_bytes=2),
)
DTYPES: tuple[DType, ...] = ("f32", "f16")
# m, k, n, density: edges of tiles and chunks, one column, one row, few and many nonzeros
SHAPES = ((70, 130, 128, 0.1), (37, 65, 50, 0.2), (13, 64, 7, 0.5), (1, 300, 1, 0.1), (33, 40, 32, 1.0))


def half_operands(sparse, n):
    """Whole numbers, so that fp32 sums are exact and many need rounding to fp16."""
    b = np.random.default_rng(3).integers(-100, 100, (sparse.k, n))
    return Operands(sparse.with_values(np.round(64 * sparse.values)), {"b": b}, "").cast("f16")


def assert_exact(plan, data, build="plain", order="forward"):
    """The result is the exact product, rounded once."""
    result = execute(plan, build, order)
    assert result.dtype == np.float16
    with np.errstate(over="ignore"):
        assert np.array_equal(result, reference(problem(data), data).value.astype(np.float16)), plan.variant


def plan_of(data, tiling):
    return ring.make_plan(problem(data), data, tiling)


def error(plan, data, build="plain", order="forward"):
    return error_of(plan, problem(data), data, build, order)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matches_float64_on_awkward_shapes(shape):
    m, k, n, density = shape
    data = operands(matrix(m, k, density), n)
    start = SHAPES.index(shape)
    for tiling in (TILINGS[start], TILINGS[start + 2], TILINGS[7 - start]):
        assert error(plan_of(data, tiling), data) < 1e-6, tiling


# copies of 2 bytes (one, seven and 49 columns), 4 and 8; those of 16 are below
@pytest.mark.parametrize(
    ("shape", "tiling"),
    [
        ((1, 300, 1, 0.1), HALF_TILINGS[2]),
        ((13, 64, 7, 0.5), HALF_TILINGS[4]),
        ((29, 100, 49, 0.2), HALF_TILINGS[0]),
        ((37, 65, 50, 0.2), HALF_TILINGS[1]),
        ((40, 90, 68, 0.1), HALF_TILINGS[3]),
    ],
    ids=str,
)
def test_fp16_is_the_exact_product_rounded_once(shape, tiling):
    m, k, n, density = shape
    data = half_operands(matrix(m, k, density, empty=(m - 1,) if m > 1 else (), full=m // 2), n)
    assert_exact(plan_of(data, tiling), data)


def test_empty_rows_a_dense_row_and_an_empty_matrix():
    uneven = matrix(41, 90, 0.05, empty=(0, 3, 40), full=7)
    empty = CSR.from_dense(np.zeros((41, 90), dtype=np.float32))
    for sparse, tilings in ((uneven, (*TILINGS[:3], TILINGS[-1])), (empty, TILINGS[:1])):
        data = operands(sparse, 36)
        for tiling in tilings:
            assert error(plan_of(data, tiling), data) < 1e-6, tiling


def test_sums_of_many_warps_need_not_fit_in_a_small_ring():
    data = half_operands(matrix(40, 40, 0.4), 64)
    tiling = RingSpmmTiling(8, 8, 16, 2, 32, 2, 2, 2, ksplit=8, value_bytes=2)
    assert tiling.shared_bytes > tiling.row_bytes * (tiling.stages * tiling.block_k + 1)
    assert_exact(plan_of(data, tiling), data, "asan")


@pytest.mark.parametrize(("build", "order"), [("asan", "forward"), ("tsan", "forward"), ("plain", "random:5")])
def test_clean_under_sanitizers_and_any_schedule(build, order):
    data = operands(matrix(70, 150, 0.2), 36)
    for tiling in (TILINGS[1], TILINGS[2]) if build == "plain" else (TILINGS[2], TILINGS[-1]):
        assert error(plan_of(data, tiling), data, build, order) < 1e-6, tiling
    half = half_operands(data.sparse, 36 if build == "tsan" else 7)
    assert_exact(plan_of(half, HALF_TILINGS[2]), half, build, order)


@pytest.mark.parametrize("tiling", [TILINGS[0], HALF_TILINGS[0]], ids=("f32", "f16"))
def test_inf_and_nan_in_unused_rows_of_b_do_not_leak(tiling):
    sparse = CSR.from_dense(without_columns(matrix(20, 64, 0.2).to_dense(), 0, 17, 63))
    make = half_operands if tiling.value_bytes == 2 else operands
    data, clean = make(sparse, 32), make(sparse, 32)
    data.dense["b"][[0, 17, 63]] = [[np.inf], [np.nan], [-np.inf]]
    assert np.array_equal(execute(plan_of(data, tiling)), execute(plan_of(clean, tiling)))


def test_fp16_keeps_inf_and_nan_and_overflows_to_inf():
    data = half_operands(CSR.from_dense(np.eye(4, 32, dtype=np.float32)), 8)
    data.dense["b"][:3] = [[np.inf], [np.nan], [2000]]
    result = execute(plan_of(data, HALF_TILINGS[0]))
    assert np.isposinf(result[[0, 2]]).all()
    assert np.isnan(result[1]).all()
    assert np.isfinite(result[3]).all()


def filled(packed, tiling):
    """Places of the stream that warps go through."""
    return packed["trips"].sum(dtype=np.int64) * tiling.sub * tiling.unit


def test_a_window_keeps_padding_low_and_warps_even():
    sparse = matrix(1024, 1024, 0.1, seed=1)
    wide = RingSpmmTiling(4, 16, 16, 1, 64, 6, 2, 8)
    narrow = RingSpmmTiling(4, 16, 16, 1, 64, 1, 2, 3)
    assert filled(ring.pack(sparse, narrow), narrow) > 1.5 * sparse.nnz
    packed = ring.pack(sparse, wide)
    assert filled(packed, wide) < 1.03 * sparse.nnz
    per_warp = packed["trips"].sum(axis=2, dtype=np.int64).reshape(-1, wide.warps, packed["trips"].shape[1])
    assert per_warp.max(axis=1).sum() < 1.45 * per_warp.mean(axis=1).sum()
    assert per_warp.sum(axis=(1, 2)).max() < 1.02 * per_warp.sum(axis=(1, 2)).mean()


def test_tilings_fit_every_architecture_and_are_few():
    shapes = ((8192, 2048, 128), (512, 2048, 2048), (2048, 512, 2048), (4096, 1024, 128), (2048, 2048, 32))
    for m, k, n in shapes:
        shared = SharedWork()
        for dtype, arch in itertools.product(DTYPES, ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100")):
            wanted = Problem("test", "test", "spmm", m, k, n, 0.9, "uniform:0", dtype)
            found = ring.tilings(wanted, np.full(m, k // 10), arch, shared)
            assert 0 < len(found) <= 12
            assert all(tiling.shared_bytes <= block_shared_bytes(arch) for tiling in found)


def test_refuses_what_it_is_not_made_for():
    small = operands(matrix(8, 8, 0.5), 4)
    with pytest.raises(Unsupported, match="too few tiles"):
        list(ring.ring.plans(problem(small), small, "sm_90"))
    dense = operands(matrix(2, 600, 1.0), 4)
    with pytest.raises(Unsupported, match="510"):
        plan_of(dense, RingSpmmTiling(8, 4, 2, 1, 600, 1, 1, 1))


def test_a_row_that_outlasts_the_rest_is_shared_by_more_warps():
    wanted = Problem("test", "test", "spmm", 4096, 4096, 128, 0.99, "uniform:0")
    even = np.full(4096, 40)
    uneven = np.where(np.arange(4096) == 7, 4096, even)
    assert ring.tilings(wanted, uneven, "sm_90")[0].ksplit > ring.tilings(wanted, even, "sm_90")[0].ksplit


def test_tilings_for_uneven_rows_average_many_rows_per_warp_and_read_further_ahead():
    wanted = Problem("test", "test", "spmm", 8192, 2048, 128, 0.75, "uniform:0")
    uneven = np.random.default_rng(0).gamma(4.0, 128.0, 8192).clip(0, 2048).astype(np.int64)
    first = ring.tilings(wanted, uneven, "sm_90")[0]
    even = ring.tilings(wanted, np.full(8192, 512), "sm_90")[0]
    assert (first.row_steps, first.ksplit, first.read_ahead) == (4, 4, 4)
    assert (even.ksplit, even.read_ahead) == (1, 2)
