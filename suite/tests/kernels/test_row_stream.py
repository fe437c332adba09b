"""`row_stream` in fp32 and fp16 against float64 on the processor, and its packed form against the matrix it holds."""

import numpy as np
import pytest
from kernel_problems import operands_of
from on_cpu import check, execute
from on_cpu import spmm_problem as problem

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels import row_stream
from nnzbench.kernels.registry import kernels
from nnzbench.kernels.row_stream import PieceTiling


def operands(dense, n, dtype="f16"):
    return operands_of(dense, n).cast(dtype)


def test_sums_of_pieces_stay_in_fp32():
    pieces = np.tile(np.array([1, 2.0**-12, 1, -1, 1, -1, 1, -1], dtype=np.float32), (8, 1))
    pieces[0, :2] = -4, -3  # what is left are the seven small values, each beside a 1 that fp16 would round it to
    data = operands(np.vstack([pieces.reshape(1, 64), np.ones((1, 64), dtype=np.float32)]), 8)
    data.dense["b"][:] = 1.0
    plan = row_stream.make_plan(problem(data), data, PieceTiling(4, 8, 32, 8, 8))
    assert (execute(plan) == [[7 * 2.0**-12], [64]]).all()
    assert plan.launches[0].args[1] == 1  # rows of several pieces


def test_columns_beyond_16_bits_take_pairs_of_eight_bytes_and_the_variant_says_so():
    indices = np.array([0, 65_535, 65_536, 69_999, 69_999], dtype=np.int32)
    matrix = CSR(3, 70_000, np.array([0, 4, 4, 5]), indices, np.arange(1, 6, dtype=np.float32))
    b = np.random.default_rng(1).standard_normal((70_000, 8), dtype=np.float32)
    data = Operands(matrix, {"b": b}, "").cast("f16")
    plan = next(row_stream.row_stream.plans(problem(data), data, "sm_90"))
    assert plan.variant.endswith("_i32_k_above_65535")
    assert (plan.defines["F16"], plan.defines["INDEX16"]) == (1, 0)
    check(plan, problem(data), data)


def test_rows_stream_refuses_what_equal_slots_would_blow_up():
    rows, k = 40_000, 300_000
    offsets = np.concatenate([[0], k + np.arange(rows)])
    indices = np.concatenate([np.arange(k), np.zeros(rows - 1, dtype=np.int64)]).astype(np.int32)
    matrix = CSR(rows, k, offsets, indices, np.ones(indices.size, dtype=np.float32))
    data = Operands(matrix, {"b": np.ones((k, 1), dtype=np.float32)}, "")
    with pytest.raises(Unsupported, match="uneven"):
        next(row_stream.row_stream.plans(problem(data), data, "sm_90"))


def test_a_grid_too_long_in_y_is_left_out_or_refused():
    def asked(m, n, op="spmm"):
        a = CSR(m, 4, np.arange(m + 1, dtype=np.int32) // 2, np.zeros(m // 2, np.int32), np.ones(m // 2, np.float32))
        dense = {"b": np.zeros((4, n), np.float32), "bias": np.zeros(m, np.float32)}
        return Problem("t", "t", op, m, 4, n, 0.9, ""), Operands(a, dense, ""), "sm_90"

    found = list(kernels()["row_stream"].plans(*asked(8, 3_211_264)))
    assert found
    assert all(plan.launches[0].grid[1] <= 65535 for plan in found)
    with pytest.raises(Unsupported, match="at most 65535"):
        next(kernels()["row_stream_bias_relu"].plans(*asked(70_000, 8, "pointwise")))
