"""Pruners: which weights of a dense matrix stay. Every one keeps an exact count; ties go to the lower index."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import CSR, MatrixError

Mask = NDArray[np.bool_]
Weights = NDArray[Any]


def keep_count(size: int, sparsity: float) -> int:
    """Entries kept of `size` so that exactly round(sparsity*size) are dropped (halves round up)."""
    if not 0.0 <= sparsity <= 1.0:
        raise MatrixError(f"sparsity {sparsity} is outside 0..1.")
    return size - math.floor(sparsity * size + 0.5)


def from_mask(weights: Weights, mask: Mask) -> CSR:
    """The kept weights in CSR; a kept weight that happens to be zero stays stored, so that counts are exact."""
    offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int32)
    m, k = mask.shape
    return CSR(m, k, offsets, np.nonzero(mask)[1].astype(np.int32), weights[mask])


def magnitude(weights: Weights, sparsity: float) -> CSR:
    """Keeps the largest magnitudes of the whole (m, k) matrix."""
    flat = top(_checked(weights).reshape(1, -1), keep_count(weights.size, sparsity))
    return from_mask(weights, flat.reshape(weights.shape))


def balanced(weights: Weights, sparsity: float, blocks: int = 32) -> CSR:
    """Keeps the same number of weights in each of `blocks` column ranges of every row (Balanced Sparsity, section 3).

    A range is ceil(k/blocks) columns, the last may be shorter; it keeps round((1-sparsity)*range), at least 1.
    """
    magnitudes = _checked(weights)
    width, keep = balance_range(weights.shape[1], sparsity, blocks)
    mask = np.zeros(weights.shape, dtype=bool)
    for start in range(0, weights.shape[1], width):
        part = slice(start, start + width)
        mask[:, part] = top(magnitudes[:, part], keep)
    return from_mask(weights, mask)


def balance_range(k: int, sparsity: float, blocks: int = 32) -> tuple[int, int]:
    """(columns of a balance range, entries kept in each) for rows of `k` columns."""
    if not 1 <= blocks <= k:
        raise MatrixError(f"{blocks} balance ranges do not fit rows of {k} columns.")
    if not 0.0 <= sparsity <= 1.0:
        raise MatrixError(f"sparsity {sparsity} is outside 0..1.")
    width = -(-k // blocks)
    return width, max(1, math.floor((1.0 - sparsity) * width + 0.5))


PRUNING_STEPS = 4
"""Steps of `gradual_balanced` (a choice: Balanced Sparsity names none)."""


def gradual_schedule(sparsity: float, steps: int = PRUNING_STEPS) -> list[float]:
    """Sparsity after each of `steps` pruning steps: s_f*(1-(1-i/n)^3), steep at first and ending at `sparsity`."""
    return [sparsity * (1.0 - (1.0 - i / steps) ** 3) for i in range(1, steps + 1)]


def gradual_balanced(
    weights: Weights,
    sparsity: float,
    blocks: int = 32,
    steps: int = PRUNING_STEPS,
    retrain: Callable[[CSR], NDArray[Any]] | None = None,
) -> CSR:
    """Balanced Sparsity's algorithm 1: prune a little more in every range, `retrain` what is left, repeat.

    `weights` is (m, k); `retrain` gives what is left new values, shape (nnz,). Pruned weights stay pruned. Without
    retraining the pattern is that of `balanced` at the final sparsity, whatever the weights: what a step keeps is the
    head of one order, of magnitudes and then positions. With it, ranges keep as many weights but other ones. Raises
    `MatrixError` as `balanced` does, and where `steps` is not positive.
    """
    if steps < 1:
        raise MatrixError(f"{steps} pruning steps prune nothing.")
    first, *further = gradual_schedule(sparsity, steps)
    left = balanced(weights, first, blocks)
    for level in further if left.nnz else ():
        left = _fewer(left if retrain is None else left.with_values(retrain(left)), level, blocks)
    return left if retrain is None else left.with_values(retrain(left))


def _fewer(matrix: CSR, sparsity: float, blocks: int) -> CSR:
    """The largest entries of each range of a matrix whose ranges hold as many in every row."""
    width, keep = balance_range(matrix.k, sparsity, blocks)
    shape = (matrix.m, matrix.nnz // matrix.m)
    columns, values = matrix.indices.reshape(shape), matrix.values.reshape(shape)
    starts = np.searchsorted(columns[0] // width, np.arange(-(-matrix.k // width) + 1))
    mask = np.zeros(shape, dtype=bool)
    for start, end in itertools.pairwise(starts):
        mask[:, start:end] = top(np.abs(values[:, start:end]), keep)
    offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int32)
    return CSR(matrix.m, matrix.k, offsets, columns[mask], values[mask])


def n_of_m(weights: Weights, n: int, m: int) -> CSR:
    """Keeps the `n` largest of every `m` consecutive columns (2:4 for sparse tensor cores)."""
    rows, k = weights.shape
    if not 1 <= n <= m or k % m:
        raise MatrixError(f"{n}:{m} sparsity does not fit rows of {k} columns.")
    groups = _checked(weights).reshape(rows * (k // m), m)
    return from_mask(weights, top(groups, n).reshape(rows, k))


def block(weights: Weights, sparsity: float, r: int, c: int) -> CSR:
    """Keeps whole r x c blocks, those of largest sum of squares; blocks at the edges may be cut."""
    rows, k = weights.shape
    if r < 1 or c < 1:
        raise MatrixError(f"blocks of {r} x {c} are empty.")
    squares = np.square(_checked(weights), dtype=np.float64)
    sums = np.add.reduceat(np.add.reduceat(squares, np.arange(0, rows, r), axis=0), np.arange(0, k, c), axis=1)
    kept = top(sums.reshape(1, -1), keep_count(sums.size, sparsity)).reshape(sums.shape)
    return from_mask(weights, np.repeat(np.repeat(kept, r, axis=0), c, axis=1)[:rows, :k])


def top(keys: NDArray[Any], count: int) -> Mask:
    """Mask of the `count` largest of each row of 2-D `keys`, ties to the lower index."""
    size = keys.shape[1]
    if count <= 0 or size == 0:
        return np.zeros(keys.shape, dtype=bool)
    if count >= size:
        return np.ones(keys.shape, dtype=bool)
    bound = np.partition(keys, size - count, axis=1)[:, size - count, None]
    mask = keys > bound
    ties = keys == bound
    missing = count - mask.sum(axis=1)
    several = ties.sum(axis=1) != missing
    if several.any():
        ties[several] &= np.cumsum(ties[several], axis=1) <= missing[several, None]
    return np.asarray(mask | ties, dtype=bool)


def _checked(weights: Weights) -> Weights:
    if weights.ndim != 2 or not np.isfinite(weights).all():
        raise MatrixError("weights to prune must be a finite 2-D array.")
    return np.abs(weights)
