"""Two times as one ratio, for answers that are of no table: a layer just measured, two runs, two libraries."""

from __future__ import annotations


def times_as_fast(us: float, over_us: float) -> float:
    """How many times as fast `us` is as `over_us`: above 1 it is the shorter time. Both are above zero."""
    return over_us / us
