"""Synthetic patterns calibrated on real pruned layers: thresholded Gaussian weights that vary by row and column alike.

A weight is |g_ij| * exp(a_i + b_j) with g standard normal and normal a, b; the largest are kept, which is magnitude
pruning of weights with lognormal row and column scales. The scales' deviations are calibrated on the drawn sample, so
that row and column coefficients of variation come out as measured on the real layer.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import scipy  # its parts are loaded when they are first used
from numpy.typing import NDArray

from nnzbench.data.matrices import generate, index, prune
from nnzbench.data.matrices.formats import CSR, MatrixError

Array = NDArray[np.float64]

_HEADS = 8
_HEAD_SHARE = 0.85  # of the row-length variance of q, k, v lies between the heads (measured 0.7-0.98)
_KERNEL_SIGMA = 0.45  # spread between 3x3 kernels (measured 0.3-0.6)
_TAP_SHARE = 0.5  # of the column variance of 3x3 filters lies between the taps
_TAP_LIMIT = 0.15  # spread between filter taps (measured 0.07-0.3)
_HEAVY_ROWS = 3  # residual-stream outputs have 2 to 4 rows of several times the mean
_SIGMA_LIMIT = 8.0
_ROUNDS = 12


@dataclass(frozen=True)
class Target:
    """Statistics to imitate. Covs are population deviation over mean of row and column lengths."""

    m: int
    k: int
    nnz: int
    row_cov: float
    col_cov: float
    dead_rows: int = 0
    heavy_rows: int = 0
    heavy_ratio: float = 1.0
    """Length of a heavy row over the mean."""
    head_rows: bool = False
    head_columns: bool = False
    taps: int = 1
    kernels: bool = False
    """Whether nonzeros cluster in filter kernels, as magnitude pruning leaves them."""
    block_rows: int = 1


def for_dlmc(path: str) -> CSR:
    """The synthetic pattern (calibrated) of a DLMC matrix in its own shape, count and column order, seeded by path."""
    entry = index.dlmc().get(path)
    if entry is None:
        raise MatrixError(f"standin:{path}: no such matrix in the DLMC index.")
    return sample(dlmc_target(entry), path)


def for_weights(name: str, m: int, k: int, sparsity: float) -> CSR:
    """The synthetic pattern (calibrated) of a weight array, at its own size or (for wider models) at another m x k.

    Convolution filters come in DLMC's column order `tap*C_in + c_in`.
    """
    entry = index.weights().get(name)
    if entry is None:
        raise MatrixError(f"standin:{name}: no such array in the weights index.")
    if entry.dlmc:
        return for_dlmc(entry.dlmc)
    if (m, k) == (entry.rows, entry.cols):
        nnz, dead = entry.nnz, entry.empty_rows
    else:
        nnz, dead = prune.keep_count(m * k, sparsity), round(entry.empty_rows * m / entry.rows)
    block_rows = entry.block_rows if m % entry.block_rows == 0 else 1
    return sample(Target(m, k, nnz, entry.row_cov, entry.col_cov, dead, block_rows=block_rows), name)


def for_kind(layer_kind: str, m: int, k: int, sparsity: float, seed: int) -> CSR:
    """Magnitude pruning of an m x k layer whose scales vary as measured on all layers of that kind, at any level.

    What was measured at 0.9 and 0.95 on smaller layers is the scales' deviation, which belongs to the weights and not
    to a level or size; how much row lengths vary follows. Heads and heavy rows are left out. Raises `MatrixError`.
    """
    measured = [entry for entry in index.standin_parameters() if entry.layer_kind == layer_kind]
    if not measured:
        kinds = ", ".join(sorted({entry.layer_kind for entry in index.standin_parameters()}))
        raise MatrixError(f"magnitude:{layer_kind}: no such kind of layer was measured; there are: {kinds}.")
    rng = np.random.default_rng([seed, m, k])
    rows = np.mean([entry.row_sigma for entry in measured]) * _stratified(rng, m)
    columns = np.mean([entry.column_sigma for entry in measured]) * _stratified(rng, k)
    return generate.thresholded(sparsity, np.exp(rows), np.exp(columns), seed)


def dlmc_target(entry: index.DlmcEntry) -> Target:
    """What the index knows of the matrix; what it lacks (32 large files) comes from the nearest measured layer."""
    near = index.nearest_parameters(entry.layer_kind, entry.rows, entry.cols, 1 - entry.nnz / (entry.rows * entry.cols))
    uneven = entry.method in ("magnitude_pruning", "extended_magnitude_pruning")
    row_cov = entry.row_cov if entry.row_cov is not None else near.row_cov if near else 0.0
    col_cov = entry.col_cov if entry.col_cov is not None else near.col_cov if near else 0.0
    dead = entry.empty_rows if entry.empty_rows is not None else 0
    longest = entry.row_max / entry.row_mean if entry.row_max else near.row_max if near else 1.0
    residual = uneven and entry.layer_kind in ("self_attn_o", "encdec_attn_o", "ffn2_reduce")
    return Target(
        entry.rows,
        entry.cols,
        entry.nnz,
        row_cov,
        col_cov,
        dead_rows=dead,
        heavy_rows=_heavy(entry, row_cov, longest, _HEAVY_ROWS if residual else 1),
        heavy_ratio=longest,
        head_rows=uneven and entry.layer_kind.endswith(("attn_q", "attn_k", "attn_v")),
        head_columns=uneven and entry.layer_kind.endswith("attn_o"),
        taps=entry.taps,
        kernels=uneven and entry.taps > 1,
    )


def _heavy(entry: index.DlmcEntry, row_cov: float, ratio: float, limit: int) -> int:
    """Rows as long as the longest real one, up to `limit`, as far as the measured row variance has room for them."""
    each = (ratio - 1.0) ** 2 / entry.rows
    room = 0.8 * max(0.0, row_cov**2 - _binomial(entry.nnz, entry.rows, entry.cols))
    return min(limit, int(room / each)) if each > 0 else 0


def sample(target: Target, name: str) -> CSR:
    """A pattern with exactly `target.nnz` nonzeros (rounded down to whole blocks), seeded by `name`."""
    blocks = target.block_rows
    m, nnz = target.m // blocks, target.nnz // blocks
    if not 0 <= nnz <= m * target.k or target.m % blocks:
        raise MatrixError(f"standin:{name}: {target.nnz} nonzeros do not fit {target.m} x {target.k}.")
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))
    row_scale, column_scale, weights = _draw(rng, m, target)
    mask = _calibrated(target, m, nnz, row_scale, column_scale, weights)
    positions = np.flatnonzero(np.repeat(mask, blocks, axis=0))
    return generate.from_positions(target.m, target.k, positions)


def _draw(rng: np.random.Generator, m: int, target: Target) -> tuple[Array, Array, Array]:
    """Unit-variance row and column scales, and the weights |g| before them."""
    channels = target.k // target.taps
    rows = _heads(rng, m) if target.head_rows else _stratified(rng, m)
    columns = _heads(rng, channels) if target.head_columns else _stratified(rng, channels)
    weights: Array = np.abs(rng.standard_normal((m, target.k)))
    if target.kernels:
        kernels = np.exp(_KERNEL_SIGMA * rng.standard_normal((m, channels)))
        spread = _TAP_SHARE * max(0.0, target.col_cov**2 - _binomial(target.nnz, target.k, target.m))
        sigma = min(_TAP_LIMIT, np.sqrt(spread) / _slope(target.nnz / (target.m * target.k))[1])
        taps = np.exp(sigma * _stratified(rng, target.taps))
        weights *= np.tile(kernels, target.taps) * np.repeat(taps, channels)
    return rows, np.tile(columns, target.taps), weights


def _stratified(rng: np.random.Generator, count: int) -> Array:
    """The `count` midpoint quantiles of the normal distribution in random order: no luck in the spread."""
    return np.asarray(rng.permutation(scipy.special.ndtri((np.arange(count) + 0.5) / count)), dtype=np.float64)


def _heads(rng: np.random.Generator, count: int) -> Array:
    between = np.repeat(_stratified(rng, _HEADS), -(-count // _HEADS))[:count]
    mixed: Array = np.sqrt(_HEAD_SHARE) * between + np.sqrt(1 - _HEAD_SHARE) * _stratified(rng, count)
    return mixed


def _binomial(nnz: int, m: int, k: int) -> float:
    """Squared coefficient of variation that uniformly random positions alone give the m lengths."""
    return (1.0 - nnz / (m * k)) * m / nnz if nnz else 0.0


def _calibrated(target: Target, m: int, nnz: int, rows: Array, columns: Array, weights: Array) -> NDArray[np.bool_]:
    """Scales the deviations of a and b until both coefficients of variation match; keeps the `nnz` largest."""
    k = target.k
    if nnz in (0, m * k):
        return np.full((m, k), nnz > 0)
    density = nnz / (m * k)
    threshold, slope = _slope(density)
    wanted = (target.row_cov**2 - _binomial(nnz, m, k), target.col_cov**2 - _binomial(nnz, k, m))
    sigma = [min(_SIGMA_LIMIT, np.sqrt(max(0.0, w)) / slope) for w in wanted]
    order = np.argsort(rows)
    heavy = order[m - target.heavy_rows :]
    boost = np.log(threshold / -scipy.special.ndtri(min(0.99, target.heavy_ratio * density) / 2)) if heavy.size else 0.0
    best, error = None, np.inf
    for _ in range(_ROUNDS):
        scale = np.exp(sigma[0] * rows)
        scale[heavy] = np.exp(boost)
        scale[order[: target.dead_rows]] = 0.0
        mask = prune.top((weights * scale[:, None] * np.exp(sigma[1] * columns)).reshape(1, -1), nnz).reshape(m, k)
        got = (_cov2(mask, 1) - _binomial(nnz, m, k), _cov2(mask, 0) - _binomial(nnz, k, m))
        worst = max(abs(g - max(w, 0.0)) for g, w in zip(got, wanted, strict=True))
        if worst < error:
            best, error = mask, worst
        if worst < 1e-4:
            break
        for axis in (0, 1):
            if wanted[axis] > 0:
                step = np.sqrt(wanted[axis] / max(got[axis], wanted[axis] / 4))
                sigma[axis] = min(_SIGMA_LIMIT, sigma[axis] * float(np.clip(step, 0.5, 2.0)))
    assert best is not None
    return best


def _slope(density: float) -> tuple[float, float]:
    """Threshold t of |g| that keeps `density`, and d log(row length) / d a there."""
    threshold = -float(scipy.special.ndtri(density / 2))
    at = float(np.exp(-(threshold * threshold) / 2) / np.sqrt(2 * np.pi))  # of the normal density
    return threshold, threshold * at / (density / 2)


def _cov2(mask: NDArray[np.bool_], axis: int) -> float:
    lengths = mask.sum(axis=axis)
    return float(lengths.var() / lengths.mean() ** 2)
