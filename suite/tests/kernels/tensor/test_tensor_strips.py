"""The packed strips of `tensor_spmm` against the matrix they hold, and what is expected of their bytes and banks."""

import numpy as np
import pytest
from kernel_problems import whole
from on_cpu import matrix

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices import generate
from nnzbench.kernels.tensor import spmv, strips
from nnzbench.kernels.tensor.strips import dealt_starts, pack


def test_banks_are_dealt_alike_without_a_new_numpy(monkeypatch):
    turns = np.random.default_rng(0).integers(0, 1 << 20, (5, 32), dtype=np.uint32)
    usual = dealt_starts(turns)
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    assert np.array_equal(dealt_starts(turns), usual)
    assert np.array_equal(dealt_starts(turns.astype(np.uint64)), usual)
    assert dealt_starts(turns[:0]).shape == (0, 32)
    assert not dealt_starts(np.zeros((1, 32), np.uint32)).any()


@pytest.mark.parametrize("density", [0.0, 0.01, 0.4, 1.0])
@pytest.mark.parametrize(
    ("module", "block", "most", "sizes", "dtype"),
    [
        (spmv, "_BLOCK_NONZEROS", 100, (), "f16"),
        (strips, "_BLOCK_ELEMENTS", 1, (1, 128), "f16"),
        (strips, "_BLOCK_ELEMENTS", 1, (2, 128, 4, "pairs", True), "f16"),
        *((strips, "_BLOCK_ELEMENTS", 1, (*sizes, 1, "tf32"), "f32") for sizes in ((1, 32), (4, 256), (2, 64))),
    ],
)
def test_packing_in_blocks_changes_nothing(module, block, most, sizes, dtype, density, monkeypatch):
    sparse = whole(matrix(75, 600, density, empty=(44,), full=3 if density else -1), 1, dtype).sparse

    def packed():
        made = module.pack(sparse, *sizes)
        return made if isinstance(made, dict) else vars(made)

    one = packed()
    monkeypatch.setattr(module, block, most)
    for name, part in packed().items():
        assert np.array_equal(part, one[name]), name


def test_the_first_chunk_without_room_ends_the_packing(monkeypatch):
    sparse = generate.uniform(4096, 1024, 0.5, 0)
    values = sparse.with_values(np.ones(sparse.nnz, np.uint16))
    least = pack(values, 1, 512).slot_bytes
    assert pack(values, 1, 512, most_bytes=least).slot_bytes == least
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    packed = []
    dense = strips._dense
    monkeypatch.setattr(strips, "_BLOCK_ELEMENTS", 1 << 16)
    monkeypatch.setattr(strips, "_dense", lambda *args: packed.append(args) or dense(*args))
    with pytest.raises(Unsupported, match=f"more than {least // 2} bytes"):
        pack(values, 1, 512, most_bytes=least // 2)
    assert len(packed) < 8  # of 64 parts
