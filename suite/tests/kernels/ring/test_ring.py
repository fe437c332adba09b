"""The packed form of the ring kernel against the matrix it holds, and the tilings that it is tried with."""

import numpy as np
import pytest
from on_cpu import matrix
from on_cpu import spmm_operands as operands
from on_cpu import spmm_problem as problem

from nnzbench.core.plan import Unsupported
from nnzbench.kernels.ring import spmm as ring
from nnzbench.kernels.ring.spmm import RingSpmmTiling


def filled(packed, tiling):
    """Places of the stream that warps go through."""
    return packed["trips"].sum(dtype=np.int64) * tiling.sub * 2


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


def test_refuses_what_it_is_not_made_for():
    small = operands(matrix(8, 8, 0.5), 4)
    with pytest.raises(Unsupported, match="too few tiles"):
        list(ring.ring.plans(problem(small), small, "sm_90"))
    dense = operands(matrix(2, 600, 1.0), 4)
    with pytest.raises(Unsupported, match="510"):
        ring.make_plan(problem(dense), dense, RingSpmmTiling(8, 4, 2, 1, 600, 1, 1, 1))
