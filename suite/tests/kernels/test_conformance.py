"""What every kernel of matrices has to pass: awkward sizes, empty and full rows, no nonzeros, one column, every type,
sanitizers and shuffled schedules against float64 on the processor; infinities and NaN that reach their users alone.

What only one kernel has is in its own file.
"""

from dataclasses import replace

import numpy as np
import pytest
from kernel_cases import ALONE, CASES, TENSOR

from nnzbench.data.problems.check import relative_error
from nnzbench.data.problems.reference import reference


@pytest.mark.parametrize("case", dict.fromkeys(CASES), ids=str)
def test_results_are_those_of_float64(case):
    """In fp16 and bf16 to half a step beside what sums in fp32 lose; whole numbers to the bit."""
    problem, data = case.operands()
    plan, result = case.result(problem, data)
    truth = reference(problem, data)
    if case.kernel in TENSOR:
        assert np.abs(truth.value).max(initial=0) < 256
        assert np.array_equal(result, truth.value), plan.variant
    elif plan.math == "f32":
        assert relative_error(result, truth) < 1e-6, plan.variant
    else:
        assert result.dtype == np.float16
        allowed = 2.0**-11 * np.abs(truth.value) + 1e-6 * truth.scale + 2.0**-25
        assert (np.abs(result.astype(np.float64) - truth.value) <= allowed).all(), plan.variant


@pytest.mark.parametrize("case", ALONE, ids=str)
def test_infinities_and_nan_reach_the_rows_that_use_them_and_no_other(case):
    """Where a zero is stored, or a place past the last filled, none is multiplied with."""
    problem, data = case.operands()
    b = data.dense["b"].copy()
    b[7], b[[130, 131]], b[[257, 289]] = np.inf, np.nan, -np.inf
    spoilt = replace(data, dense={"b": b})
    with np.errstate(invalid="ignore"):
        expected = data.sparse.to_scipy() @ b.astype(np.float64)
    assert 0 < np.count_nonzero(~np.isfinite(expected)) < expected.size
    plan, result = case.result(problem, spoilt)
    if case.kernel == "sputnik":  # which fills a row's last load up with zeros, so that infinities are NaN there
        result, expected = (np.where(np.isfinite(one), one, np.nan) for one in (result, expected))
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=0, atol=1e-1, err_msg=plan.variant)


@pytest.mark.parametrize("case", ALONE, ids=str)
def test_a_zero_that_the_matrix_stores_is_multiplied_or_counts_as_absent(case):
    """Times an infinity it is NaN, and nothing in the formats that keep no zeros (docs/kernels.md)."""
    problem, data = case.operands()
    zeroed = data.sparse.with_values(np.where(data.sparse.indices == 7, 0, data.sparse.values))
    b = data.dense["b"].copy()
    b[7] = np.inf
    _, result = case.result(problem, replace(data, sparse=zeroed, dense={"b": b}))
    rows = np.isin(np.arange(zeroed.m), zeroed.rows[zeroed.indices == 7])
    assert rows.any()
    assert np.array_equal(np.isnan(result).all(axis=1), rows & (case.kernel not in TENSOR))
    assert np.isfinite(result[~rows]).all()
