"""The formats of Flash-LLM, SpInfer, MACKO and VENOM against the matrix they hold, and as the procedures fill them."""

from dataclasses import replace

import numpy as np
import pytest
from kernel_problems import v_two_m
from on_cpu import matrix
from on_cpu import spmm_operands as operands
from on_cpu import spmm_problem as problem

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.kernels.tensor import macko, spinfer, venom
from nnzbench.kernels.tensor.flash_llm import MOST_WORDS, TILE_COLUMNS, TILE_ROWS, pack


def halves(sparse):
    return sparse.with_values(sparse.values.astype(np.float16))


def tile_words(packed, tile):
    return packed["words"][packed["offsets"][tile] : packed["offsets"][tile + 1]].ravel()


def unpacked_words(packed, m, k):
    dense = np.zeros((m, k), dtype=np.float16)
    for tile in range(packed["offsets"].size - 2):
        words = tile_words(packed, tile)
        place = words >> 16
        row = place // TILE_COLUMNS
        column = place % TILE_COLUMNS ^ 8 * (row % 8)
        assert np.unique(place).size == place.size  # zeros that fill up come to empty places
        first_row, first_column = (part * size for part, size in zip(divmod(tile, k // 64), (128, 64), strict=True))
        dense[first_row + row, first_column + column] = (words & 0xFFFF).astype(np.uint16).view(np.float16)
    return dense


@pytest.mark.parametrize("density", [0.0, 0.01, 0.2, 0.45])
def test_packed_tiles_hold_the_matrix(density):
    sparse = halves(matrix(256, 192, density, empty=(5,), full=9 if density else -1))
    packed = pack(sparse)
    assert packed["offsets"].size == 2 * 3 + 2
    assert packed["offsets"][-1] == packed["offsets"][-2] == len(packed["words"])
    assert np.array_equal(unpacked_words(packed, 256, 192), sparse.to_dense())


def dealt_one_by_one(tile):
    """The words of one 128x64 tile by the paper's procedure, step by step."""
    banks: list[list[int]] = [[] for _ in range(32)]
    taken = set()
    for row, column in np.argwhere(tile):
        place = int(row * 64 + (column ^ 8 * (row % 8)))
        banks[place % 64 // 2].append(int(tile[row, column].view(np.uint16)) | place << 16)
        taken.add(place)
    while sum(map(len, banks)) % 4:
        bank = min(range(32), key=lambda b: len(banks[b]))
        places = (row * 64 + 2 * bank + half for row in range(TILE_ROWS) for half in range(2))
        place = next(place for place in places if place not in taken)
        banks[bank].append(place << 16)
        taken.add(place)
    units = sum(map(len, banks)) // 4
    lanes: list[list[int]] = [[] for _ in range(32)]
    for count, rounds in ((units % 32, 4), (32, 4 * (units // 32))):
        for _ in range(rounds):
            for lane in range(count):
                lanes[lane].append(max(banks, key=len).pop())
    stored = []
    for count in [32] * (units // 32) + [units % 32]:
        for lane in range(count):
            stored += [lanes[lane].pop() for _ in range(4)]
    return stored


@pytest.mark.parametrize("density", [0.01, 0.1, 0.37])
def test_words_are_dealt_as_published(density):
    sparse = halves(matrix(128, 128, density, seed=4))
    packed = pack(sparse)
    for tile in range(2):
        expected = dealt_one_by_one(sparse.to_dense()[:, 64 * tile : 64 * tile + 64])
        assert tile_words(packed, tile).tolist() == expected


def test_a_tile_holds_half_its_elements_and_no_more():
    dense = np.zeros((128, 64), dtype=np.float16)
    dense.ravel()[:MOST_WORDS] = 1
    assert np.array_equal(unpacked_words(pack(CSR.from_dense(dense)), 128, 64), dense)
    dense.ravel()[MOST_WORDS] = 1
    with pytest.raises(Unsupported, match="4097 nonzeros"):
        pack(CSR.from_dense(dense))


def test_values_that_are_zero_count_as_absent():
    values = np.array([0.0, -0.0, 2.0], np.float16)
    offsets = np.concatenate([[0], np.full(128, 3)]).astype(np.int32)
    packed = pack(CSR(128, 64, offsets, np.array([0, 1, 3], np.int32), values))
    assert np.count_nonzero(packed["words"] & 0xFFFF) == 1
    assert packed["offsets"].tolist() == [0, 1, 1]


def unpacked_bitmaps(packed, m, k):
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
def test_bitmaps_hold_the_matrix(density):
    sparse = halves(matrix(128, 192, density, empty=(5,), full=9 if density else -1))
    packed = spinfer.pack(sparse)
    assert packed["maps"].shape == (6, 64)
    assert np.array_equal(unpacked_bitmaps(packed, 128, 192), sparse.to_dense())
    tiles = sparse.to_dense().reshape(2, 64, 3, 64).swapaxes(1, 2).reshape(6, -1)
    assert spinfer.most_values(packed["offsets"]) == -(-np.count_nonzero(tiles, axis=1).max() // 8) * 8


def test_the_room_for_a_tiles_values_is_the_least_of_whole_rows():
    for most in range(0, 64 * 64 + 1, 8):
        assert 0 <= spinfer.value_bytes(most) - 2 * most < 128
        assert spinfer.value_bytes(most) % 128 == 0


def test_values_that_are_zero_have_no_bit():
    values = np.array([0.0, -0.0, 2.0], np.float16)
    offsets = np.concatenate([[0], np.full(64, 3)]).astype(np.int32)
    packed = spinfer.pack(CSR(64, 64, offsets, np.array([0, 1, 3], np.int32), values))
    assert packed["offsets"].tolist() == [0, 1]
    assert packed["maps"][0, 0] == 8


def entries_one_by_one(dense):
    """Values, steps and offsets of MACKO's format, element by element as the header of `macko.cu` tells."""
    values, steps, offsets = [], [], [0]
    for row in dense:
        zeros = 0
        for column in range(np.flatnonzero(row).max(initial=-1) + 1):
            if row[column] != 0 or zeros == 15:
                values.append(row[column])
                steps.append(zeros)
                zeros = 0
            else:
                zeros += 1
        offsets.append(len(values))
    return values, steps, offsets


@pytest.mark.parametrize("density", [0.0, 0.01, 0.1, 0.5, 1.0])
def test_steps_are_those_of_going_through_the_rows(density):
    """Rows empty and full, and so sparse that many zeros stand between; nothing but zeros behind the last entry."""
    sparse = halves(matrix(37, 700, density, empty=(0, 5, 36), full=9 if density else -1))
    packed = macko.pack(sparse)
    values, steps, offsets = entries_one_by_one(sparse.to_dense())
    nibbles = (packed["steps"][:, None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15).ravel()
    held = packed["values"].view(np.float16).ravel()
    assert packed["offsets"].tolist() == offsets
    assert (held[: len(values)].tolist(), nibbles[: len(steps)].tolist()) == (values, steps)
    assert not held[len(values) :].any()
    assert not nibbles[len(steps) :].any()
    assert held.size == nibbles.size == -(-len(values) // 8) * 8


def test_macko_takes_zeros_of_either_sign_for_absent():
    zeros = CSR.from_dense(np.ones((2, 5), np.float16)).with_values(np.array([1, 0.0, -0.0, 2, 3] * 2, np.float16))
    packed, wanted = macko.pack(zeros), macko.pack(CSR.from_dense(zeros.to_dense()))
    for name, part in packed.items():
        np.testing.assert_array_equal(part, wanted[name])


@pytest.mark.parametrize(("m", "n", "reason"), [(8, 2, "one column"), (0, 1, "empty")])
def test_what_macko_does_not_compute(m, n, reason):
    empty = CSR(m, 8, np.zeros(m + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
    data = operands(empty, n).cast("f16")
    with pytest.raises(Unsupported, match=reason):
        next(macko.macko.plans(problem(data), data, "sm_90"))


def unpacked_pairs(packed, v):
    """Weight by weight as the header of `venom.cu` and `multiply_tile` tell; rows and columns filled up."""
    chosen, weights = packed["chosen"], packed["weights"]
    blocks, steps = weights.shape[:2]
    dense = np.zeros((blocks * v, chosen.max(initial=0) + 1), np.float16)
    for block, step, strip, tile, row, group in np.ndindex(blocks, steps, v // 32, 2, 16, 8):
        piece, lane = weights[block, step, strip], 4 * (row % 8)
        places = piece[256 + lane + 2 * tile + group // 4] >> 4 * (group % 4) + 16 * (row // 8) & 15
        held = piece[4 * (32 * tile + lane + group % 4) + group // 4 * 2 + row // 8]
        assert places & 3 < places >> 2
        for value, place in ((held & 0xFFFF, places & 3), (held >> 16, places >> 2)):
            if value:
                at = chosen[block, step, 4 * group + place]
                assert at >= 0
                dense[block * v + strip * 32 + tile * 16 + row, at] = np.uint16(value).view(np.float16)
    return dense


@pytest.mark.parametrize(("m", "k", "v", "group"), [(70, 203, 32, 10), (130, 90, 128, 4), (1, 20, 64, 16)])
def test_chosen_columns_and_pairs_hold_the_matrix(m, k, v, group):
    """Blocks and groups cut at the edges, and rows with one weight of four or none."""
    sparse = halves(v_two_m(m, k, v, group))
    packed = venom.pack(sparse, v, group)
    found, expected = unpacked_pairs(packed, v), sparse.to_dense()
    assert not expected[:, found.shape[1] :].any()
    assert not found[m:].any()
    assert np.array_equal(found[:m], expected[:, : found.shape[1]])
    of_four = packed["chosen"].reshape(-1, 4)
    known = np.where(of_four < 0, 1 << 20, of_four)
    assert (np.diff(known, axis=1)[known[:, 1:] < 1 << 20] > 0).all()  # ascending, none at the end
    zero = sparse.with_values(np.where(sparse.indices % 3 == 0, np.float16(-0.0), sparse.values))
    for name, part in venom.pack(CSR.from_dense(zero.to_dense() + np.float16(0)), v, group).items():
        np.testing.assert_array_equal(part, venom.pack(zero, v, group)[name])


@pytest.mark.parametrize(
    ("source", "dense", "reason"),
    [
        ("vnm:64:2:8:0", np.eye(8, dtype=np.float32)[[0, 1, 2, 3, 4]], "more than 4 have weights in 64 rows"),
        ("vnm:64:2:8:0", np.ones((1, 3), np.float32), "a row has more than 2 weights in 8 columns"),
        ("vnm:16:2:8:0", np.ones((1, 1), np.float32), "V is 32, 64 or 128, not 16"),
        ("uniform:0", np.ones((4, 32), np.float32), "no pattern such as 64:2:8"),
        ("uniform:0", np.ones((0, 32), np.float32), "a size is 0"),
    ],
)
def test_what_venom_does_not_compute(source, dense, reason):
    data = operands(CSR.from_dense(dense), 8).cast("f16")
    with pytest.raises(Unsupported, match=reason):
        next(venom.venom.plans(replace(problem(data), source=source), data, "sm_90"))


def test_venom_finds_the_pattern_of_a_matrix_whose_source_names_none():
    data = operands(v_two_m(200, 160, 64, 10), 8).cast("f16")
    assert next(venom.venom.plans(problem(data), data, "sm_90")).variant.startswith("v64_")
