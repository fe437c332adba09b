"""The SDDMM ring against float64 on the processor, and its packed form against the pattern it holds."""

import numpy as np
import pytest
from kernel_cases import RING_SDDMM, fitted
from kernel_problems import sampled, without_columns
from on_cpu import error_of, matrix

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.ring import sddmm as ring_sddmm


def operands(pattern, k):
    return sampled(pattern, k)[1]


def problem(data):
    pattern, k = data.sparse, data.dense["a"].shape[1]
    return Problem("test", "test", "sddmm", pattern.m, k, pattern.k, pattern.sparsity, "uniform:0")


def plan_of(data, tiling):
    return ring_sddmm.make_plan(problem(data), data, fitted(tiling, data.sparse.k))


def error(plan, data, build="plain", order="forward"):
    return error_of(plan, problem(data), data, build, order)


def test_sums_that_take_too_much_memory_are_refused(monkeypatch):
    monkeypatch.setattr(ring_sddmm, "_MOST_SUM_BYTES", 1000)
    data = operands(matrix(20, 30, 0.5), 300)
    with pytest.raises(Unsupported, match="too many sums"):
        list(ring_sddmm.ring_sddmm.plans(problem(data), data, "sm_90"))


def test_inf_and_nan_in_unused_rows_do_not_leak():
    clean = operands(CSR.from_dense(without_columns(matrix(20, 64, 0.2, empty=(5,)).to_dense(), 0, 17, 63)), 50)
    a, b = clean.dense["a"].copy(), clean.dense["b"].copy()
    a[5] = np.nan
    b[[0, 17, 63]] = [[np.inf], [np.nan], [-np.inf]]
    plan = plan_of(Operands(clean.sparse, {"a": a, "b": b}, ""), RING_SDDMM[1])
    assert error(plan, clean) < 1e-6


def test_a_part_of_the_columns_may_have_no_entries():
    dense = matrix(40, 200, 0.2).to_dense()
    dense[:, 128:] = 0
    pattern = CSR.from_dense(dense)
    assert RING_SDDMM[1].parts == 2
    data = operands(pattern, 36)
    assert error(plan_of(data, RING_SDDMM[1]), data) < 1e-6


def test_first_plans_are_right_and_nothing_to_compute_is_refused():
    data = operands(matrix(150, 200, 0.1), 40)
    plans = ring_sddmm.ring_sddmm.plans(problem(data), data, "sm_70")
    assert error(next(plans), data) < 1e-6
    empty = operands(matrix(3, 4, density=0.0), 8)
    with pytest.raises(Unsupported, match="no nonzeros"):
        next(ring_sddmm.ring_sddmm.plans(problem(empty), empty, "sm_90"))
