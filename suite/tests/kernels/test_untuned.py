"""The kernel that measures nothing: one plan, of the family and tiling that are predicted to be fastest."""

import numpy as np
import pytest
from on_cpu import execute, matrix
from vendor_candidates import product

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.check import relative_error
from nnzbench.data.problems.reference import reference
from nnzbench.kernels.composed.untuned import untuned


@pytest.fixture
def order(monkeypatch):
    """The families as the rule is to rank them."""
    ranked: list[str] = []
    monkeypatch.setattr("nnzbench.kernels.composed.untuned.ranked_families", lambda *_: ranked)
    return ranked


def test_a_family_of_other_arithmetic_is_passed_over(order):
    """fp32 is neither taken for bf16 nor rounded to TF32."""
    order[:] = ["tensor_spmm", "row_stream"]
    (plan,) = untuned.plans(*product(matrix(64, 64, 0.2), 8), "sm_90")
    assert plan.variant.startswith("row_stream_")
    assert plan.math == "f32"
    order[:] = ["tensor_spmm"]
    with pytest.raises(Unsupported, match="no family"):
        list(untuned.plans(*product(matrix(64, 64, 0.2), 8), "sm_90"))


@pytest.mark.parametrize("dtype", ["f32", "f16", "f8"])
def test_the_rule_in_use_takes_any_matrix_and_the_result_is_right(dtype):
    empty = CSR.from_dense(np.zeros((7, 9), dtype=np.float32))
    for sparse, n in ((matrix(33, 70, 0.1, empty=(0, 32), full=5), 49), (matrix(1, 40, 0.5), 1), (empty, 7)):
        problem, data = product(sparse, n, dtype)
        (plan,) = untuned.plans(problem, data, "sm_90")
        assert relative_error(execute(plan), reference(problem, data)) < (1e-6 if dtype == "f32" else 1e-3)
