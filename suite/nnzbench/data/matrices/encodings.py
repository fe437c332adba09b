"""How papers store weights: Deep Compression's clusters and fixed-point numbers with what they cost in accuracy; EIE's
relative-indexed entries and queues; PatDNN's 3x3 patterns.

EIE (ISCA 2016, section III): a codebook index and a run of zeros, four bits each. EIE (section III-B) and ESE (FPGA
2017, section 4) give row i to element i mod n. One nonzero input after another is handed to all elements at once; an
element takes a clock for each entry that it has in the input's column. A queue before each element lets the others go
ahead of one that has more.

PatDNN (Niu et al., ASPLOS 2020): sections 5.2 (filter kernel reorder) and 5.3 (Filter-Kernel-Weight, FKW).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.data.matrices.formats import CSR, MatrixError, counting_sort
from nnzbench.data.matrices.prune import PATTERN_KEEP, TAPS

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
    ordered = np.sort(values.astype(np.float64), axis=None)
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
    return different.astype(np.float32) if different.size <= count else _unique(centres.astype(np.float16))


def _unique(values: NDArray[Any]) -> NDArray[np.float32]:
    """The different values, ascending. Not sorted as float16: NumPy does so wrongly on processors with AVX-512."""
    return np.unique(values.astype(np.float32))


def nearest(values: NDArray[Any], codebook: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each value's nearest of the ascending `codebook`, same shape; of two equally near the lower."""
    if codebook.size == 0:
        return np.zeros(values.shape, np.float32)
    borders = (codebook[1:].astype(np.float64) + codebook[:-1]) / 2
    return codebook[np.searchsorted(borders, values)]


def shared(matrix: CSR) -> CSR:
    """The same pattern with at most 15 different values, each nonzero's own cluster."""
    return matrix.with_values(QUANTISERS["codebook"](matrix.values))


def linear(values: NDArray[Any], bits: int) -> NDArray[np.float32]:
    """Fixed-point numbers of so many bits nearest to `values`, which are finite and not all zero.

    The step is the power of two at which the largest magnitude still fits (direct sparse convolution, eq. 19 to 21).
    """
    whole_bits = np.ceil(np.log2(np.abs(values.astype(np.float64)).max()))
    step = 2.0 ** -(bits - whole_bits - 1)
    most = 2 ** (bits - 1)
    steps = np.clip(np.round(values / step), -most, most - 1)
    return np.asarray(step * steps, np.float32)


QUANTISERS: dict[str, Callable[[NDArray[Any]], NDArray[np.float32]]] = {
    "codebook": lambda values: nearest(values, cluster(values)),
    "kmeans_16": lambda values: nearest(values, np.unique(linear(cluster(values, 16), 8))),
    "linear_8": lambda values: linear(values, 8),
    "linear_4": lambda values: linear(values, 4),
}
"""What replaces the nonzeros of a matrix: EIE's codebook of 15 values and zero, and direct sparse convolution's."""


@dataclass(frozen=True)
class Loss:
    """What quantising changes: root mean square of the change over that of the original."""

    weights: float
    outputs: float
    """Of W x for standard normal x, 64 columns in float64."""


def loss(matrix: CSR, quantiser: str = "codebook") -> Loss:
    """How far `matrix`, which holds at least one nonzero, is from itself with its values quantised."""
    change = matrix.with_values(QUANTISERS[quantiser](matrix.values).astype(np.float64) - matrix.values)
    x = np.random.default_rng(0).standard_normal((matrix.k, 64))
    outputs = np.square(change.to_scipy() @ x).sum() / np.square(matrix.to_scipy().astype(np.float64) @ x).sum()
    weights = np.square(change.values).sum() / np.square(matrix.values.astype(np.float64)).sum()
    return Loss(float(np.sqrt(weights)), float(np.sqrt(outputs)))


LONGEST_RUN = 15
PADDING = np.uint8(LONGEST_RUN << 4)
CODEBOOK = LIVE_VALUES + 1


