"""Where lanes' queues start in a chunk of packed words, so that lanes seldom meet in a bank of shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.plans.plan import Int32s, Int64s

_BANKS = np.arange(32)
COUNT = np.array([byte.bit_count() for byte in range(256)], dtype=np.uint8)
"""Set bits by byte."""
_NEVER = 1 << 30


def _ones(words: NDArray[Any]) -> Int32s:
    """Set bits over the last axis."""
    if hasattr(np, "bitwise_count"):
        counts: Int32s = np.bitwise_count(words).sum(axis=-1, dtype=np.int32)
        return counts
    return np.asarray(COUNT[np.ascontiguousarray(words).view(np.uint8)].sum(axis=-1, dtype=np.int32))


def dealt_starts(turns: NDArray[np.unsignedinteger[Any]]) -> Int64s:
    """How many 32-bit entries of a chunk come before each lane's first, (chunks, 32).

    `turns` is (chunks, 32), of 32 or 64 bits: bit t tells whether a lane takes an entry in turn t, in which every lane
    takes its next one or none. Queues follow each other without a gap, but in another order than their lanes': each
    time the one comes next, of those left, whose entries lie in the fewest turns in the bank of a queue before it; of
    several the longest.
    """
    chunks, lanes = turns.shape
    every, one = np.arange(chunks), turns.dtype.type(1)
    length = _ones(turns[:, :, None])
    longest = int(length.max(initial=0))
    of_bank = np.zeros((chunks, lanes, _BANKS.size), dtype=turns.dtype)  # turns in which a lane reads it
    left = turns.copy()
    for rank in range(longest):
        first = left & (~left + one)
        of_bank[:, :, rank % _BANKS.size] |= first
        left ^= first

    taken = np.zeros((chunks, _BANKS.size), dtype=turns.dtype)
    starts, at = np.zeros((chunks, lanes), dtype=np.int64), np.zeros(chunks, dtype=np.int64)
    rank_of = -length
    for _ in range(lanes):
        banks = (at[:, None] + _BANKS) % _BANKS.size
        there = np.take_along_axis(taken, banks, axis=1)
        lane = (_ones(of_bank & there[:, None]) * (longest + 1) + rank_of).argmin(axis=1)
        taken[every[:, None], banks] |= of_bank[every, lane]
        starts[every, lane] = at
        at += length[every, lane]
        rank_of[every, lane] = _NEVER
        of_bank[every, lane] = 0
    return starts
