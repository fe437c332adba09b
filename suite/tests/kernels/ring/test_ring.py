"""What the ring kernel is not made for, and how much a byte counts."""

from contextlib import nullcontext

import numpy as np
import pytest
from on_cpu import matrix
from on_cpu import spmm_operands as operands
from on_cpu import spmm_problem as problem

from nnzbench.core.plan import Unsupported
from nnzbench.kernels.ring import spmm as ring
from nnzbench.kernels.ring.order import Strands
from nnzbench.kernels.ring.spmm import RingSpmmTiling


def test_refuses_what_it_is_not_made_for():
    small = operands(matrix(8, 8, 0.5), 4)
    with pytest.raises(Unsupported, match="too few tiles"):
        list(ring.ring.plans(problem(small), small, "sm_90"))
    dense = operands(matrix(2, 600, 1.0), 4)
    with pytest.raises(Unsupported, match="510"):
        ring.make_plan(problem(dense), dense, RingSpmmTiling(8, 4, 2, 1, 600, 1, 1, 1))


@pytest.mark.parametrize("nonzeros", [510, 511])
def test_a_byte_counts_the_units_of_a_step(nonzeros):
    one, numbers = np.ones(1, np.int64), np.arange(nonzeros)
    held = Strands.of(0 * one, one, nonzeros * one, numbers.astype(np.int32), numbers.astype(np.uint32), (nonzeros, 0))
    tiling = RingSpmmTiling(32, 4, 1, 1, block_k=512, window=1)
    with pytest.raises(Unsupported, match="over 510") if nonzeros > 510 else nullcontext():
        tiling.layout(held, held.landed(0 * numbers, 1), np.zeros((1, 1), np.int64), 0, np.ones(1), 2)
