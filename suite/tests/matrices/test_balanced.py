"""Counts that hold at the edges: halves, ranges that keep less than one, short last ranges, wide ones."""

import numpy as np
import pytest

from nnzbench.matrices import generate, prune
from nnzbench.matrices.formats import CSR
from nnzbench.matrices.prune import BalancedMatrix


@pytest.mark.parametrize(("size", "sparsity", "kept"), [(5, 0.5, 2), (6, 0.25, 4), (10, 0.25, 7), (4, 1.0, 0)])
def test_half_a_weight_is_dropped(size, sparsity, kept):
    assert prune.keep_count(size, sparsity) == kept


@pytest.mark.parametrize(
    ("m", "k", "sparsity", "cov"), [(4, 8, 0.8, 1.8), (64, 64, 0.8, 1.998), (8, 16, 0.9, 2.97), (128, 128, 0.9, 2.997)]
)
def test_row_lengths_whose_quantiles_are_too_many_are_shortened(m, k, sparsity, cov):
    assert generate.uneven_rows(m, k, sparsity, cov, 0).nnz == prune.keep_count(m * k, sparsity)


def test_surplus_entries_of_a_short_last_range_are_no_nonzeros():
    dense = np.zeros((3, 7), np.float32)
    dense[:, [0, 2, 3, 5, 6]] = np.arange(1, 16).reshape(3, 5)  # in ranges of 3, 3 and 1 columns
    packed = BalancedMatrix.from_csr(CSR.from_dense(dense), 3)
    assert (packed.width, packed.keep, packed.last_keep) == (3, 2, 1)
    assert (packed.nnz, packed.values.size) == (15, 18)


@pytest.mark.parametrize(("columns", "kind"), [(256, np.uint8), (257, np.uint16)])
def test_positions_take_two_bytes_where_one_does_not_reach(columns, kind):
    dense = np.zeros((2, columns), np.float32)
    dense[:, [0, columns - 1]] = 1
    packed = BalancedMatrix.from_csr(CSR.from_dense(dense), 1)
    assert packed.positions.dtype == kind
    np.testing.assert_array_equal(packed.to_csr().to_dense(), dense)
