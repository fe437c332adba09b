"""How far apart times are of what is said to take the same, such as other patterns of one size and level."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from nnzbench.facts.data import Data
from nnzbench.facts.selector import Selector

COLUMNS = ["subject", "policy", "instances", "mean_us", "deviation", "slowest"]


def spread(data: Data, selectors: Sequence[Selector], alike: Sequence[str]) -> pd.DataFrame:
    """A row for each selector, policy and combination of the attributes `alike` that has two problems or more.

    `alike` and `COLUMNS`: the mean of their times, the standard deviation over the mean, and the longest time over the
    shortest. In the order of the table.
    """
    cells = data.cells(selectors)
    groups = cells.groupby([*alike, "subject", "policy"], sort=False)["median_us"]
    found = groups.agg(instances="size", mean_us="mean", deviation="std", least="min", most="max").reset_index()
    found = found[found["instances"] > 1]
    found = found.assign(deviation=found["deviation"] / found["mean_us"], slowest=found["most"] / found["least"])
    return found[[*alike, *COLUMNS]]
