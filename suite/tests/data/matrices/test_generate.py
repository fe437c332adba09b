"""Generators and pruners: exact counts, the structure they promise, the same pattern from the same seed; queues."""

import hashlib
import itertools
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_problems import whole_rows

from nnzbench.data.matrices import formats, generate, prune
from nnzbench.data.matrices.encodings import QUANTISERS, entries_by_element, loss, utilisation
from nnzbench.data.matrices.formats import CSR, MatrixError
from nnzbench.data.matrices.prune import BalancedMatrix, patterns
from nnzbench.data.problems import tables
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.data.problems.sources import load_sparse

CONVOLUTION = "rn50/extended_magnitude_pruning/0.91/bottleneck_2_block_group1_1_1.smtx"
SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 40))


def problem(source, m=64, k=96, sparsity=0.8, **more):
    return Problem(
        "test", "p", **{"op": "spmm", "m": m, "k": k, "n": 4, "sparsity": sparsity, "source": source, **more}
    )


def assert_valid(matrix):
    assert matrix.offsets[0] == 0
    assert matrix.offsets[-1] == matrix.nnz
    assert matrix.to_scipy().has_canonical_format  # ascending, no duplicates
    assert matrix.nnz == 0 or (matrix.indices.min() >= 0 and matrix.indices.max() < matrix.k)


@settings(max_examples=60)
@given(SHAPES, st.floats(0, 1), st.integers(0, 2**31))
def test_uniform_counts_exactly(shape, sparsity, seed):
    m, k = shape
    matrix = generate.uniform(m, k, sparsity, seed)
    assert_valid(matrix)
    assert m * k - matrix.nnz == np.floor(sparsity * m * k + 0.5)


def test_large_patterns_are_drawn_in_pieces(monkeypatch):
    def drawn():
        scaled = generate.thresholded(0.9, np.linspace(0.5, 2, 100), np.linspace(1, 3, 70), 3)
        matrices = generate.uniform(100, 70, 0.9, 3), generate.banded(90, 90, 0.9, 10, 3), scaled
        return [matrix.pattern_hash() for matrix in matrices]

    whole = drawn()
    monkeypatch.setattr(generate, "_CHUNK", 999)
    assert drawn() == whole


def test_uneven_rows_have_the_variation_asked_for():
    for cov in (0.0, 0.2, 0.5, 1.0, 1.5, 1.7):
        matrix = generate.uneven_rows(1024, 512, 0.75, cov, 0)
        assert_valid(matrix)
        assert matrix.nnz == 1024 * 512 // 4
        assert matrix.row_cov == pytest.approx(cov, abs=0.01)
    for m, k, sparsity, cov in ((4, 8, 0.8, 1.8), (64, 64, 0.8, 1.998), (8, 16, 0.9, 2.97), (128, 128, 0.9, 2.997)):
        few = generate.uneven_rows(m, k, sparsity, cov, 0)  # quantiles are too many here, and are shortened
        assert few.nnz == prune.keep_count(m * k, sparsity)
    for sparsity, cov in ((0.75, 1.8), (1.0, 0.5)):
        with pytest.raises(MatrixError, match=f"cannot have a coefficient of variation of {cov}"):
            generate.uneven_rows(64, 64, sparsity, cov, 0)


def test_banded_is_causal_with_a_full_band():
    matrix = generate.banded(400, 400, 0.95, 32, 0)
    assert_valid(matrix)
    dense = matrix.to_dense() != 0
    rows, columns = np.indices(dense.shape)
    distance = rows - columns
    assert not dense[distance < 0].any()
    assert dense[(distance >= 0) & (distance < 32)].all()
    left = dense[distance >= 32]
    assert left.sum() == prune.keep_count(left.size, 0.95)
    near = dense[(distance >= 32) & (distance < 64)].mean()
    far = dense[distance >= 128].mean()
    assert near > 2 * far > 0  # falls with the distance


