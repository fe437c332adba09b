"""`delta_spmv` against float64 on the processor, and its packed chunks against the matrix that they hold."""

import numpy as np
import pytest
from kernel_problems import assert_exact as exact
from kernel_problems import assert_spoils_its_users_alone, whole
from on_cpu import execute, matrix
from on_cpu import spmm_operands as operands
from on_cpu import spmm_problem as problem

from nnzbench.kernels.tensor.spmv import delta_spmv, make_plan, pack
from nnzbench.matrices.formats import CSR
from nnzbench.plans.architectures import block_shared_bytes
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.check import relative_error
from nnzbench.problems.operands import Operands
from nnzbench.problems.reference import reference

BUILDS = (("asan", "backward"), ("tsan", "forward"), ("plain", "random:5"))
# m, k, density, lanes: one row, steps beyond 32 columns, rows shorter than a chunk and of several rounds of all lanes
CASES = (
    (1, 300, 0.5, 32),
    (70, 1000, 0.02, 1),
    (33, 700, 0.3, 4),
    (300, 49, 0.9, 2),
    (41, 1100, 0.95, 2),
    (9, 7, 0.3, 1),
    (40, 600, 0.2, 4, "bf16"),
    (40, 600, 0.2, 4, "f8"),
    *((70, 331, 0.3, 4, dtype, *how) for dtype in ("f16", "f8") for how in BUILDS),
)


def assert_exact(sparse, lanes, dtype="f16", build="plain", order="forward", arch="sm_90"):
    data = whole(sparse, 1, dtype)
    exact(make_plan(problem(data, dtype), data, arch, lanes, 2), problem(data, dtype), data, build, order)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_sum_is_right_in_any_type_and_order_and_under_sanitizers(case):
    m, k, density, *how = case
    assert_exact(matrix(m, k, density, empty=(m - 1,) if m > 1 else (), full=m // 2), *how)


def test_empty_matrices_and_one_dense_row_among_empty_ones():
    dense = np.zeros((41, 900), dtype=np.float32)
    assert_exact(CSR.from_dense(dense), 8)
    dense[40] = 1
    assert_exact(CSR.from_dense(dense), 8)


def test_blocks_go_through_many_rows():
    """More rows than all warps take at once: the next row's first chunk travels while one is multiplied."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 3, 132 * 2 * 16 * 32 + 1000)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    assert_exact(CSR(lengths.size, 5, offsets, columns.astype(np.int32), np.ones(offsets[-1], np.float32)), 1)


def test_values_are_summed_in_fp32():
    data = operands(matrix(64, 900, 0.4), 1).cast("f16")
    for lanes in (1, 32):
        plan = make_plan(problem(data), data, "sm_90", lanes, 2)
        assert relative_error(execute(plan), reference(problem(data), data)) < 5e-4


def test_inf_and_nan_touch_only_the_rows_that_use_them():
    data = operands(matrix(200, 700, 0.02, empty=(4,), full=9), 1).cast("f16")
    for value in (np.inf, np.nan):
        b = np.zeros((700, 1), dtype=np.float16)
        b[::7] = value  # many stand where a zero is stored to reach further
        spoilt = Operands(data.sparse, {"b": b}, "")
        assert_spoils_its_users_alone(make_plan(problem(spoilt), spoilt, "sm_90", 4, 2), spoilt, 200, 0)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_weight_in_fp8_that_is_no_number_spoils_its_row_alone(arch):
    """Where the GPU has no such conversion, too, whose bits would make 480 of it."""
    data = operands(matrix(12, 90, 0.4, full=3), 1)
    values = data.sparse.values.copy()
    values[data.sparse.offsets[3] + 1] = np.nan
    data = Operands(data.sparse.with_values(values), data.dense, "").cast("f8")
    result = execute(make_plan(problem(data, "f8"), data, arch, 4, 2))
    assert np.flatnonzero(np.isnan(result[:, 0])).tolist() == [3]


def test_columns_far_apart_and_values_that_are_zero():
    columns = np.array([0, 1, 33, 34, 67, 600, 65535], np.int32)
    values = np.array([1, 2, 3, -0.0, 5, 6, 7], np.float16)
    sparse = CSR(1, 65536, np.array([0, 7], np.int32), columns, values)
    data = operands(sparse, 1).cast("f16")
    plan = make_plan(problem(data), data, "sm_90", 4, 2)
    assert relative_error(execute(plan), reference(problem(data), data)) < 5e-4


@pytest.mark.parametrize(
    ("m", "k", "n", "reason"), [(8, 8, 2, "one column"), (1, 70000, 1, "16 bits"), (0, 8, 1, "empty")]
)
def test_what_it_does_not_compute(m, k, n, reason):
    empty = CSR(m, k, np.zeros(m + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
    data = operands(empty, n).cast("f16")
    with pytest.raises(Unsupported, match=reason):
        next(delta_spmv.plans(problem(data), data, "sm_90"))


def test_a_vector_that_does_not_fit_in_shared_memory():
    data = operands(matrix(4, 60000, 0.001), 1).cast("f16")
    with pytest.raises(Unsupported, match="shared memory"):
        next(delta_spmv.plans(problem(data), data, "sm_86"))
    assert next(delta_spmv.plans(problem(data), data, "sm_90")).launches[0].shared_bytes <= block_shared_bytes("sm_90")


def test_entries_of_either_zero_take_no_place():
    zeros = CSR.from_dense(np.ones((2, 5), np.float16)).with_values(np.array([1, 0.0, -0.0, 2, 3] * 2, np.float16))
    packed, wanted = pack(zeros), pack(CSR.from_dense(zeros.to_dense()))
    for name, part in packed.items():
        np.testing.assert_array_equal(part, wanted[name])
