"""Pruners: which weights of a dense matrix stay. Every one keeps an exact count; ties go to the lower index.

Coarser grains than single weights are rows of kernels, kernels, channels and PatDNN's patterns; Balanced Sparsity keeps
the same number of nonzeros in every column range of every row (section 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import scipy  # its parts are loaded when they are first used
from numpy.typing import NDArray

from nnzbench.data.matrices.formats import CSR, MatrixError

Mask = NDArray[np.bool_]
Weights = NDArray[Any]


def keep_count(size: int, sparsity: float) -> int:
    """Entries kept of `size` so that exactly round(sparsity*size) are dropped (halves round up)."""
    if not 0.0 <= sparsity <= 1.0:
        raise MatrixError(f"sparsity {sparsity} is outside 0..1.")
    return size - math.floor(sparsity * size + 0.5)


def magnitude(weights: Weights, sparsity: float) -> CSR:
    """Keeps the largest magnitudes of the whole (m, k) matrix."""
    flat = top(_checked(weights).reshape(1, -1), keep_count(weights.size, sparsity))
    return CSR.from_mask(weights, flat.reshape(weights.shape))


def balanced(weights: Weights, sparsity: float, blocks: int = 32) -> CSR:
    """Keeps the same number of weights in each of `blocks` column ranges of every row (Balanced Sparsity, section 3).

    A range is ceil(k/blocks) columns, the last may be shorter; it keeps round((1-sparsity)*range), at least 1. The
    paper's algorithm 1 goes there in steps: with nothing trained between them it keeps these very weights, as each step
    keeps the head of one order, of magnitudes and then positions.
    """
    magnitudes = _checked(weights)
    width, keep = balance_range(weights.shape[1], sparsity, blocks)
    mask = np.zeros(weights.shape, dtype=bool)
    for start in range(0, weights.shape[1], width):
        part = slice(start, start + width)
        mask[:, part] = top(magnitudes[:, part], keep)
    return CSR.from_mask(weights, mask)


def balance_range(k: int, sparsity: float, blocks: int = 32) -> tuple[int, int]:
    """(columns of a balance range, entries kept in each) for rows of `k` columns."""
    if not 1 <= blocks <= k:
        raise MatrixError(f"{blocks} balance ranges do not fit rows of {k} columns.")
    if not 0.0 <= sparsity <= 1.0:
        raise MatrixError(f"sparsity {sparsity} is outside 0..1.")
    width = -(-k // blocks)
    return width, max(1, math.floor((1.0 - sparsity) * width + 0.5))


def n_of_m(weights: Weights, n: int, m: int) -> CSR:
    """Keeps the `n` largest of every `m` consecutive columns (2:4 for sparse tensor cores)."""
    rows, k = weights.shape
    if not 1 <= n <= m or k % m:
        raise MatrixError(f"{n}:{m} sparsity does not fit rows of {k} columns.")
    groups = _checked(weights).reshape(rows * (k // m), m)
    return CSR.from_mask(weights, top(groups, n).reshape(rows, k))


CHOSEN = 4
"""Columns that V:N:M chooses of every M, so that N of them are a pattern of sparse tensor cores."""


def v_n_m(weights: Weights, v: int, n: int, m: int) -> CSR:
    """VENOM's V:N:M: of every `v` rows by `m` columns four columns, and of their weights the `n` largest of each row.

    The columns are those of the largest sums of magnitudes. Blocks at the edges may be cut.
    """
    rows, k = weights.shape
    if v < 1 or not 1 <= n <= CHOSEN <= m:
        raise MatrixError(f"{v}:{n}:{m} is no V:N:M pattern: N is 1 to {CHOSEN}, and M at least {CHOSEN}.")
    magnitudes = np.pad(_checked(weights), ((0, -rows % v), (0, -k % m)))
    cells = magnitudes.reshape(-1, v, magnitudes.shape[1] // m, m)
    columns = top(cells.sum(axis=1, dtype=np.float64).reshape(-1, m), CHOSEN).reshape(-1, 1, *cells.shape[2:])
    kept = top(np.where(columns, cells, -1).reshape(-1, m), n).reshape(magnitudes.shape)
    return CSR.from_mask(weights, kept[:rows, :k])


def block(weights: Weights, sparsity: float, r: int, c: int) -> CSR:
    """Keeps whole r x c blocks, those of largest sum of squares; blocks at the edges may be cut."""
    rows, k = weights.shape
    if r < 1 or c < 1:
        raise MatrixError(f"blocks of {r} x {c} are empty.")
    squares = np.square(_checked(weights), dtype=np.float64)
    sums = np.add.reduceat(np.add.reduceat(squares, np.arange(0, rows, r), axis=0), np.arange(0, k, c), axis=1)
    kept = top(sums.reshape(1, -1), keep_count(sums.size, sparsity)).reshape(sums.shape)
    return CSR.from_mask(weights, np.repeat(np.repeat(kept, r, axis=0), c, axis=1)[:rows, :k])


def top(keys: NDArray[Any], count: int) -> Mask:
    """Mask of the `count` largest of each row of 2-D `keys`, ties to the lower index."""
    size = keys.shape[1]
    if count <= 0 or size == 0:
        return np.zeros(keys.shape, dtype=bool)
    if count >= size:
        return np.ones(keys.shape, dtype=bool)
    if keys.dtype == np.float16:  # which NumPy orders wrongly on processors with AVX-512
        keys = keys.astype(np.float32)
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


TAPS = 9
"""Of a 3x3 filter, the only size that PatDNN has patterns for."""
PATTERN_KEEP = 4
"""Weights that a pattern leaves of a kernel (PatDNN, ASPLOS 2020)."""


def _set(*patterns: str) -> NDArray[np.bool_]:
    """(patterns, 9), from rows of 3x3 joined by slashes."""
    return np.array([[digit == "1" for digit in one.replace("/", "")] for one in patterns])


_MOST_FREQUENT = (
    "010/010/011", "000/111/001", "000/111/100", "100/111/000", "011/010/010", "001/111/000",
    "000/010/111", "010/010/110", "110/010/010", "111/010/000", "000/111/010", "010/111/000",
)  # fmt: skip
"""Natural patterns, a kernel's centre and its three largest other weights, of the 56 there are: the most frequent of
the 5,314 kernels of `rn50_conv3x3_g1` to `g3` that 90 % pruning left four weights or more."""

PATTERN_SETS = {
    "centre8": _set(
        "110/110/000", "011/011/000", "000/110/110", "000/011/011",
        "010/111/000", "010/110/010", "000/111/010", "010/011/010",
    ),
    "pr8": _set(
        "000/100/111", "000/001/111", "111/100/000", "111/001/000",
        "110/110/000", "011/011/000", "000/110/110", "000/011/011",
    ),
    **{f"top{count}": _set(*_MOST_FREQUENT[:count]) for count in (6, 8, 12)},
}  # fmt: skip
"""Eight patterns each: the centre with three of its neighbours, as PatDNN describes them; and those that a public
training code of the method found on ImageNet networks (GitHub 7bvcxz/PatDNN), half of which leave the centre out.
`top<n>` is a library by frequency, as PatDNN chooses its own (section 4.2)."""

Mode = Literal["norm", "balanced", "uneven"]
_FILTER_SIGMA = 0.05
"""Deviation of the logarithm of filters' scales that leaves them with as uneven counts of kernels (a coefficient of
variation of 0.3 where 1 in 3.6 stays) as real ResNet-50 layers have (`rn50_conv3x3_g1` to `g3`)."""


def vectors(m: int, k: int, sparsity: float, length: int, seed: int) -> CSR:
    """Whole runs of `length` neighbouring columns from a multiple of it on.

    Of 3 in 3x3 filters these are rows of kernels; of all taps, whole kernels (connectivity pruning).
    """
    if length < 1 or k % length:
        raise MatrixError(f"vectors of {length} do not fit rows of {k} columns.")
    return block(_normal(m, k, seed), sparsity, 1, length)


def channels(m: int, k: int, sparsity: float, taps: int, seed: int) -> CSR:
    """Whole output channels, and with them the input channels of a layer before pruned alike: a smaller dense layer.

    The same share of both is kept, sqrt(1 - sparsity), rounded to whole channels; those of largest norm.
    """
    if taps < 1 or k % taps:
        raise MatrixError(f"kernels of {taps} taps do not fit rows of {k} columns.")
    if not 0.0 <= sparsity <= 1.0:
        raise MatrixError(f"sparsity {sparsity} is outside 0..1.")
    weights = _normal(m, k, seed)
    squares = np.square(weights, dtype=np.float64)
    share = math.sqrt(1.0 - sparsity)
    rows = top(squares.sum(axis=1)[None], round(share * m))[0]
    inputs = top(squares.reshape(m, -1, taps).sum(axis=(0, 2))[None], round(share * (k // taps)))[0]
    return CSR.from_mask(weights, rows[:, None] & np.repeat(inputs, taps))


def patterns(m: int, k: int, sparsity: float, chosen: str, mode: Mode, seed: int) -> CSR:
    """PatDNN's pruning of 3x3 filters: of each kernel that stays, the four weights of one of a few patterns.

    As many kernels stay as `sparsity` leaves room for, at least 5/9: those of largest norm of the whole layer (`norm`,
    and `uneven` of filters whose scales vary as real ones do) or of each filter (`balanced`); each takes the pattern
    that keeps most of its energy.
    """
    if chosen not in PATTERN_SETS or mode not in get_args(Mode):
        known = f"{', '.join(PATTERN_SETS)} by {', '.join(get_args(Mode))}"
        raise MatrixError(f"patterns '{chosen}:{mode}' are not among {known}.")
    if k % TAPS:
        raise MatrixError(f"3x3 patterns do not fit rows of {k} columns.")
    if not 1.0 - PATTERN_KEEP / TAPS <= sparsity <= 1.0:
        raise MatrixError(f"patterns of {PATTERN_KEEP} of {TAPS} weights leave no sparsity of {sparsity}.")
    weights = _normal(m, k, seed)
    if mode == "uneven":
        weights *= _scales(m, _FILTER_SIGMA, seed)
    squares = np.square(weights.reshape(m, k // TAPS, TAPS), dtype=np.float64)
    norms = squares.sum(axis=2)
    if mode != "balanced":
        kept = top(norms.reshape(1, -1), round((1.0 - sparsity) * m * k / PATTERN_KEEP)).reshape(norms.shape)
    else:
        kept = top(norms, round((1.0 - sparsity) * k / PATTERN_KEEP))
    best = (squares @ PATTERN_SETS[chosen].T.astype(np.float64)).argmax(axis=2)
    mask = PATTERN_SETS[chosen][best] & kept[:, :, None]
    return CSR.from_mask(weights, mask.reshape(m, k))


_ROW_SIGMA = 0.1
"""Deviation of the logarithm of rows' scales; real Transformers' layers have 0.04 to 0.11 (`synthetic_params.csv`)."""


def elements(m: int, k: int, sparsity: float, count: int, seed: int) -> CSR:
    """Keeps the largest of each set of rows i mod `count`, all sets alike: ESE's load-balance-aware pruning.

    Set i is what processing element i holds (ESE, FPGA 2017, section 3.1). One set is magnitude pruning of the whole.
    Weights are normal, rows' scales vary. Sets of equal size keep exactly as many; a shorter one its share.
    """
    if not 1 <= count <= m:
        raise MatrixError(f"{count} sets do not fit {m} rows.")
    weights = _normal(m, k, seed)
    weights *= _scales(m, _ROW_SIGMA, seed)
    mask = np.zeros((m, k), bool)
    for first in range(count):
        rows = np.abs(weights[first::count])
        mask[first::count] = top(rows.reshape(1, -1), keep_count(rows.size, sparsity)).reshape(rows.shape)
    return CSR.from_mask(weights, mask)


def _scales(m: int, sigma: float, seed: int) -> NDArray[np.float32]:
    """(m, 1): scales of rows, their logarithms the midpoint quantiles of a normal distribution in random order."""
    drawn = scipy.special.ndtri((np.random.default_rng([seed, m]).permutation(m) + 0.5) / m)
    return np.exp(sigma * drawn, dtype=np.float64).astype(np.float32)[:, None]


def _normal(m: int, k: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((m, k), dtype=np.float32)


@dataclass(frozen=True)
class BalancedMatrix:
    """An m x k matrix cut into `ranges` column ranges of `width` columns, each row of each range with `keep` entries.

    Entries need neither row pointers nor full column indices: `values` and `positions` have shape (m, ranges, keep),
    positions count from the start of the range, ascending, in one byte where `width` <= 256 and in two above.
    Where k is no multiple of the width the last range is short; where it is shorter than `keep`, its surplus entries
    have value 0 and repeat its last position.
    """

    m: int
    k: int
    width: int
    values: NDArray[Any]
    positions: NDArray[Any]

    @property
    def ranges(self) -> int:
        """Column ranges of a row."""
        return int(self.values.shape[1])

    @property
    def keep(self) -> int:
        """Entries stored for each range of each row."""
        return int(self.values.shape[2])

    @property
    def last_keep(self) -> int:
        """Entries of the last range that are no surplus."""
        return min(self.keep, self.k - (self.ranges - 1) * self.width)

    @staticmethod
    def from_csr(matrix: CSR, ranges: int) -> BalancedMatrix:
        """Takes a balanced matrix apart into ranges of ceil(k / ranges) columns; fewer ranges may cover them all.

        Raises `MatrixError` naming the first row and range with another count than the rest, and where `ranges` does
        not fit or a range is wider than 65536 columns.
        """
        if not 1 <= ranges <= matrix.k:
            raise MatrixError(f"{ranges} balance ranges do not fit rows of {matrix.k} columns.")
        if matrix.nnz == 0:
            raise MatrixError(f"a {matrix.m} x {matrix.k} matrix without nonzeros has no balance ranges.")
        width = -(-matrix.k // ranges)
        if width > 1 << 16:
            raise MatrixError(f"balance ranges of {width} columns are wider than two bytes can address.")
        ranges = -(-matrix.k // width)
        keep = int((matrix.band(0, 1).indices < width).sum())
        last = min(keep, matrix.k - (ranges - 1) * width)
        per_row = (ranges - 1) * keep + last
        if keep == 0 or matrix.nnz != matrix.m * per_row or (matrix.row_lengths != per_row).any():
            raise _not_balanced(matrix, width, ranges)
        columns = _as_ranges(matrix.indices.reshape(matrix.m, per_row), ranges, keep, last)
        starts = np.arange(0, ranges * width, width, dtype=np.int32)[:, None]
        # ascending columns: a range's first and last entry tell that all of it lies inside
        if (columns[:, :, 0] < starts[:, 0]).any() or (columns[:, :, -1] >= starts[:, 0] + width).any():
            raise _not_balanced(matrix, width, ranges)
        values = _as_ranges(matrix.values.reshape(matrix.m, per_row), ranges, keep, last, surplus=0)
        dtype = np.uint8 if width <= 256 else np.uint16
        return BalancedMatrix(matrix.m, matrix.k, width, values, (columns - starts).astype(dtype))


def _as_ranges(rows: NDArray[Any], ranges: int, keep: int, last: int, surplus: int | None = None) -> NDArray[Any]:
    """(m, entries) as (m, ranges, keep); the last range's surplus is its last entry again, or `surplus`."""
    m = rows.shape[0]
    if last < keep:
        fill = np.full((m, keep - last), surplus, rows.dtype) if surplus is not None else rows[:, -1:]
        rows = np.concatenate([rows, np.broadcast_to(fill, (m, keep - last))], axis=1)
    return rows.reshape(m, ranges, keep)


def _not_balanced(matrix: CSR, width: int, ranges: int) -> MatrixError:
    cells = np.bincount(matrix.rows * ranges + matrix.indices // width, minlength=matrix.m * ranges)
    counts = cells.reshape(matrix.m, ranges)
    keep = np.full(ranges, max(1, int(counts[0, 0])))
    keep[-1] = min(keep[0], matrix.k - (ranges - 1) * width)
    row, place = (int(i) for i in np.argwhere(counts != keep)[0])
    return MatrixError(
        f"not balanced: row {row} has {counts[row, place]} nonzeros in range {place} "
        f"(columns {place * width} to {min((place + 1) * width, matrix.k) - 1}), expected {keep[place]}."
    )