@pytest.mark.parametrize(
    ("m", "k", "v", "n", "group"), [(128, 96, 64, 2, 8), (70, 101, 16, 2, 10), (300, 64, 128, 1, 16)]
)
def test_v_n_m_keeps_the_largest_of_four_columns_of_each_block(m, k, v, n, group):
    """By brute force, blocks at the edges cut; the four are those of the largest sums."""
    weights = np.random.default_rng(m).standard_normal((m, k))
    kept = prune.v_n_m(weights, v, n, group)
    assert_valid(kept)
    expected = np.zeros((m, k))
    for row in range(0, m, v):
        for column in range(0, k, group):
            block = weights[row : row + v, column : column + group]
            four = np.argsort(-np.abs(block).sum(axis=0))[: prune.CHOSEN]
            for at, weighed in enumerate(np.abs(block[:, four])):
                for one in four[np.argsort(-weighed)[:n]]:
                    expected[row + at, column + one] = block[at, one]
    assert np.array_equal(kept.to_dense(), expected)


def test_v_n_m_is_the_same_in_one_piece(monkeypatch):
    whole = load_sparse(problem("vnm:32:2:8:0", 160, 96, 0.75)).pattern_hash()
    monkeypatch.setattr(generate, "_CHUNK", 50 * 96)
    assert load_sparse(problem("vnm:32:2:8:0", 160, 96, 0.75)).pattern_hash() == whole


def test_bands_are_rows_and_stack_to_the_whole(monkeypatch):
    whole = generate.uneven_rows(9, 40, 0.8, 0.5, 1).with_values(np.arange(1, 73, dtype=np.float32))
    bands = [whole.band(0, 2), whole.band(2, 8), whole.band(8, 9)]
    for first, end, one in zip((0, 2, 8), (2, 8, 9), bands, strict=True):
        assert_valid(one)
        assert np.array_equal(one.to_dense(), whole.to_dense()[first:end])
    assert whole.row_cov == pytest.approx(np.std(whole.row_lengths) / np.mean(whole.row_lengths)), (
        "of all rows there are"
    )
    stacked = CSR.stacked(bands)
    assert (stacked.pattern_hash(), stacked.values.tolist()) == (whole.pattern_hash(), whole.values.tolist())
    assert whole.pattern_hash() != CSR(9, 41, whole.offsets, whole.indices, whole.values).pattern_hash()
    monkeypatch.setattr(formats, "free_memory", lambda: 1 << 27)
    formats.require_memory("x", 1 << 27)
    with pytest.raises(MatrixError, match="needs"):
        formats.require_memory("x", (1 << 27) + 1)


@pytest.mark.parametrize("count", [1, 300, 699])
def test_the_largest_are_those_of_a_stable_sort(count):
    keys = np.random.default_rng(count).integers(0, 40, (50, 700)).astype(np.float16)
    wanted = np.zeros(keys.shape, bool)
    np.put_along_axis(wanted, np.argsort(-keys.astype(int), axis=1, kind="stable")[:, :count], True, axis=1)
    assert np.array_equal(prune.top(keys, count), wanted)


def test_ties_and_zeros_do_not_change_counts():
    ones = np.ones((6, 32), np.float32)
    assert prune.magnitude(ones, 0.5).nnz == 96
    assert set(prune.balanced(ones, 0.5, 4).row_lengths) == {16}
    assert set(prune.balanced(ones, 0.99, 4).row_lengths) == {4}  # a range keeps at least one
    assert prune.n_of_m(np.zeros((3, 8)), 2, 4).indices.tolist() == [0, 1, 4, 5] * 3
    last = np.array([[0, 0, 0, 0, 1, 2, 3, 4], [0] * 8])  # of whose columns the upper four are chosen
    assert prune.v_n_m(last, 2, 2, 8).indices.tolist() == [6, 7, 4, 5]


def test_pruners_refuse_nan():
    for pruner in (prune.magnitude, prune.balanced):
        with pytest.raises(MatrixError, match="finite"):
            pruner(np.array([[1.0, np.nan], [0.0, 1.0]]), 0.5)


