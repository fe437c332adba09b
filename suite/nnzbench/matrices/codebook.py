"""Few shared values instead of one for every weight: Deep Compression's clustering, and what it costs in accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import CSR, MatrixError

LIVE_VALUES = 15
"""Values of nonzeros in a codebook of 4-bit indices: index 0 is the zero that fills long runs (EIE, section III)."""
_MOST_STEPS = 200


def cluster(values: NDArray[Any], count: int = LIVE_VALUES) -> NDArray[np.float32]:
    """At most `count` ascending values that stand for all `values` (any shape): k-means in one dimension.

    Centres start evenly spaced over the range of values, as Deep Compression found best (section 3), and move until
    nothing changes. They are rounded to fp16, as EIE's codebook holds 16 bits. Where there are no more than `count`
    different fp16 values, those are the centres. Raises `MatrixError` for a value that is not finite in fp16.
    """
    if count < 1:
        raise MatrixError(f"a codebook of {count} values is empty.")
    ordered = np.sort(values, axis=None).astype(np.float64)
    if not (np.abs(ordered) <= np.finfo(np.float16).max).all():
        raise MatrixError("values of a codebook must be finite in fp16.")
    if ordered.size == 0:
        return np.empty(0, np.float32)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    centres = np.linspace(ordered[0], ordered[-1], count)
    starts = np.empty(0, np.int64)
    for _ in range(_MOST_STEPS):
        borders = np.searchsorted(ordered, (centres[1:] + centres[:-1]) / 2)
        found = np.concatenate([[0], borders, [ordered.size]])
        if np.array_equal(found, starts):
            break
        starts = found
        sizes = np.diff(starts)
        np.divide(np.diff(sums[starts]), sizes, out=centres, where=sizes > 0)
        centres.sort()
    half = ordered.astype(np.float16)
    different = half[np.concatenate([[True], half[1:] != half[:-1]])]
    rounded = different if different.size <= count else np.unique(centres.astype(np.float16))
    return rounded.astype(np.float32)


def nearest(values: NDArray[Any], codebook: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each value's nearest of the ascending `codebook`, same shape; of two equally near the lower."""
    if codebook.size == 0:
        return np.zeros(values.shape, np.float32)
    borders = (codebook[1:].astype(np.float64) + codebook[:-1]) / 2
    return codebook[np.searchsorted(borders, values)]


def shared(matrix: CSR, count: int = LIVE_VALUES) -> CSR:
    """The same pattern with at most `count` different values, each nonzero's own cluster."""
    return matrix.with_values(nearest(matrix.values, cluster(matrix.values, count)))


@dataclass(frozen=True)
class Loss:
    """What sharing values changes: root mean square of the change over that of the original."""

    weights: float
    outputs: float
    """Of W x for standard normal x, 64 columns in float64."""


def loss(matrix: CSR, count: int = LIVE_VALUES, seed: int = 0) -> Loss:
    """How far `shared(matrix, count)` is from `matrix`, which holds at least one nonzero."""
    change = matrix.with_values(shared(matrix, count).values.astype(np.float64) - matrix.values)
    x = np.random.default_rng(seed).standard_normal((matrix.k, 64))
    outputs = np.square(change.to_scipy() @ x).sum() / np.square(matrix.to_scipy().astype(np.float64) @ x).sum()
    weights = np.square(change.values).sum() / np.square(matrix.values.astype(np.float64)).sum()
    return Loss(float(np.sqrt(weights)), float(np.sqrt(outputs)))
