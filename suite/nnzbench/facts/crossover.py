"""The sparsity from which a sparse kernel is faster than a dense product."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nnzbench.facts.results import percent

GAP = "–"
"""What stands where there is no number."""

ALWAYS, NEVER = -math.inf, math.inf


def crossover(points: Iterable[tuple[float, float]]) -> float:
    """The least sparsity from which on the sparse kernel is at least as fast, from (sparsity, dense over sparse time).

    Interpolated between the last level where sparse is slower and the next, as if its time were a power of the share of
    nonzeros there.
    `ALWAYS` where it is as fast at every level given, `NEVER` where it is slower at the highest, NaN for no points.
    """
    ordered = sorted(points)
    if not ordered:
        return math.nan
    slower = [at for at, (_, ratio) in enumerate(ordered) if ratio < 1]
    if not slower:
        return ALWAYS
    last = slower[-1]
    if last == len(ordered) - 1:
        return NEVER
    (low, before), (high, after) = ordered[last], ordered[last + 1]
    share = -math.log(before) / (math.log(after) - math.log(before))
    return 1 - math.pow(1 - low, 1 - share) * math.pow(1 - high, share)


def text(found: float, lowest: float, highest: float) -> str:
    """A crossover in words; beyond the levels measured it is only known to lie outside."""
    if math.isnan(found):
        return GAP
    if math.isinf(found):
        return f"below {percent(lowest)}" if found < 0 else f"above {percent(highest)}"
    return f"{100 * found:.1f} %"
