"""Generators and pruners: exact counts, the structure they promise, the same pattern from the same seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnzbench.matrices import generate, index, prune, standin
from nnzbench.matrices.formats import MatrixError
from nnzbench.problems import tables
from nnzbench.problems.problem import ConvShape, Problem
from nnzbench.problems.sources import load_sparse

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


def test_uniform_is_uniform():
    counts = sum(generate.uniform(8, 8, 0.75, seed).to_dense() for seed in range(400))
    assert abs(counts / 400 - 0.25).max() < 0.1  # 4.6 deviations


def test_thresholded_keeps_the_largest():
    rows, columns = np.array([1.0, 4.0, 0.25]), np.array([1.0, 0.5, 2.0, 1.0, 3.0])
    weights = np.abs(np.random.default_rng(7).standard_normal(15)).reshape(3, 5) * rows[:, None] * columns
    matrix = generate.thresholded(0.6, rows, columns, 7)
    assert_valid(matrix)
    kept = matrix.to_dense() != 0
    assert kept.sum() == 6
    assert weights[kept].min() > weights[~kept].max()


@pytest.mark.parametrize(("kind", "sparsity"), [("ffn1_expand", 0.9), ("ffn1_expand", 0.95), ("ffn2_reduce", 0.9)])
def test_layers_by_kind_vary_as_measured(kind, sparsity):
    (entry,) = (e for e in index.standin_parameters() if e.layer_kind == kind and e.group.endswith(f"/{sparsity}"))
    matrix = standin.for_kind(kind, entry.rows, entry.cols, sparsity, 0)
    assert_valid(matrix)
    assert matrix.nnz == prune.keep_count(entry.rows * entry.cols, sparsity)
    assert matrix.row_cov == pytest.approx(entry.row_cov, rel=0.12)
    assert standin.for_kind(kind, entry.rows, entry.cols, sparsity, 0).pattern_hash() == matrix.pattern_hash()


def test_an_unknown_kind_of_layer():
    with pytest.raises(MatrixError, match="no such kind of layer was measured; there are: conv1x1_expand"):
        load_sparse(problem("magnitude:ffn:0"))


def test_large_patterns_are_drawn_in_pieces(monkeypatch):
    def drawn():
        scaled = generate.thresholded(0.9, np.linspace(0.5, 2, 100), np.linspace(1, 3, 70), 3)
        matrices = generate.uniform(100, 70, 0.9, 3), generate.banded(90, 90, 0.9, 10, 3), scaled
        return [matrix.pattern_hash() for matrix in matrices]

    whole = drawn()
    monkeypatch.setattr(generate, "_CHUNK", 999)
    assert drawn() == whole


@settings(max_examples=30)
@given(SHAPES, st.floats(0, 1))
def test_equal_rows(shape, sparsity):
    matrix = generate.equal_rows(*shape, sparsity, 1)
    assert_valid(matrix)
    assert set(matrix.row_lengths) == {prune.keep_count(shape[1], sparsity)}


@pytest.mark.parametrize("cov", [0.0, 0.2, 0.5, 1.0, 1.5, 1.7])
def test_uneven_rows_have_the_variation_asked_for(cov):
    matrix = generate.uneven_rows(1024, 512, 0.75, cov, 0)
    assert_valid(matrix)
    assert matrix.nnz == 1024 * 512 // 4
    assert matrix.row_cov == pytest.approx(cov, abs=0.01)


def test_impossible_variation_is_refused():
    with pytest.raises(MatrixError, match=r"cannot have a coefficient of variation of 1\.8"):
        generate.uneven_rows(64, 64, 0.75, 1.8, 0)


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


def test_balanced_keeps_as_many_in_every_range():
    matrix = load_sparse(problem("balanced:0", m=40, k=256, sparsity=0.75))
    assert_valid(matrix)
    assert np.all((matrix.to_dense() != 0).reshape(40, 32, 8).sum(axis=2) == 2)
    some = load_sparse(problem("balanced:9:0", m=8, k=27, sparsity=0.34))
    assert np.all((some.to_dense() != 0).reshape(8, 9, 3).sum(axis=2) == 2)


def test_two_of_four():
    matrix = load_sparse(problem("nm:2:4:5", sparsity=0.5))
    assert_valid(matrix)
    assert np.all((matrix.to_dense() != 0).reshape(64, 24, 4).sum(axis=2) == 2)
    with pytest.raises(MatrixError, match="2:4 sparsity does not fit rows of 90"):
        load_sparse(problem("nm:2:4:5", k=90))


def test_blocks_are_whole_and_counted():
    matrix = generate.blocks(64, 96, 0.75, 8, 8, 0)
    assert_valid(matrix)
    sums = (matrix.to_dense() != 0).reshape(8, 8, 12, 8).sum(axis=(1, 3))
    assert set(sums.ravel()) == {0, 64}
    assert (sums > 0).sum() == prune.keep_count(96, 0.75)
    assert_valid(generate.blocks(13, 27, 0.3, 8, 8, 0))


def test_pruners_keep_the_largest():
    weights = np.random.default_rng(0).standard_normal((32, 64))
    kept = prune.magnitude(weights, 0.9)
    assert kept.nnz == prune.keep_count(weights.size, 0.9)
    dropped = np.abs(weights[kept.to_dense() == 0])
    assert np.abs(kept.values).min() > dropped.max()
    assert np.array_equal(kept.to_dense()[kept.to_dense() != 0], weights[kept.to_dense() != 0])
    blocks = prune.block(weights, 0.5, 4, 4)
    norms = np.square(weights).reshape(8, 4, 16, 4).sum(axis=(1, 3))
    chosen = (blocks.to_dense() != 0).reshape(8, 4, 16, 4).all(axis=(1, 3))
    assert norms[chosen].min() > norms[~chosen].max()


def test_ties_and_zeros_do_not_change_counts():
    ones = np.ones((6, 32), np.float32)
    assert prune.magnitude(ones, 0.5).nnz == 96
    assert set(prune.balanced(ones, 0.5, 4).row_lengths) == {16}
    assert set(prune.balanced(ones, 0.99, 4).row_lengths) == {4}  # a range keeps at least one
    assert prune.n_of_m(np.zeros((3, 8)), 2, 4).indices.tolist() == [0, 1, 4, 5] * 3


@pytest.mark.parametrize("pruner", [lambda w: prune.magnitude(w, 0.5), lambda w: prune.balanced(w, 0.5, 2)])
def test_pruners_refuse_nan(pruner):
    with pytest.raises(MatrixError, match="finite"):
        pruner(np.array([[1.0, np.nan], [0.0, 1.0]]))


HASHES = {
    "uniform:0": "a4a910d2fb23aa29", "equal_rows:0": "8c25fd1d69ab0a57", "cov:0.5:0": "03f44533074dc456",
    "balanced:0": "6dd94e3f1a8b8276", "nm:2:4:0": "52ed162a817745f1", "block:8x8:0": "de6cfd264161840b",
}  # fmt: skip
MODELS = {
    "ptb_balanced": "c69c16402f095a77", "vgg16_conv1_1_balanced": "24e591487a6c232b",
    "vgg16_conv3_3_balanced": "0f213b8e221aa157", "timit_balanced": "da97ecc9b2a0b224",
}  # fmt: skip
"""Patterns of `balanced_models` as recorded."""


def test_the_same_seed_gives_the_patterns_of_record():
    models = {one.label: one for one in tables.load("balanced_models")}
    assert {label: load_sparse(models[label]).pattern_hash() for label in MODELS} == MODELS
    assert {source: load_sparse(problem(source)).pattern_hash() for source in HASHES} == HASHES
    for source, known in HASHES.items():
        assert load_sparse(problem(source[:-1] + "1")).pattern_hash() != known


@pytest.mark.parametrize(
    "source", ["uniform", "uniform:x", "uniform:1:2", "cov:a:0", "block:8:0", "nm:2:0", "balanced:1:2:3", "magic:0", ""]
)
def test_unknown_sources_are_named(source):
    with pytest.raises(MatrixError, match="not understood"):
        load_sparse(problem(source))


def test_sddmm_patterns_have_the_shape_of_the_output():
    matrix = load_sparse(problem("uniform:0", op="sddmm", m=10, k=300, n=20))
    assert (matrix.m, matrix.k) == (10, 20)


def test_convolution_columns_are_reordered():
    path = "rn50/extended_magnitude_pruning/0.91/bottleneck_2_block_group1_1_1.smtx"
    conv = ConvShape(1, 64, 56, 56, 64, 3, 3, 1, 1)
    plain = load_sparse(problem(f"standin:{path}", m=64, k=576)).to_dense()
    ordered = load_sparse(problem(f"standin:{path}", op="conv2d", m=64, k=576, conv=conv)).to_dense()
    taps_first = plain.reshape(64, 9, 64) != 0
    assert np.array_equal(ordered.reshape(64, 64, 9) != 0, taps_first.transpose(0, 2, 1))


def test_a_source_of_another_shape_is_refused():
    path = "rn50/extended_magnitude_pruning/0.91/bottleneck_2_block_group1_1_1.smtx"
    with pytest.raises(MatrixError, match="matrix is 64 x 576, problem p needs 64 x 96"):
        load_sparse(problem(f"standin:{path}"))
