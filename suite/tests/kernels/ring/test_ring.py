"""The packed form of the ring kernel against the matrix it holds, and the tilings that it is tried with."""

import pytest
from on_cpu import matrix
from on_cpu import spmm_operands as operands
from on_cpu import spmm_problem as problem

from nnzbench.core.plan import Unsupported
from nnzbench.kernels.ring import spmm as ring
from nnzbench.kernels.ring.spmm import RingSpmmTiling


def test_refuses_what_it_is_not_made_for():
    small = operands(matrix(8, 8, 0.5), 4)
    with pytest.raises(Unsupported, match="too few tiles"):
        list(ring.ring.plans(problem(small), small, "sm_90"))
    dense = operands(matrix(2, 600, 1.0), 4)
    with pytest.raises(Unsupported, match="510"):
        ring.make_plan(problem(dense), dense, RingSpmmTiling(8, 4, 2, 1, 600, 1, 1, 1))
