"""The formats of Flash-LLM, SpInfer, MACKO and VENOM against the matrix they hold, and as the procedures fill them."""

from dataclasses import replace

import numpy as np
import pytest
from kernel_problems import v_two_m
from on_cpu import spmm_operands as operands
from on_cpu import spmm_problem as problem

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.kernels.tensor import macko, spinfer, strips, venom
from nnzbench.kernels.tensor.flash_llm import MOST_WORDS, TILE_COLUMNS, pack


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


def test_a_tile_holds_half_its_elements_and_no_more():
    dense = np.zeros((128, 64), dtype=np.float16)
    dense.ravel()[:MOST_WORDS] = 1
    assert np.array_equal(unpacked_words(pack(CSR.from_dense(dense)), 128, 64), dense)
    dense.ravel()[MOST_WORDS] = 1
    with pytest.raises(Unsupported, match="4097 nonzeros"):
        pack(CSR.from_dense(dense))


PACKS = {
    "flash_llm": pack,
    "spinfer": spinfer.pack,
    "macko": macko.pack,
    "venom": lambda matrix: venom.pack(matrix, 64, 10),
    "tensor_spmm": lambda matrix: vars(strips.pack(matrix, 1, 128)),
}


@pytest.mark.parametrize("name", PACKS)
def test_stored_zeros_of_either_sign_are_absent(name):
    plain = operands(v_two_m(256, 320, 64, 10), 8).cast("f16").sparse
    dense = plain.to_dense().astype(np.float16)
    zeros = np.resize(np.array([0.0, -0.0, -0.0], np.float16), dense.shape)
    every = CSR.from_dense(np.ones_like(dense)).with_values(np.where(dense == 0, zeros, dense).ravel())
    packed = PACKS[name](every)
    for part, wanted in PACKS[name](plain).items():
        np.testing.assert_array_equal(packed[part], wanted, part)


@pytest.mark.parametrize(("m", "n", "reason"), [(8, 2, "one column"), (0, 1, "empty")])
def test_what_macko_does_not_compute(m, n, reason):
    empty = CSR(m, 8, np.zeros(m + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
    data = operands(empty, n).cast("f16")
    with pytest.raises(Unsupported, match=reason):
        next(macko.macko.plans(problem(data), data, "sm_90"))


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
