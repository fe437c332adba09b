"""The packed strips of `tensor_spmm` against the matrix they hold, and what is expected of their bytes and banks."""

import numpy as np
import pytest
from kernel_cases import TILINGS
from kernel_problems import whole
from on_cpu import matrix
from on_cpu import spmm_problem as problem

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices import generate
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.problem import ITEM_BYTES, Problem
from nnzbench.kernels.tensor import spmv, strips, tf32_strips
from nnzbench.kernels.tensor.spmm import bytes_per_weight, make_plan, structure_bytes, words_per_weight
from nnzbench.kernels.tensor.strips import FORMS, FP8_FORMS, dealt_starts, pack


def test_first_chunks_need_no_looking_up():
    sparse = whole(matrix(70, 900, 0.2), 1).sparse
    packed = pack(sparse, 1, 128)
    heads = packed.first_chunks(3)
    assert heads.shape == (3, 3, packed.slot_bytes // 16, 4)
    for strip in range(3):
        for at in range(3):
            chunk = packed.panel_chunks[strip * packed.panels + packed.panels * at // 3]
            begin, end = packed.offsets[chunk], packed.offsets[chunk + 1]
            assert np.array_equal(heads[strip, at, : end - begin], packed.stream[begin:end])
    data = whole(matrix(40, 100, 0.3), 8)
    with pytest.raises(Unsupported, match="3 slices for 1 panels"):
        make_plan(problem(data), data, TILINGS[10])


def turns_taken(packed, map_words):
    """Of chunks of `words`: whether a lane takes a word in each of its turns, (chunks, lanes, turns)."""
    words = packed.stream.ravel()
    bits = np.stack([words[4 * at : 4 * at + 32 * map_words] for at in packed.offsets[:-1]])
    by_lane = np.ascontiguousarray(bits.reshape(-1, 32, map_words)).view(np.uint8)
    return np.unpackbits(by_lane, axis=2, bitorder="little").astype(bool)


@pytest.mark.parametrize(("density", "map_words", "most"), [(0.1, 1, 1.4), (0.1, 2, 1.6), (0.3, 1, 2.3)])
def test_dealt_words_lie_in_other_banks(density, map_words, most):
    """Wavefronts of a turn: how many different words the fullest bank has to give."""
    sparse = generate.uniform(256, 512, 1 - density, 0)
    values = sparse.with_values(np.ones(sparse.nnz, np.uint16))

    def wavefronts(dealt):
        packed = pack(values, map_words, 512, dealt=dealt)
        turns = turns_taken(packed, map_words)
        words = packed.stream.ravel()
        at = 4 * packed.offsets[:-1, None] + 32 * map_words
        starts = words[at + np.arange(16)].view(np.uint16) // 4
        rank = np.cumsum(turns, axis=2) - turns
        used = np.zeros((len(turns), turns.shape[2], 32), dtype=int)
        chunk, lane, turn = np.nonzero(turns)
        np.add.at(used, (chunk, turn, (starts[chunk, lane] + rank[chunk, lane, turn]) % 32), 1)
        full = turns.sum(axis=(1, 2)) > turns.sum(axis=(1, 2)).max() / 2  # not those of gathered columns
        return float(used[full].max(axis=2).mean())

    assert wavefronts(dealt=True) < most < wavefronts(dealt=False) - 0.2
    plain, dealt = pack(values, map_words, 512), pack(values, map_words, 512, dealt=True)
    assert np.array_equal(plain.offsets, dealt.offsets)
    assert np.array_equal(turns_taken(plain, map_words), turns_taken(dealt, map_words))


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
        *((tf32_strips, "_BLOCK_ELEMENTS", 1, sizes, "f32") for sizes in ((1, 32), (4, 256), (2, 64))),
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


def test_values_that_are_zero_count_as_absent():
    sparse = CSR(
        1, 4, np.array([0, 3], np.int32), np.array([0, 1, 3], np.int32), np.array([0.0, -0.0, 2.0], np.float16)
    )
    packed = pack(sparse, 1, 128)
    assert np.count_nonzero(packed.stream.ravel()[:32]) == 1  # bits of one pair


@pytest.mark.parametrize("density", [0.01, 0.1, 0.3, 0.5, 0.7, 1.0])
def test_the_expected_bytes_are_those_of_a_packed_uniform_matrix(density):
    sparse = generate.uniform(512, 2048, 1 - density, 0)
    values = sparse.with_values(np.ones(sparse.nnz, np.uint16))
    for dtype, of_dtype in (("f16", FORMS), ("f8", FP8_FORMS)):
        fp8, forms = dtype == "f8", []
        for form in of_dtype:
            packed = pack(values, 4 if form == "halves" else 2, 1024, form=form, fp8=fp8)
            expected = bytes_per_weight(density, form, ITEM_BYTES[dtype]) * 512 * 2048
            assert 0.95 * packed.stream.nbytes < expected < 1.02 * packed.stream.nbytes
            forms.append(expected)
        shape = Problem("test", "test", "spmm", 512, 2048, 8, 1 - density, "uniform:0", dtype)
        held = ITEM_BYTES[dtype] * sparse.nnz
        # abs: the density is rounded
        assert structure_bytes(shape, sparse.nnz) + held == pytest.approx(min(forms), abs=64)


def test_registers_of_the_packed_matrix_are_the_words_expected():
    sparse = generate.uniform(512, 2048, 0.8, 0)
    packed = pack(sparse.with_values(np.ones(sparse.nnz, np.uint16)), 2, 1024)
    words = packed.stream.ravel()
    bits = [words[4 * at : 4 * at + 64] for at in packed.offsets[:-1]]  # two words of each lane
    held = int(np.unpackbits(np.concatenate(bits).view(np.uint8)).sum())
    assert words_per_weight(0.2) * 512 * 2048 == pytest.approx(held, rel=0.01)
    assert words_per_weight(0.0) == 0


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
