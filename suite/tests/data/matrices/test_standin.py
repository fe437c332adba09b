"""Stand-ins imitate the measured statistics of real layers, whether or not the real files are on disk."""

import numpy as np
import pytest
from realdata import find

from nnzbench.data.matrices import index, standin
from nnzbench.data.matrices.files import read_smtx
from nnzbench.data.matrices.formats import MatrixError

REDUCE = "rn50/extended_magnitude_pruning/0.91/bottleneck_1_block_group1_1_1.smtx"
EXPAND = "rn50/extended_magnitude_pruning/0.96/bottleneck_3_block_group2_1_1.smtx"
WIDE = "rn50/extended_magnitude_pruning/0.96/bottleneck_3_block_group4_1_1.smtx"
CONV = "rn50/magnitude_pruning/0.9/bottleneck_2_block_group3_1_1.smtx"
QUERY = (
    "transformer/magnitude_pruning/0.9/body_encoder_layer_3_self_attention_multihead_attention_q_fully_connected.smtx"
)
FFN2 = "transformer/magnitude_pruning/0.95/body_encoder_layer_3_ffn_conv2_fully_connected.smtx"
RANDOM = "rn50/random_pruning/0.9/bottleneck_1_block_group4_1_1.smtx"
L0 = "transformer/l0_regularization/0.9/body_decoder_layer_3_ffn_conv1.smtx"

HASHES = {
    REDUCE: "b2de3315aa09adca", EXPAND: "493e7b5993c4f02d", CONV: "7484be18fd4ca1cf", QUERY: "56e6b43c56e70c18",
    FFN2: "1289e64311b373c5", RANDOM: "75ac59f988d61504",
}  # fmt: skip


def cov(lengths):
    return float(lengths.std() / lengths.mean())


def column_lengths(matrix):
    return np.bincount(matrix.indices, minlength=matrix.k)


def distinct(matrix, rows=4):
    """Mean of distinct columns in groups of adjacent rows: the traffic a tile of rows causes."""
    dense = matrix.to_dense() != 0
    return float(dense[: matrix.m // rows * rows].reshape(-1, rows, matrix.k).any(axis=1).sum(axis=1).mean())


@pytest.mark.parametrize("path", [REDUCE, EXPAND, WIDE, CONV, QUERY, FFN2, L0])
def test_counts_exactly_and_varies_as_measured(path):
    entry, matrix = index.dlmc()[path], standin.for_dlmc(path)
    assert (matrix.m, matrix.k, matrix.nnz) == (entry.rows, entry.cols, entry.nnz)
    assert matrix.to_scipy().has_canonical_format
    assert matrix.row_cov == pytest.approx(entry.row_cov, rel=0.03)
    assert cov(column_lengths(matrix)) == pytest.approx(entry.col_cov, rel=0.03)
    assert (matrix.row_lengths == 0).mean() == pytest.approx(entry.empty_rows / entry.rows, abs=0.03)
    assert matrix.row_lengths.max() == pytest.approx(entry.row_max, rel=0.2)


def test_mobilenet_layers():
    for name, entry in index.weights().items():
        if entry.dlmc:
            continue
        matrix = standin.for_weights(name, entry.rows, entry.cols, 0.9)
        assert matrix.nnz == entry.nnz, name
        assert matrix.row_cov == pytest.approx(entry.row_cov, rel=0.05), name
    last = standin.for_weights("mbv1_pw12_weight", 1024, 1024, 0.9).to_dense() != 0
    assert (last.reshape(256, 4, 1024).sum(axis=1) % 4 == 0).all()  # 4x1 blocks
    assert standin.for_weights("mbv1_pw05_weight", 664, 336, 0.9).nnz == round(0.1 * 664 * 336)


def test_the_patterns_of_record():
    assert {path: standin.for_dlmc(path).pattern_hash() for path in HASHES} == HASHES


def test_every_matrix_has_a_target():
    for entry in index.dlmc().values():
        target = standin.dlmc_target(entry)
        assert target.heavy_rows <= 3
        assert target.dead_rows <= target.m
        assert target.k % target.taps == 0


def test_empty_and_unknown_matrices():
    empty = next(e for e in index.dlmc().values() if e.nnz == 0)
    assert standin.for_dlmc(empty.path).nnz == 0
    with pytest.raises(MatrixError, match="no such matrix in the DLMC index"):
        standin.for_dlmc("rn50/none.smtx")
    with pytest.raises(MatrixError, match="no such array"):
        standin.for_weights("mbv1_pw99_weight", 8, 8, 0.9)


@pytest.mark.parametrize("path", [REDUCE, EXPAND, WIDE, QUERY, FFN2])
def test_against_the_real_file(path):
    real, matrix = read_smtx(find(f"dlmc/{path}")), standin.for_dlmc(path)
    assert real.nnz == matrix.nnz == index.dlmc()[path].nnz
    assert real.row_cov == pytest.approx(matrix.row_cov, rel=0.02)
    assert distinct(real) == pytest.approx(distinct(matrix), rel=0.03)
