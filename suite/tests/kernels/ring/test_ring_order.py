"""Rows dealt to warps, each once and evenly; nonzeros taken between landing and leaving, at an even pace."""

from contextlib import nullcontext

import numpy as np
import pytest

from nnzbench.core.plan import Unsupported
from nnzbench.kernels.ring.order import (
    Strands,
)
from nnzbench.kernels.ring.spmm import RingSpmmTiling

WARPS, SETS, SUB, STEPS, WINDOW, UNIT = 4, 2, 3, 9, 3, 2
ROWS = WARPS * SETS * SUB - 1


def nonzeros(seed):
    """Row and step of about 20 nonzeros of each row, row after row."""
    rng = np.random.default_rng(seed)
    row = np.sort(rng.integers(0, ROWS, 20 * ROWS))
    return row, np.sort(row * STEPS + rng.integers(0, STEPS, row.size)) % STEPS


@pytest.mark.parametrize("nonzeros", [510, 511])
def test_a_byte_counts_the_units_of_a_step(nonzeros):
    one, numbers = np.ones(1, np.int64), np.arange(nonzeros)
    held = Strands.of(0 * one, one, nonzeros * one, numbers.astype(np.int32), numbers.astype(np.uint32), (nonzeros, 0))
    tiling = RingSpmmTiling(32, 4, 1, 1, block_k=512, window=1)
    with pytest.raises(Unsupported, match="over 510") if nonzeros > 510 else nullcontext():
        tiling.layout(held, held.landed(0 * numbers, 1), np.zeros((1, 1), np.int64), 0, np.ones(1), UNIT)
