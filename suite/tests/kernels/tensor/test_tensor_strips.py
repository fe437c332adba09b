"""The packed strips of `tensor_spmm` against the matrix they hold, and what is expected of their bytes and banks."""

from typing import Any

import numpy as np
import pytest
from on_cpu import matrix
from test_tensor_spmm import TILINGS, problem, whole

from nnzbench.kernels.tensor.banks import dealt_starts
from nnzbench.kernels.tensor.spmm import bytes_per_weight, make_plan, structure_bytes, words_per_weight
from nnzbench.kernels.tensor.strips import FORMS, FP8_FORMS, STEP_COLUMNS, STRIP_ROWS, pack
from nnzbench.matrices import generate
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.problem import ITEM_BYTES, Problem


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
        make_plan(problem(data, "f16"), data, TILINGS[10])


def unpacked(strips, map_words, panel, m, k, form, fp8=False):
    """The matrix that the packed words hold, read as the header of `tensor_spmm.cu` tells; of FP8 the values' bits."""
    dense = np.zeros((strips.strips * STRIP_ROWS, strips.panels * panel))
    words = strips.stream.ravel()
    chunk_steps = (2 if form == "halves" else 4) * map_words
    kind, per_register = (np.uint8 if fp8 else np.float16), 1 if form == "words" else 2
    bytes_each = 2 // per_register * kind(0).nbytes
    head = 0 if form == "bitmap" else 32 * map_words
    plain = -(-k // (STEP_COLUMNS * chunk_steps))
    for unit in range(strips.strips * strips.panels):
        strip, of_strip = divmod(unit, strips.panels)
        here = max(
            0, min(panel // (STEP_COLUMNS * chunk_steps), plain - of_strip * panel // (STEP_COLUMNS * chunk_steps))
        )
        for nth, chunk in enumerate(range(strips.panel_chunks[unit], strips.panel_chunks[unit + 1])):
            held: Any = words[4 * strips.offsets[chunk] : 4 * strips.offsets[chunk + 1]]
            gathered = nth >= here
            bits, rest = held[:head].reshape(32, -1), held[head:]
            starts = rest[:16].view(np.uint16) // bytes_each
            entries = held.view(kind).reshape(-1, 2 // per_register)
            steps = int(rest[16]) if gathered else chunk_steps
            columns = rest[20 : 20 + 16 * steps if gathered else 20].view(np.uint16)
            selected = rest[20 + 16 * steps if gathered else 16 :]
            narrow = int(rest[17]) if gathered else 0
            for lane in range(32):
                at = int(starts[lane])
                for bit in range(32 * steps if form == "bitmap" else 0):
                    step, half, tile = bit // 32, bit // 16 % 2, bit // 8 % 2
                    if not selected[32 * step + lane] >> np.uint32(bit % 32) & 1:
                        continue
                    place = bit // 4 % 2 * 16 + lane % 4 * 4 + bit % 4
                    assert place < 16 or not narrow >> step & 1
                    column = columns[32 * step + place] if gathered else (nth * chunk_steps + step) * 32 + place
                    row = strip * 32 + tile * 16 + half * 8 + lane // 4
                    dense[row, of_strip * panel + column] += entries[at, 0]
                    at += 1
                if form == "bitmap":
                    continue
                for bit in range(8 * per_register * steps):
                    if not bits[lane, bit // 32] >> np.uint32(bit % 32) & 1:
                        continue
                    register, upper = divmod(bit, per_register)
                    step, tile, half = register // 8, register // 4 % 2, register % 2
                    group = register // 2 % 2 * 4 + lane % 4
                    assert group < 4 or not narrow >> step & 1
                    select = int(selected[32 * step + lane // 4 * 4 + 2 * tile + group // 4]) >> (
                        16 * half + 4 * (lane % 4)
                    )
                    for nth_half, value in enumerate(entries[at]):
                        place = 4 * group + (select >> 2 * (nth_half + upper) & 3)
                        column = columns[32 * step + place] if gathered else (nth * chunk_steps + step) * 32 + place
                        dense[strip * 32 + tile * 16 + half * 8 + lane // 4, of_strip * panel + column] += value
                    at += 1
    return dense[:m, :k]


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
    found = unpacked(dealt, map_words, 512, 256, 512, "words")
    assert np.array_equal(found, unpacked(plain, map_words, 512, 256, 512, "words"))


def test_banks_are_dealt_alike_without_a_new_numpy(monkeypatch):
    turns = np.random.default_rng(0).integers(0, 1 << 20, (5, 32), dtype=np.uint32)
    usual = dealt_starts(turns)
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    assert np.array_equal(dealt_starts(turns), usual)
    assert np.array_equal(dealt_starts(turns.astype(np.uint64)), usual)
    assert dealt_starts(turns[:0]).shape == (0, 32)
    assert not dealt_starts(np.zeros((1, 32), np.uint32)).any()


@pytest.mark.parametrize(("form", "fp8"), [*((form, False) for form in FORMS), *((form, True) for form in FP8_FORMS)])
@pytest.mark.parametrize(
    ("density", "map_words", "panel"), [(0.1, 1, 128), (0.5, 2, 512), (1.0, 1, 384), (0.0, 2, 256), (0.2, 4, 512)]
)
def test_packed_strips_hold_the_matrix(density, map_words, panel, form, fp8):
    sparse = whole(matrix(45, 600, density, full=3 if density else -1), 1).sparse
    if fp8:
        sparse = sparse.with_values(np.arange(sparse.nnz, dtype=np.uint16) % 255 + 1)
    packed = pack(sparse, map_words, panel, multiple=4, form=form, fp8=fp8)
    assert packed.strips == 4
    assert packed.offsets.size == packed.panel_chunks[-1] + 1
    assert np.diff(packed.offsets).max() * 16 == packed.slot_bytes
    found = unpacked(packed, map_words, panel, 45, 600, form, fp8)
    assert np.array_equal(found, sparse.to_dense().astype(np.float64))


def test_gathered_columns_of_the_same_banks_are_loaded_apart():
    """Four columns of a group in one row leave two over: sixteen columns whose rows of B start in two banks."""
    dense = np.zeros((32, 512), dtype=np.float16)
    groups = np.arange(0, 512, 64)
    for row, group in enumerate(groups):
        dense[row, group : group + 4] = 1
    packed = pack(CSR.from_dense(dense), 1, 512)
    held = packed.stream[packed.offsets[4] :].ravel()
    head = 32 + 16
    assert held[head : head + 2].tolist() == [1, 1]  # steps, and that the step is narrow
    slots = held[head + 4 : head + 20].view(np.uint16)
    assert sorted(slots[:16]) == sorted([*(groups + 2), *(groups + 3)])
    assert [set(slots[at : at + 8] % 8) for at in (0, 8)] == [{2, 3}] * 2


def test_packing_in_blocks_changes_nothing(monkeypatch):
    sparse = whole(matrix(200, 300, 0.4), 1).sparse
    one = pack(sparse, 1, 128)
    monkeypatch.setattr("nnzbench.kernels.tensor.strips._BLOCK_ELEMENTS", 1)
    some = pack(sparse, 1, 128)
    for name in ("stream", "offsets", "panel_chunks"):
        assert np.array_equal(getattr(one, name), getattr(some, name)), name


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
