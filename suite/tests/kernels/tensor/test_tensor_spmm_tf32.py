"""`tensor_spmm_tf32` against float64 on the processor, and its packed strips against the matrix they hold."""

import numpy as np
import pytest
from kernel_cases import TF32
from kernel_problems import assert_spoils_its_users_alone
from on_cpu import execute, matrix
from on_cpu import spmm_operands as operands
from on_cpu import spmm_problem as problem

from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.reference import reference
from nnzbench.kernels.tensor.spmm import make_plan
from nnzbench.kernels.tensor.strips import rounded


@pytest.mark.parametrize("tiling", [TF32[1], TF32[2]], ids=str)
def test_random_values_are_within_the_tolerance_of_tf32(tiling):
    data = operands(matrix(64, 500, 0.2), 24)
    plan = make_plan(problem(data), data, tiling)
    assert plan.math == "tf32"
    error = relative_error(execute(plan), reference(problem(data), data))
    assert passes(error, "tf32")
    assert not passes(error, "f32")


def test_inf_and_nan_touch_only_the_rows_that_use_them():
    data = operands(matrix(45, 290, 0.3, empty=(4,), full=9), 11)
    b = data.dense["b"].copy()
    b[7, 3], b[130, 3], b[131, 5], b[289, 10] = np.inf, -np.inf, np.nan, np.inf
    b[12, 7] = np.array(0x7F800001, np.uint32).view(np.float32)  # a NaN that TF32 would take for infinite
    spoilt = Operands(data.sparse, {"b": b}, "")
    assert_spoils_its_users_alone(make_plan(problem(spoilt), spoilt, TF32[2]), spoilt, 5 * 45, 0.1)


def test_rounding_to_tf32():
    step = np.float32(2.0**-10)
    values = np.array([1, 1 + step / 2, 1 + step / 4, -1 - step / 2, 3.4028235e38, 1e-45, 0, -0.0], np.float32)
    expected = np.array([1, 1 + step, 1, -1 - step, (2 - 2.0**-10) * 2.0**127, 0, 0, -0.0], np.float32)
    assert np.array_equal(rounded(values), expected.view(np.uint32))