HASHES = {
    "uniform:0": "a4a910d2fb23aa29", "equal_rows:0": "8c25fd1d69ab0a57", "cov:0.5:0": "03f44533074dc456",
    "balanced:0": "6dd94e3f1a8b8276", "nm:2:4:0": "52ed162a817745f1", "block:8x8:0": "de6cfd264161840b",
    "banded:8:0": "9a910ae5034f1a23", "vnm:32:2:8:0": "540c151e4bd3a445", "vector:3:0": "cacb12660aaf3d7d",
    "kernel:8:0": "2113ad7ac16f9477", "channel:8:0": "4b96ae826955198b", "elements:4:0": "515ba95a000702db",
    "magnitude:conv1x1_expand:0": "469d8335f508ec41", "balanced:7:0": "c5247bb888f80dfc",
    "block:3x5:0": "5f8072a33db50f58",
}  # fmt: skip
PATTERNS = {
    "centre8:norm": "0ca0dcd99f7223e9",
    "top12:balanced": "b1e84eb25a78f6dd",
    "pr8:uneven": "da86b515d9ae3418",
}
MODELS = {
    "ptb_balanced": "c69c16402f095a77", "vgg16_conv1_1_balanced": "24e591487a6c232b",
    "vgg16_conv3_3_balanced": "0f213b8e221aa157", "timit_balanced": "da97ecc9b2a0b224",
}  # fmt: skip
"""Patterns of `balanced_models` as recorded."""


SIZES = ((64, 96), (37, 45), (48, 48), (5, 180), (200, 72))
DRAWN = {
    "uniform": "cf83d17e", "equal_rows": "c83bd35e", "cov:0.5": "b585d274", "cov:1.2": "b2efa63b",
    "banded:8": "2eb4ae03", "balanced": "dda695a6", "balanced:4": "b1ec1f4e", "balanced:9": "c463c5f4",
    "nm:2:4": "f71a94c8", "nm:1:4": "fa433c95", "block:8x8": "b007c679", "block:3x5": "b1ac12c8",
    "vnm:32:2:8": "20983e5c", "vnm:64:2:10": "ef8b2914", "vector:3": "e588c122", "vector:9": "d6bf9e74",
    "kernel:9": "d6bf9e74", "channel:9": "37be3721", "elements:4": "aea259b5", "elements:32": "d5655448",
    "magnitude:conv1x1_expand": "5219ae5c", "magnitude:ffn1_expand": "87bcb413", "pattern:top8:norm": "9d05b4d2",
    "pattern:pr8:balanced": "fa3a9708", "pattern:centre8:uneven": "e981082f", "pattern:top12:norm": "c3d0fc52",
    "codebook_uniform": "1eaa5755", "block:1x1": "2dec1175", "block:1x8": "0a31ec3b", "balanced:3": "dbb4080f",
}  # fmt: skip
"""Digests of what sources give at these sizes and several levels of zeros, values and packed ranges included."""


