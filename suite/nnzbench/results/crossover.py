"""Where dense and sparse are equally fast: the sparsity from which sparse is, and the width from which dense is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nnzbench.results.result_set import percent


def times_as_fast(us: float, over_us: float) -> float:
    """How many times as fast `us` is as `over_us`: above 1 it is the shorter time. Both are above zero."""
    return over_us / us


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


def rounded(n: int) -> int:
    """A whole number by two digits."""
    return int(float(f"{n:.2g}"))


WIDEST = 4096
"""Columns at most that a crossover is looked for at."""


@dataclass(frozen=True)
class Crossover:
    """From which width on dense is faster, as far as the widths looked at tell."""

    n: int | None
    """The first such width; None where sparse is ahead at the largest of them, or at none."""
    sparse_wins: bool
    """At the smallest width looked at; without `n`, at the largest."""
    least: int
    most: int
    ahead: int = 0
    """The last width looked at below `n`: sparse is ahead there."""
    behind: int | None = None
    """The first one from `n` on: dense is ahead there."""

    @property
    def told(self) -> int:
        """`n` by two digits, as it lies between two widths or is an estimate; whole where these two contradict it."""
        n = self.n or 0
        short = rounded(n)
        return short if self.ahead < short <= (self.behind or short) else n


def crossing(points: Sequence[tuple[int, float, float]]) -> Crossover | None:
    """Where dense becomes faster for good: (width, dense time, sparse time) in any order; None for none up to `WIDEST`.

    Between the last width where sparse is at least as fast and the next, times are taken as powers of the width.
    """
    ordered = sorted(point for point in points if point[0] <= WIDEST)
    if not ordered:
        return None
    ratios = [(n, times_as_fast(sparse, dense)) for n, dense, sparse in ordered]
    least, most = ordered[0][0], ordered[-1][0]
    ahead = [at for at, (_, ratio) in enumerate(ratios) if ratio >= 1]
    starts = ratios[0][1] >= 1
    if not ahead or ahead[-1] == len(ratios) - 1:
        return Crossover(None, bool(ahead), least, most)
    (n, before), (after_n, after) = ratios[ahead[-1]], ratios[ahead[-1] + 1]
    share = math.log(before) / (math.log(before) - math.log(after))
    crossed = round(math.exp(math.log(n) + share * math.log(after_n / n)))
    return Crossover(min(max(crossed, n + 1), after_n), starts, least, most, n, after_n)