@dataclass(frozen=True)
class Coded:
    """A matrix as its pattern, an index from 1 on for every nonzero (0 for a stored zero), and what these mean."""

    pattern: CSR
    codes: NDArray[np.uint8]
    codebook: NDArray[np.float32]
    """(16,), index 0 is 0."""

    @staticmethod
    def of(matrix: CSR) -> Coded:
        """Raises `MatrixError` where the matrix has more than 15 different values."""
        values = matrix.values
        different = _unique(values[:4096])
        if different.size <= CODEBOOK:
            different = _unique(values)
        different = different[different != 0]
        if different.size > LIVE_VALUES:
            raise MatrixError(
                f"its nonzeros have more than {LIVE_VALUES} different values: a codebook of 4-bit indices has no more, "
                "beside the zero that breaks long runs."
            )
        codebook = np.zeros(CODEBOOK, np.float32)
        codebook[1 : different.size + 1] = different
        codes = np.searchsorted(different, values).astype(np.uint8) + np.uint8(1)
        codes[values == 0] = 0
        return Coded(matrix, codes, codebook)


@dataclass(frozen=True)
class Slices:
    """Entries of a matrix's slices, one slice after the other: part by part, row by row, lane by lane."""

    lengths: NDArray[np.int64]
    """(parts, rows, lanes): entries of each slice."""
    entries: NDArray[np.uint8]
    last: NDArray[np.int64]
    """(parts, rows, lanes): place of the slice's last entry among its columns, -1 where there is none."""


def slices(coded: Coded, lanes: int, part_columns: int) -> Slices:
    """Cuts rows into parts of `part_columns` columns, a multiple of `lanes`, and a part of a row into `lanes` slices.

    Column c of a part belongs to slice c mod `lanes`, at place c div `lanes`.
    """
    matrix = coded.pattern
    parts = max(1, -(-matrix.k // part_columns))
    shape = (parts, matrix.m, lanes)
    part, column = np.divmod(matrix.indices.astype(np.int64), part_columns)
    place, lane = np.divmod(column, lanes)
    key = (part * matrix.m + matrix.rows) * lanes + lane
    size = parts * matrix.m * lanes
    order, _ = counting_sort(key, size)  # columns ascend in a row, and so do places in a slice
    key, place, codes = key[order], place[order], coded.codes[order]

    first = np.ones(key.size, bool)
    first[1:] = key[1:] != key[:-1]
    before = np.concatenate([[-1], place[:-1]]) if key.size else place
    before[first] = -1
    broken, run = np.divmod(place - before - 1, LONGEST_RUN + 1)
    ends = np.cumsum(1 + broken)
    count = int(ends[-1]) if key.size else 0
    entries = np.full(count, PADDING)
    entries[ends - 1] = (run << 4).astype(np.uint8) | codes
    lengths = np.bincount(key, weights=1 + broken, minlength=size).astype(np.int64)
    last = np.full(size, -1, np.int64)
    last[key] = place  # the last of a slice comes last
    return Slices(lengths.reshape(shape), entries, last.reshape(shape))


DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Of EIE's figure 8."""


def entries_by_element(matrix: CSR, elements: int) -> NDArray[np.int64]:
    """(k, elements): entries of each column that each element holds, those that only break a run of zeros included."""
    coded = Coded(matrix.transposed(), np.ones(matrix.nnz, np.uint8), np.zeros(CODEBOOK, np.float32))
    entries: NDArray[np.int64] = slices(coded, elements, -(-matrix.m // elements) * elements).lengths[0]
    return entries


def utilisation(entries: NDArray[np.int64], depths: Sequence[int]) -> list[float]:
    """Share of all elements' clocks in which they work, by depth of their queues; `entries` as (inputs, elements).

    An input is handed over, one a clock, when every queue has room: `depth` inputs back, all elements have finished.
    Depth 1 is no queue. An element without entries in a column takes a clock to find that out, and is idle in it.
    """
    inputs, elements = entries.shape
    if not entries.sum():
        return [0.0 for _ in depths]
    back = np.asarray(depths)
    finished = np.zeros((inputs + 1, len(depths), elements), np.int64)  # row 0: before the first
    slowest = np.zeros((inputs + 1, len(depths)), np.int64)
    handed = np.full(len(depths), -1)
    clocks = np.maximum(entries, 1)
    which = np.arange(len(depths))
    for number in range(1, inputs + 1):
        handed = np.maximum(handed + 1, slowest[np.maximum(number - back, 0), which])
        finished[number] = np.maximum(handed[:, None], finished[number - 1]) + clocks[number - 1]
        slowest[number] = finished[number].max(axis=1)
    return [float(entries.sum() / (elements * last)) for last in slowest[-1]]


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
