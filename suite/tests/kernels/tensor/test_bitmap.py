"""SpInfer's format against the matrix that it holds."""

import numpy as np
import pytest
from on_cpu import matrix

from nnzbench.kernels.tensor.spinfer import most_values, pack
from nnzbench.matrices.formats import CSR


def unpacked(packed, m, k):
    """Bit by bit, as the header of `spinfer.cu` tells."""
    dense = np.zeros((m, k), dtype=np.float16)
    values = packed["values"].view(np.float16).ravel()
    for tile in range(len(packed["maps"])):
        first_row, first_column = (64 * place for place in divmod(tile, k // 64))
        at = 8 * packed["offsets"][tile]
        for nth, bits in enumerate(packed["maps"][tile]):
            strip, of_strip = divmod(nth, 16)
            if of_strip == 0:
                assert packed["strips"][tile, strip] == at - 8 * packed["offsets"][tile]
            group, (right, bottom) = of_strip // 4, divmod(of_strip % 4, 2)
            for bit in range(64):
                if int(bits) >> bit & 1:
                    row = first_row + 16 * strip + 8 * bottom + bit // 8
                    dense[row, first_column + 16 * group + 8 * right + bit % 8] = values[at]
                    at += 1
        assert not values[at : 8 * packed["offsets"][tile + 1]].any()
        assert 0 <= 8 * packed["offsets"][tile + 1] - at < 8
    return dense


@pytest.mark.parametrize("density", [0.0, 0.03, 0.4, 1.0])
def test_packed_tiles_hold_the_matrix(density):
    sparse = matrix(128, 192, density, empty=(5,), full=9 if density else -1)
    sparse = sparse.with_values(sparse.values.astype(np.float16))
    packed = pack(sparse)
    assert packed["maps"].shape == (6, 64)
    assert np.array_equal(unpacked(packed, 128, 192), sparse.to_dense())
    tiles = sparse.to_dense().reshape(2, 64, 3, 64).swapaxes(1, 2).reshape(6, -1)
    assert most_values(packed["offsets"]) == -(-np.count_nonzero(tiles, axis=1).max() // 8) * 8


def test_values_that_are_zero_count_as_absent():
    values = np.array([0.0, -0.0, 2.0], np.float16)
    offsets = np.concatenate([[0], np.full(64, 3)]).astype(np.int32)
    packed = pack(CSR(64, 64, offsets, np.array([0, 1, 3], np.int32), values))
    assert packed["offsets"].tolist() == [0, 1]
    assert packed["maps"][0, 0] == 8
