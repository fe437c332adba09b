"""From which width on dense is faster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nnzbench.facts.ratio import times_as_fast


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
