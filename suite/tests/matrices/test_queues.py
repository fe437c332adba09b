"""Queues before processing elements: by hand, and what never changes."""

import numpy as np
import pytest

from nnzbench.matrices.formats import CSR
from nnzbench.matrices.prune import elements
from nnzbench.matrices.queues import entries_by_element, utilisation


def test_without_a_queue_every_input_takes_as_long_as_its_slowest_element():
    entries = np.array([[3, 1], [1, 3], [2, 2]])
    assert utilisation(entries, [1]) == [pytest.approx(12 / (2 * (3 + 3 + 2)))]


def test_a_queue_lets_others_go_ahead():
    entries = np.array([[3, 1], [1, 3], [2, 2]])
    # element 0: 0-3, 3-4, 4-6; element 1: 0-1, 1-4, 4-6
    assert utilisation(entries, [2, 8]) == [pytest.approx(1.0), pytest.approx(1.0)]


def test_an_element_without_entries_is_idle_for_a_clock():
    assert utilisation(np.array([[0, 1]]), [1]) == [pytest.approx(0.5)]
    assert utilisation(np.zeros((3, 2), int), [1, 2]) == [0.0, 0.0]


def test_deeper_queues_never_lose():
    entries = np.random.default_rng(0).poisson(3, (300, 16))
    found = utilisation(entries, [1, 2, 4, 8, 16, 64])
    assert found == sorted(found)
    assert found[0] < 0.6 < 0.9 < found[-1]


def test_entries_are_counted_where_they_lie_and_long_runs_are_broken():
    dense = np.zeros((80, 3), np.float32)
    dense[[0, 4, 1], [0, 0, 1]] = 1
    dense[4 * 17 + 2, 2] = 1  # the 18th row of element 2: a run of 17 zeros
    found = entries_by_element(CSR.from_dense(dense), 4)
    assert found.tolist() == [[2, 0, 0, 0], [0, 1, 0, 0], [0, 0, 2, 0]]


@pytest.mark.parametrize(("m", "k"), [(64, 40), (65, 33)])
def test_load_balance_aware_pruning_keeps_as_many_for_every_element(m, k):
    balanced, whole = (elements(m, k, 0.9, count, 0) for count in (32, 1))
    assert abs(balanced.nnz - whole.nnz) <= 32
    each = [balanced.row_lengths[first::32].sum() for first in range(m % 32 if m % 32 else 0, 32)]
    assert len(set(map(int, each))) == 1
    assert len({int(whole.row_lengths[first::32].sum()) for first in range(32)}) > 1
