"""Where lanes' queues start in a chunk of packed words, so that lanes seldom meet in a bank of shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.plans.plan import Int32s, Int64s

_BANKS = 32
COUNT = np.array([byte.bit_count() for byte in range(256)], dtype=np.uint8)
"""Set bits by byte."""
_NEVER = 1 << 30


def _ones(words: NDArray[Any]) -> Int32s:
    """Set bits of each."""
    if hasattr(np, "bitwise_count"):
        return np.asarray(np.bitwise_count(words), dtype=np.int32)
    return np.asarray(COUNT[np.ascontiguousarray(words)[..., None].view(np.uint8)].sum(axis=-1, dtype=np.int32))


def dealt_starts(turns: NDArray[np.unsignedinteger[Any]]) -> Int64s:
    """How many 32-bit entries of a chunk come before each lane's first, (chunks, 32).

    `turns` is (chunks, 32), of 32 or 64 bits: bit t tells whether a lane takes an entry in turn t, in which every lane
    takes its next one or none. Queues follow each other without a gap, but in another order than their lanes': each
    time the one comes next, of those left, whose entries lie in the fewest turns in the bank of a queue before it; of
    several the longest.
    """
    chunks, lanes = turns.shape
    every, left = np.arange(chunks), turns.T.copy()
    length = _ones(left)
    longest = int(length.max(initial=0))
    of_bank = np.zeros((min(longest, _BANKS), lanes, chunks), dtype=turns.dtype)  # turns in which a lane reads it
    for rank in range(longest):
        first = left & -left
        of_bank[rank % _BANKS] |= first
        left ^= first

    taken = np.zeros(_BANKS * chunks, dtype=turns.dtype)
    starts, at = np.zeros((chunks, lanes), dtype=np.int64), np.zeros(chunks, dtype=np.int64)
    rank_of = np.arange(lanes, dtype=np.int32)[:, None] - lanes * length  # the longest first, of equals the first
    banks = np.arange(len(of_bank))[:, None]
    met, both = np.empty((2, lanes, chunks), dtype=turns.dtype)
    for _ in range(lanes):
        places = (at + banks & _BANKS - 1) * chunks + every
        there = taken[places]
        met[:] = 0
        for of_lane, held in zip(of_bank, there, strict=True):  # a turn is in one bank of a lane
            met |= np.bitwise_and(of_lane, held, out=both)
        lane = (_ones(met) * (lanes * (longest + 1)) + rank_of).min(axis=0) % lanes
        taken[places] = there | of_bank[:, lane, every]
        starts[every, lane] = at
        at += length[lane, every]
        rank_of[lane, every] = _NEVER
    return starts
