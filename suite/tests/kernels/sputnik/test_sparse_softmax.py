import numpy as np
import pytest
from on_cpu import check, execute, fresh_cache, matrix  # noqa: F401

from nnzbench.kernels.registry import kernels
from nnzbench.kernels.sputnik.layers import softmax_plan
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.check import passes, relative_error
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem
from nnzbench.problems.reference import reference


def expected(scores):
    return reference(Problem("test", "t", "sparse_softmax", scores.m, scores.k, 0, 0.0, ""), Operands(scores, {}, ""))


AWKWARD = {
    "one entry": matrix(1, 1, density=1.0),
    "rows longer than the registers hold": matrix(3, 300, density=0.9),
    "full row, empty rows": matrix(37, 70, empty=(0, 5, 36), full=9),
}


@pytest.mark.parametrize("build", ["asan", "tsan"])
@pytest.mark.parametrize("case", AWKWARD)
def test_awkward_shapes(case, build):
    scores = AWKWARD[case]
    assert passes(relative_error(execute(softmax_plan(scores, 16, 4, 2), build), expected(scores)), "f32")


def test_large_scores_do_not_overflow():
    scores = matrix(7, 40, density=0.8)
    scores = scores.with_values(scores.values * np.float32(300) + np.float32(500))
    assert passes(relative_error(execute(softmax_plan(scores, 16, 4, 2)), expected(scores)), "f32")


def test_minus_infinity_is_a_masked_entry():
    scores = CSR.from_dense(np.array([[1.0, -np.inf, 2.0], [-np.inf, -np.inf, -np.inf]], dtype=np.float32))
    result = execute(softmax_plan(scores, 16, 4, 2))
    np.testing.assert_allclose(result[:3], np.array([1, 0, np.e]) / (1 + np.e), rtol=1e-6)
    assert np.isnan(result[3:]).all()


def test_nan_spoils_its_row_alone():
    scores = matrix(4, 60, density=0.7)
    values = scores.values.copy()
    values[scores.offsets[2] + 5] = np.nan
    result = execute(softmax_plan(scores.with_values(values), 16, 4, 2))
    row = slice(scores.offsets[2], scores.offsets[3])
    assert np.isnan(result[row]).all()
    assert np.isfinite(np.delete(result, np.r_[row])).all()


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_every_plan_is_correct(dtype):
    problem = Problem("test", "t", "sparse_softmax", 13, 70, 0, 0.7, "", dtype)
    operands = Operands(matrix(13, 70, full=2, empty=(3,)), {}, "").cast(dtype)
    for plan in kernels()["sparse_softmax"].plans(problem, operands, "sm_90"):
        check(plan, problem, operands)


def test_no_nonzeros_is_unsupported():
    with pytest.raises(Unsupported, match="no nonzeros"):
        softmax_plan(matrix(3, 4, density=0.0))
