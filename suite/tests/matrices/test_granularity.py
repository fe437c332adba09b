"""Coarse patterns: what they are made of, exact counts, and that channels are a smaller dense layer."""

import re

import numpy as np
import pytest

from nnzbench.matrices.formats import MatrixError
from nnzbench.matrices.prune import PATTERN_SETS, channels, patterns, vectors
from nnzbench.problems.problem import ConvShape, Problem
from nnzbench.problems.sources import load_sparse


def mask(matrix, *shape):
    return (matrix.to_dense() != 0).reshape(shape)


@pytest.mark.parametrize("length", [3, 9])
def test_vectors_and_kernels_are_whole_and_counted(length):
    matrix = vectors(16, 36, 0.75, length, 1)
    groups = mask(matrix, 16, 36 // length, length)
    assert np.array_equal(groups.any(axis=2), groups.all(axis=2))
    assert matrix.nnz == 16 * 36 // 4
    with pytest.raises(MatrixError, match="do not fit rows of 37 columns"):
        vectors(16, 37, 0.75, length, 1)


def test_channels_are_a_smaller_dense_layer():
    matrix = channels(64, 64 * 9, 0.75, 9, 0)
    rows = np.flatnonzero(matrix.row_lengths)
    inputs = np.flatnonzero(mask(matrix, 64, 64, 9).any(axis=(0, 2)))
    assert rows.size == inputs.size == 32
    assert mask(matrix, 64, 64, 9)[np.ix_(rows, inputs)].all()
    assert matrix.nnz == 32 * 32 * 9


@pytest.mark.parametrize("chosen", PATTERN_SETS)
@pytest.mark.parametrize("mode", ["norm", "balanced", "uneven"])
def test_patterns_keep_four_of_nine_weights_of_the_kernels_that_stay(chosen, mode):
    matrix = patterns(32, 32 * 9, 0.875, chosen, mode, 0)
    kept = mask(matrix, 32, 32, 9)
    alive = kept.any(axis=2)
    assert matrix.nnz == 4 * alive.sum() == 32 * 32 * 9 // 8
    rows = {tuple(row) for row in PATTERN_SETS[chosen].tolist()}
    assert len(rows) == int(re.sub("[a-z]", "", chosen))
    assert {tuple(row) for row in kept[alive].tolist()} <= rows
    assert (np.ptp(alive.sum(axis=1)) == 0) == (mode == "balanced")
    if chosen == "centre8":
        assert kept[alive][:, 4].all()


def test_uneven_filters_vary_as_real_ones_do():
    """Real ResNet-50 layers: 0.30 to 0.32 where the 1 in 3.6 kernels of largest norm stay."""
    for filters, least, most in ((64, 0.3, 0.4), (256, 0.25, 0.35)):
        found = patterns(filters, filters * 9, 1 - 4 / 9 / 3.6, "top8", "uneven", 0).row_lengths
        assert least < found.std() / found.mean() < most


def test_patterns_are_about_equally_common_on_normal_weights():
    kept = mask(patterns(64, 64 * 9, 1 - 4 / 9, "pr8", "norm", 0), 64 * 64, 9)
    shares = [(kept == one).all(axis=1).mean() for one in PATTERN_SETS["pr8"]]
    assert min(shares) > 0.11
    assert max(shares) < 0.14


def test_what_patterns_can_not_be_is_refused():
    for sparsity, k, words in ((0.5, 18, "leave no sparsity of 0.5"), (0.75, 20, "do not fit rows of 20 columns")):
        with pytest.raises(MatrixError, match=words):
            patterns(4, k, sparsity, "centre8", "norm", 0)
    with pytest.raises(MatrixError, match="are not among"):
        patterns(4, 18, 0.75, "other", "norm", 0)


@pytest.mark.parametrize(
    ("source", "nonzeros"),
    [("vector:3:0", 144), ("kernel:9:0", 144), ("pattern:pr8:balanced:0", 128), ("channel:9:0", 144)],
)
def test_sources_of_a_convolution(source, nonzeros):
    shape = ConvShape(1, 8, 6, 6, 8, 3, 3, 1, 1)
    matrix = load_sparse(Problem("t", "t", "conv2d", 8, 72, 36, 0.75, source, conv=shape))
    assert (matrix.m, matrix.k, matrix.nnz) == (8, 72, nonzeros)
    with pytest.raises(MatrixError, match="are not among"):
        load_sparse(Problem("t", "t", "spmm", 8, 72, 36, 0.75, "pattern:pr8:some:0"))
