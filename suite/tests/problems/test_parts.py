import threading

import numpy as np
import pytest

from nnzbench.problems.parts import over_parts


@pytest.mark.parametrize("shape", [(1,), (100,), (7, 13), (13, 7), (1, 1, 91), (2, 3, 5, 7), (0,), (0, 4), (4, 0)])
@pytest.mark.parametrize("elements", [1, 6, 10, 1000])
def test_parts_cover_the_array_once_and_are_no_larger_than_asked(shape, elements):
    seen = np.zeros(shape, int)
    lock = threading.Lock()

    def count(part):
        with lock:
            seen[part] += 1
        return seen[part].size

    sizes = over_parts(count, shape, elements)
    assert (seen == 1).all()
    assert all(size <= elements for size in sizes)


def test_parts_come_back_in_order_and_are_runs_of_memory():
    array = np.arange(60).reshape(3, 4, 5)
    parts = over_parts(lambda part: array[part].ravel(), array.shape, 10)
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(60))


def test_what_goes_wrong_in_a_part_is_raised():
    def fail(part):
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        over_parts(fail, (10,), 2)
