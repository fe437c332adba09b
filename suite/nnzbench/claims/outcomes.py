"""The kinds of number that claims are about, and what records say of one: its value, on how many problems."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

Statistic = Literal[
    "geometric mean", "mean percent", "mean loss", "largest", "share faster", "total", "over ideal", "crossover",
    "nonzeros", "peak share", "deviation", "instances", "exponent", "seconds", "memory",
]  # fmt: skip
WORDS: dict[Statistic, str] = {
    "geometric mean": "geometric mean of the time of {baseline} over that of {subject}",
    "mean percent": "100 × mean of the time of {baseline} over that of {subject}, each as often as its table says",
    "mean loss": "100 × (1 - mean of the time of {baseline} over that of {subject})",
    "largest": "largest ratio of the time of {baseline} over that of {subject}",
    "share faster": "percent of problems on which {subject} is faster than {baseline}",
    "total": "sum of the times of {baseline} over the sum of those of {subject}",
    "over ideal": "geometric mean of the time of {subject} over the ideal (dense - overhead) × density + overhead, "
    "with the time of {baseline} and the measured time of an empty kernel",
    "crossover": "sparsity from which on {subject} is at least as fast as {baseline}, interpolated in the logarithm "
    "of the ratio",
    "nonzeros": "density at the crossover of {subject} over that of {second}, both against {baseline}",
    "peak share": "highest useful rate of {subject} as percent of the data sheet's fp32 peak",
    "deviation": "largest standard deviation of {subject}'s times of one problem in percent, by their quartiles",
    "instances": "geometric mean over the sizes of the longest time of {subject} over its shortest, among other "
    "patterns of the same size and level",
    "exponent": "slope of the logarithm of the time of {subject} along that of M × K",
    "seconds": "median over the problems of the seconds of a whole search for {subject}",
    "memory": "measured device memory that {baseline} takes over what {subject} takes, each at its fastest variant",
}


@dataclass(frozen=True)
class Outcome:
    """What the records say of one quantity; `value` is NaN where they say nothing, and `note` then says why.

    It is infinite where a crossover is never reached.
    """

    value: float
    have: int
    """Cases with all times."""
    of: int
    note: str = ""
    low: float = math.nan
    high: float = math.nan
    """Between which it lies of all that these problems are a sample of (95 %); infinite where the sample says nothing,
    NaN where it is not known."""
    synthetic: int = 0
    """Of the cases, those on generated patterns that stand for real ones."""
    cut: bool = False
    """Whether it stands on kernels that were not tuned on some problem."""
    cases: tuple[str, ...] = ()
    """Of those that a number from authors' times is of, their names."""

    @property
    def problems(self) -> str:
        """`n of m`; empty where there can be none."""
        return f"{self.have} of {self.of}" if self.of else ""


def exponent(rows: pd.DataFrame) -> float:
    """The slope of the logarithm of `median_us` along that of m times k; NaN where these are all alike."""
    if (rows["m"] * rows["k"]).nunique() < 2:
        return math.nan
    return float(np.polyfit(np.log(rows["m"] * rows["k"]), np.log(rows["median_us"]), 1)[0])


def made_of(fact: pd.Series[float], statistic: Statistic, found: Outcome, matrices: int) -> Outcome:
    """The outcome with the value that a fact on so many matrices gives, and its `low` and `high`.

    A sample's largest ratio is the least that the largest of all can be.
    """
    ratio, low, high = float(fact["ratio"]), float(fact["low"]), float(fact["high"])
    if statistic == "largest":
        ratio, low, high = fact["best"], fact["best"], math.inf
    elif statistic == "share faster":
        share = fact["wins"] / fact["n"]
        ratio, low, high = (100 * one for one in (share, *_wilson(share, matrices)))
    elif statistic == "over ideal":
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    elif statistic == "mean percent":
        ratio, low, high = 100 * ratio, 100 * low, 100 * high
    elif statistic == "mean loss":
        ratio, low, high = 100 * (1 - ratio), 100 * (1 - high), 100 * (1 - low)
    return replace(found, value=ratio, low=low, high=high)


def _wilson(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z = 1.96 / math.sqrt(count)
    half = z * math.sqrt(share * (1 - share) + z * z / 4)
    low, high = ((share + z * z / 2 + sign * half) / (1 + z * z) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)
