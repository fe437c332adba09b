"""Random patterns with exact counts, seeded. A pattern is an ascending array of linear positions row*k + column."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy  # its parts are loaded when they are first used
from numpy.typing import NDArray

from nnzbench.data.matrices import prune
from nnzbench.data.matrices.formats import CSR, MatrixError, prefix_sums, ranks

Positions = NDArray[np.int64]
Scales = NDArray[np.float64]
_CHUNK = 1 << 20  # positions drawn at a time: 8 MB of keys, which stay in cache
_MIDPOINTS = (np.arange(64) + 0.5) / 64


def from_positions(m: int, k: int, positions: Positions) -> CSR:
    """The m x k pattern with ones at the ascending linear `positions`."""
    offsets = np.searchsorted(positions, np.arange(m + 1, dtype=np.int64) * k)
    indices = np.empty(positions.size, dtype=np.int32)
    np.remainder(positions, k, out=indices, casting="unsafe")
    return CSR(m, k, offsets.astype(np.int32), indices, np.ones(positions.size, dtype=np.float32))


def uniform(m: int, k: int, sparsity: float, seed: int) -> CSR:
    """Every pattern with exactly round(sparsity*m*k) zeros equally likely."""
    size, count = m * k, prune.keep_count(m * k, sparsity)

    def keys(rng: np.random.Generator, start: int, stop: int) -> NDArray[np.float64]:
        return rng.random(stop - start)

    return from_positions(m, k, _smallest(seed, size, count, keys, lambda bound: size * min(1.0, bound), True))


def equal_rows(m: int, k: int, sparsity: float, seed: int) -> CSR:
    """Every row keeps the same number of uniformly drawn columns."""
    return by_row_lengths(k, np.full(m, prune.keep_count(k, sparsity), dtype=np.int64), np.random.default_rng(seed))


def by_row_lengths(k: int, lengths: NDArray[np.int64], rng: np.random.Generator) -> CSR:
    """Row i keeps `lengths[i]` of `k` columns, uniformly drawn."""
    m, parts = lengths.size, []
    step = max(1, _CHUNK // k)
    for start in range(0, m, step):
        order = np.argsort(rng.random((min(step, m - start), k)), axis=1)
        kept = np.arange(k) < lengths[start : start + step, None]
        rows = np.repeat(np.arange(start, start + order.shape[0]), lengths[start : start + step])
        parts.append(np.sort(rows * k + order[kept]))
    return from_positions(m, k, np.concatenate(parts) if parts else np.empty(0, dtype=np.int64))


def uneven_rows(m: int, k: int, sparsity: float, cov: float, seed: int) -> CSR:
    """Row lengths with the given coefficient of variation (Sputnik, figure 7), in random order.

    Lengths are the quantiles of the beta distribution on 0..k with that mean and deviation, so that the largest
    possible value is sqrt(sparsity/(1-sparsity)) (rows full or empty); raises `MatrixError` at or above it.
    """
    if cov == 0:
        return equal_rows(m, k, sparsity, seed)
    mean = 1.0 - sparsity
    if not mean or not 0 < cov < np.sqrt(sparsity / mean):
        raise MatrixError(f"row lengths at sparsity {sparsity} cannot have a coefficient of variation of {cov}.")
    concentration = sparsity / (mean * cov**2) - 1.0
    exact = k * scipy.special.betaincinv(mean * concentration, sparsity * concentration, (np.arange(m) + 0.5) / m)
    lengths = np.floor(exact).astype(np.int64)
    missing = prune.keep_count(m * k, sparsity) - int(lengths.sum())
    # Rounding loses about half an entry per row, the quantile rule more where nearly all rows are full or empty.
    while missing:
        room = lengths < k if missing > 0 else lengths > 0
        order = np.argsort(np.where(room, -(exact - lengths) * np.sign(missing), np.inf), kind="stable")
        take = min(abs(missing), int(room.sum()))
        lengths[order[:take]] += np.sign(missing)
        missing -= int(np.sign(missing)) * take
    rng = np.random.default_rng(seed)
    return by_row_lengths(k, rng.permutation(lengths), rng)


def thresholded(sparsity: float, rows: Scales, columns: Scales, seed: int) -> CSR:
    """Magnitude pruning of normal weights times the scales of their row (m,) and column (k,): the largest are kept."""
    m, k = rows.size, columns.size
    size = m * k
    # the scales' product, at so many quantiles of either that their mean stands for all
    pairs = np.quantile(rows, _MIDPOINTS)[:, None] * np.quantile(columns, _MIDPOINTS) if size else np.ones((1, 1))

    def keys(rng: np.random.Generator, start: int, stop: int) -> NDArray[np.float64]:
        first, last = start // k, -(-stop // k)
        scales = (rows[first:last, None] * columns).ravel()[start - first * k : stop - first * k]
        scales *= np.abs(rng.standard_normal(stop - start))
        with np.errstate(divide="ignore"):
            return np.asarray(np.divide(1.0, scales, out=scales))

    def expected(bound: float) -> float:
        return float(size * np.mean(scipy.special.erfc(1.0 / (np.sqrt(2.0) * bound * pairs))))

    return from_positions(m, k, _smallest(seed, size, prune.keep_count(size, sparsity), keys, expected))


def banded(m: int, k: int, sparsity: float, band: int, seed: int) -> CSR:
    """Causal attention mask (Sputnik, figure 11): column j <= row i, a dense band of `band` columns up to the diagonal.

    Left of the band exactly round(sparsity*positions) are dropped, kept ones drawn with probability falling as
    1/(i-j). `sparsity` is that of the off-diagonal part, as the paper states it.
    """
    if band < 1 or k < m:
        raise MatrixError(f"a causal band of {band} columns does not fit {m} x {k}.")
    rows = np.arange(m, dtype=np.int64)
    left = np.maximum(rows - band + 1, 0)  # columns left of the band, per row
    starts = prefix_sums(left)
    size = int(starts[-1])
    distances = np.arange(band, m, dtype=np.float64)

    def place(index: Positions) -> tuple[Positions, Positions]:
        row = np.searchsorted(starts, index, side="right") - 1
        return row, index - starts[row]

    def keys(rng: np.random.Generator, start: int, stop: int) -> NDArray[np.float64]:
        row, column = place(np.arange(start, stop, dtype=np.int64))
        return rng.standard_exponential(stop - start) * (row - column)

    def expected(bound: float) -> float:
        return float(np.sum((m - distances) * -np.expm1(-bound / distances)))

    drawn = _smallest(seed, size, prune.keep_count(size, sparsity), keys, expected)
    row, column = place(drawn)
    width = rows - left + 1
    inner = ranks(width)
    dense = np.repeat(rows * k + left, width) + inner
    return from_positions(m, k, np.sort(np.concatenate([row * k + column, dense])))


def pruned_normal(m: int, k: int, seed: int, pruner: Callable[[NDArray[np.float32]], CSR], rows: int = 1) -> CSR:
    """`pruner` applied to random normal weights, some rows at a time: for pruners that work by so many `rows`.

    Weights are drawn in order, and pruned by several threads.
    """
    rng = np.random.default_rng(seed)
    step = max(1, _CHUNK // k // rows) * rows
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        drawn = (rng.standard_normal((min(step, m - at), k), dtype=np.float32) for at in range(0, m, step))
        pattern = CSR.stacked(list(pool.map(pruner, drawn)))
    return pattern.with_values(np.ones(pattern.nnz, dtype=np.float32))


def blocks(m: int, k: int, sparsity: float, r: int, c: int, seed: int) -> CSR:
    """Whole r x c blocks, exactly round(sparsity*blocks) of them dropped; blocks at the edges may be cut."""
    if r < 1 or c < 1:
        raise MatrixError(f"blocks of {r} x {c} are empty.")
    grid = uniform(-(-m // r), -(-k // c), sparsity, seed)
    rows = (grid.rows[:, None] * r + np.arange(r))[:, :, None]
    columns = (grid.indices.astype(np.int64)[:, None] * c + np.arange(c))[:, None, :]
    inside = np.broadcast_to((rows < m) & (columns < k), (grid.nnz, r, c))
    return from_positions(m, k, np.sort((rows * k + columns)[inside]))


def _smallest(
    seed: int,
    size: int,
    count: int,
    keys: Callable[[np.random.Generator, int, int], NDArray[np.float64]],
    expected: Callable[[float], float],
    one_draw: bool = False,
) -> Positions:
    """Ascending positions of the `count` smallest of `size` keys, without ever holding all keys.

    `keys(rng, start, stop)` draws a stretch, of each key by one draw of the generator if `one_draw`: then by several
    threads. `expected(bound)` is the mean number of keys below `bound`. Between two bounds that leave a margin of eight
    deviations to either side keys are compared; those below both are kept. Should that fail, the bounds are widened.
    """
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    if count >= size:
        return np.arange(size, dtype=np.int64)
    margin = 8.0 * np.sqrt(count) + 16.0
    _, bound = _between(expected, min(float(size), count + margin))
    low, _ = _between(expected, count - margin)
    if count + margin >= size:
        bound = np.inf
    while True:

        def drawn(start: int, rng: np.random.Generator, low: float = low, bound: float = bound) -> tuple[Any, ...]:
            key = keys(rng, start, min(size, start + _CHUNK))
            near = key <= bound
            places = np.flatnonzero(near)
            places += start
            near &= key > low
            return places, np.flatnonzero(near) + start, key[near]

        starts = range(0, size, _CHUNK)
        rng = np.random.default_rng(seed)
        if one_draw:
            with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
                parts = list(pool.map(lambda start: drawn(start, _ahead(seed, start)), starts))
        else:
            parts = [drawn(start, rng) for start in starts]
        position, compared, key = (np.concatenate(some) for some in zip(*parts, strict=True))
        needed = count - (position.size - compared.size)
        if 0 <= needed <= compared.size:
            dropped = compared[~prune.top(-key[None], needed)[0]]
            kept: Positions = np.delete(position, np.searchsorted(position, dropped))
            return kept
        low, bound = -np.inf, bound * 2.0


def _between(expected: Callable[[float], float], wanted: float) -> tuple[float, float]:
    """Two bounds next to each other, the second with as many keys below it as are wanted."""
    low, bound = 0.0, 1.0
    while expected(bound) < wanted and bound < 1e12:
        bound *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + bound)
        low, bound = (middle, bound) if expected(middle) < wanted else (low, middle)
    return low, bound


def _ahead(seed: int, draws: int) -> np.random.Generator:
    """The generator of a seed after so many draws."""
    bits = np.random.PCG64(seed)
    return np.random.Generator(bits.advance(draws))
