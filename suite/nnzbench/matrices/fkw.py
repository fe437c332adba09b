"""PatDNN's storage of pattern-pruned 3x3 filters, and the order of filters and kernels that goes with it.

Niu et al.: "PatDNN: Achieving Real-Time DNN Execution on Mobile Devices with Pattern-based Weight Pruning", ASPLOS
2020, sections 5.2 (filter kernel reorder) and 5.3 (Filter-Kernel-Weight, FKW).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import CSR, MatrixError
from nnzbench.matrices.prune import PATTERN_KEEP, TAPS

MOST_PATTERNS = 16
_BITS = 1 << np.arange(TAPS)


@dataclass(frozen=True)
class Kernels:
    """The 3x3 kernels that a layer's pruning left, by filter, then by input channel."""

    filters: int
    channels: int
    masks: tuple[int, ...]
    """The layer's patterns, ascending: bit 3 r + s for tap (r, s)."""
    filter: NDArray[np.int64]
    channel: NDArray[np.int64]
    pattern: NDArray[np.int64]
    """Of each kernel, its place in `masks`."""
    values: NDArray[Any]
    """(kernels, 4), taps ascending."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Kernels of each filter."""
        return np.bincount(self.filter, minlength=self.filters)

    @staticmethod
    def of(matrix: CSR) -> Kernels:
        """The kernels of a (filters, channels * 9) matrix.

        Raises `MatrixError` where a kernel has another count of weights than 0 or 4, or there are over 16 patterns.
        """
        if matrix.k % TAPS:
            raise MatrixError(f"3x3 patterns do not fit rows of {matrix.k} columns")
        channels = matrix.k // TAPS
        channel, tap = np.divmod(matrix.indices.astype(np.int64), TAPS)
        kernel, counts = np.unique(matrix.rows * channels + channel, return_counts=True)
        if (counts != PATTERN_KEEP).any():
            raise MatrixError(f"a kernel has {counts[counts != PATTERN_KEEP][0]} weights, a pattern {PATTERN_KEEP}")
        bits = _BITS[tap].reshape(-1, PATTERN_KEEP).sum(axis=1)
        masks, pattern = np.unique(bits, return_inverse=True)
        if masks.size > MOST_PATTERNS:
            raise MatrixError(f"{masks.size} patterns are more than {MOST_PATTERNS}")
        filters, within = np.divmod(kernel, channels)
        values = matrix.values.reshape(-1, PATTERN_KEEP)
        return Kernels(matrix.m, channels, tuple(map(int, masks)), filters, within, pattern, values)


def reordered(kernels: Kernels) -> NDArray[np.int64]:
    """Filter kernel reorder: filters by length, the longest first; of one length each next to the most similar.

    Similar are filters with many kernels of one channel and pattern in common. Ties go to the lower filter.
    """
    lengths = kernels.lengths
    held = np.zeros((kernels.filters, kernels.channels * len(kernels.masks)), np.float32)
    held[kernels.filter, kernels.channel * len(kernels.masks) + kernels.pattern] = 1
    order: list[int] = []
    for length in np.unique(lengths)[::-1]:
        left = np.flatnonzero(lengths == length)
        common = held[left] @ held[left].T
        at, free = 0, np.ones(left.size, bool)
        for _ in range(left.size):
            free[at] = False
            order.append(int(left[at]))
            at = int(np.where(free, common[at], -1).argmax())
    return np.array(order, np.int64)


def structure_bytes(filters: int, kernels: int, patterns: int) -> int:
    """Of FKW's arrays beside the weights, of a layer of that many filters, kernels left and patterns.

    First kernel of each filter and their number (4 bytes each); in 2 bytes each the filter that each place holds, the
    input channel of each kernel, and where in its filter each pattern's kernels begin and end.
    """
    return 4 * (filters + 1) + 2 * (filters + kernels + filters * (patterns + 1))


def csr_structure_bytes(filters: int, kernels: int) -> int:
    """Of row pointers and column indices of the same weights in CSR, 4 bytes each."""
    return 4 * (filters + 1) + 4 * PATTERN_KEEP * kernels