def drawn(source):
    made = hashlib.sha256()
    for (m, k), zeros in itertools.product(SIZES, (0.0, 0.5, 0.6, 0.875, 0.95)):
        taps = {"conv": ConvShape(1, k // 9, 8, 8, m, 3, 3, 1, 1), "op": "conv2d"} if k % 9 == 0 else {}
        with suppress(MatrixError):
            matrix = load_sparse(problem(f"{source}:7", m, k, zeros, **taps))
            assert_valid(matrix)
            made.update(f"{m} {k} {zeros} {matrix.pattern_hash()}".encode() + matrix.values.tobytes())
            made.update(repr(utilisation(entries_by_element(matrix, 4), [1, 2, 8])).encode())
            if source == "uniform" and matrix.nnz:
                normal = matrix.with_values(np.random.default_rng(m).standard_normal(matrix.nnz).astype(np.float32))
                lost = [loss(normal, name) for name in QUANTISERS]
                made.update(" ".join(f"{one.weights:.4g} {one.outputs:.4g}" for one in lost).encode())
            packed = BalancedMatrix.from_csr(matrix, 4)
            made.update(packed.values.tobytes() + packed.positions.tobytes())
            assert np.array_equal(whole_rows(packed), matrix.to_dense())
    return made.hexdigest()[:8]


@pytest.mark.parametrize("source", DRAWN)
def test_sources_give_what_is_kept(source):
    assert drawn(source) == DRAWN[source]


def test_the_same_seed_gives_the_patterns_of_record():
    models = {one.label: one for one in tables.load("balanced_models")}
    assert {label: load_sparse(models[label]).pattern_hash() for label in MODELS} == MODELS
    assert {source: load_sparse(problem(source)).pattern_hash() for source in HASHES} == HASHES
    assert {one: prune.patterns(16, 90, 0.7, *one.split(":"), 0).pattern_hash() for one in PATTERNS} == PATTERNS
    for source, known in HASHES.items():
        assert load_sparse(problem(source[:-1] + "1")).pattern_hash() != known


@pytest.mark.parametrize(
    ("source", "says"),
    [
        *((source, "not understood") for source in (
            "uniform", "uniform:x", "uniform:1:2", "cov:a:0", "block:8:0", "nm:2:0", "vnm:2:4:0", "balanced:1:2:3",
            "magic:0", "",
        )),
        ("nm:3:5:0", "3:5 sparsity does not fit rows of 96"),
        *((f"vnm:{one}:0", f"{one} is no V:N:M pattern") for one in ("0:2:8", "64:5:8", "64:2:3")),
        ("magnitude:ffn:0", "no such kind of layer was measured; there are: conv1x1_expand"),
        ("pattern:pr8:some:0", "are not among"),
        (f"standin:{CONVOLUTION}", "matrix is 64 x 576, problem p needs 64 x 96"),
    ],
)  # fmt: skip
def test_wrong_sources_are_named(source, says):
    with pytest.raises(MatrixError, match=says):
        load_sparse(problem(source))


def test_half_a_weight_is_dropped():
    assert [prune.keep_count(*one) for one in ((5, 0.5), (6, 0.25), (10, 0.25), (4, 1.0))] == [2, 4, 7, 0]


def test_what_patterns_can_not_be_is_refused():
    for sparsity, k, words in ((0.5, 18, "leave no sparsity of 0.5"), (0.75, 20, "do not fit rows of 20 columns")):
        with pytest.raises(MatrixError, match=words):
            patterns(4, k, sparsity, "centre8", "norm", 0)
    with pytest.raises(MatrixError, match="are not among"):
        patterns(4, 18, 0.75, "other", "norm", 0)


def test_a_queue_lets_others_go_ahead():
    entries = np.array([[3, 1], [1, 3], [2, 2]])
    # without one every input takes as long as its slowest element; element 0: 0-3, 3-4, 4-6; element 1: 0-1, 1-4, 4-6
    assert utilisation(entries, [1, 2, 8]) == pytest.approx([12 / (2 * (3 + 3 + 2)), 1.0, 1.0])
    assert utilisation(np.array([[0, 1]]), [1]) == [pytest.approx(0.5)]  # a clock to find none
    assert utilisation(np.zeros((3, 2), int), [1, 2]) == [0.0, 0.0]


def test_entries_are_counted_where_they_lie_and_long_runs_are_broken():
    dense = np.zeros((80, 3), np.float32)
    dense[[0, 4, 1], [0, 0, 1]] = 1
    dense[4 * 17 + 2, 2] = 1  # the 18th row of element 2: a run of 17 zeros
    found = entries_by_element(CSR.from_dense(dense), 4)
    assert found.tolist() == [[2, 0, 0, 0], [0, 1, 0, 0], [0, 0, 2, 0]]


def test_rows_are_counted_once():
    """Packing goes by bands of rows: counting all of them for each took minutes at a million rows."""
    matrix = generate.uniform(6, 8, 0.5, 0)
    assert matrix.row_lengths is matrix.row_lengths
    assert matrix.row_lengths.sum() == matrix.nnz


@given(st.lists(st.integers(0, 9), max_size=60))
def test_keys_are_ordered_as_a_stable_sort_orders_them(keys):
    keys = np.array(keys, np.int64)
    order, starts = formats.counting_sort(keys, 10)
    counts = np.bincount(keys, minlength=10).tolist()
    assert order.tolist() == np.argsort(keys, kind="stable").tolist()
    assert starts.tolist() == formats.prefix_sums(counts).tolist() == [sum(counts[:at]) for at in range(11)]
    assert formats.ranks(np.array(counts)).tolist() == [place for count in counts for place in range(count)]
    assert {starts.dtype, order.dtype} == {np.dtype(np.int32)}
