"""Patterns of coarser grain than single weights in filters: rows of kernels, kernels, channels, and PatDNN's patterns.

Columns of a filter matrix are `channel * taps + tap`. Every function draws standard normal weights from its seed and
keeps what is largest, so that patterns are those that pruning by magnitude leaves of weights without any structure.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices import prune
from nnzbench.matrices.formats import CSR, MatrixError

TAPS = 9
"""Of a 3x3 filter, the only size that PatDNN has patterns for."""
PATTERN_KEEP = 4
"""Weights that a pattern leaves of a kernel (PatDNN, ASPLOS 2020)."""


def _set(*patterns: str) -> NDArray[np.bool_]:
    """(patterns, 9), from rows of 3x3 joined by slashes."""
    return np.array([[digit == "1" for digit in one.replace("/", "")] for one in patterns])


PATTERN_SETS = {
    "centre8": _set(
        "110/110/000", "011/011/000", "000/110/110", "000/011/011",
        "010/111/000", "010/110/010", "000/111/010", "010/011/010",
    ),
    "pr8": _set(
        "000/100/111", "000/001/111", "111/100/000", "111/001/000",
        "110/110/000", "011/011/000", "000/110/110", "000/011/011",
    ),
}  # fmt: skip
"""Eight patterns each: the centre with three of its neighbours, as PatDNN describes them; and those that a public
training code of the method found on ImageNet networks (GitHub 7bvcxz/PatDNN), half of which leave the centre out."""

Mode = Literal["norm", "balanced"]


def vectors(m: int, k: int, sparsity: float, length: int, seed: int) -> CSR:
    """Whole runs of `length` neighbouring columns from a multiple of it on.

    Of 3 in 3x3 filters these are rows of kernels; of all taps, whole kernels (connectivity pruning).
    """
    if length < 1 or k % length:
        raise MatrixError(f"vectors of {length} do not fit rows of {k} columns.")
    return prune.block(_normal(m, k, seed), sparsity, 1, length)


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
    rows = prune.top(squares.sum(axis=1)[None], round(share * m))[0]
    inputs = prune.top(squares.reshape(m, -1, taps).sum(axis=(0, 2))[None], round(share * (k // taps)))[0]
    return prune.from_mask(weights, rows[:, None] & np.repeat(inputs, taps))


def patterns(m: int, k: int, sparsity: float, chosen: str, mode: Mode, seed: int) -> CSR:
    """PatDNN's pruning of 3x3 filters: of each kernel that stays, the four weights of one of eight patterns.

    As many kernels stay as `sparsity` leaves room for, at least 5/9: those of largest norm of the whole layer (`norm`)
    or of each filter (`balanced`); each takes the pattern that keeps most of its energy.
    """
    if chosen not in PATTERN_SETS or mode not in ("norm", "balanced"):
        raise MatrixError(f"patterns '{chosen}:{mode}' are not among {', '.join(PATTERN_SETS)} by norm or balanced.")
    if k % TAPS:
        raise MatrixError(f"3x3 patterns do not fit rows of {k} columns.")
    if not 1.0 - PATTERN_KEEP / TAPS <= sparsity <= 1.0:
        raise MatrixError(f"patterns of {PATTERN_KEEP} of {TAPS} weights leave no sparsity of {sparsity}.")
    weights = _normal(m, k, seed)
    squares = np.square(weights.reshape(m, k // TAPS, TAPS), dtype=np.float64)
    norms = squares.sum(axis=2)
    if mode == "norm":
        kept = prune.top(norms.reshape(1, -1), round((1.0 - sparsity) * m * k / PATTERN_KEEP)).reshape(norms.shape)
    else:
        kept = prune.top(norms, round((1.0 - sparsity) * k / PATTERN_KEEP))
    best = (squares @ PATTERN_SETS[chosen].T.astype(np.float64)).argmax(axis=2)
    mask = PATTERN_SETS[chosen][best] & kept[:, :, None]
    return prune.from_mask(weights, mask.reshape(m, k))


def _normal(m: int, k: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((m, k), dtype=np.float32)
