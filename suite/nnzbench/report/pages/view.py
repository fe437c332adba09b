"""What tables, figures and findings of one page look at: the data of its experiment, and every fact that was asked."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from nnzbench.facts import table
from nnzbench.facts.data import Data
from nnzbench.facts.groups import ALL, Group
from nnzbench.facts.results import ResultSet, each
from nnzbench.facts.selector import Selector, present
from nnzbench.facts.table import Comparison
from nnzbench.report.data import context

COLUMN = {"time": "median_us", "rate": "tflops", "roofline": "roofline", "memory": "memory_mb"}
"""Of `View.cells`, by the value asked for."""
NEAR_LEVEL = 0.25
"""Points by which counted zeros may be off a level before they are told beside it."""


class View:
    """One experiment on one GPU as its page sees it."""

    def __init__(self, results: ResultSet, attributes: str = "") -> None:
        self.results = results
        self.data = Data(results, attributes)
        self.gpu = context.gpu_name(results.gpu, results.environment)
        self._asked: dict[tuple[Comparison, Data], pd.DataFrame] = {}

    @property
    def frame(self) -> pd.DataFrame:
        """One line per record that counts."""
        return self.results.frame

    @property
    def policies(self) -> list[str]:
        """Policies with a time, hot first."""
        return self.data.policies

    def recorded(self, selectors: Sequence[Selector]) -> tuple[Selector, ...]:
        """Those that have a time."""
        have = {name for name, _ in present(self.frame)}
        return tuple(
            one for one in selectors if (not one.kernels or have & set(one.kernels)) and len(self.data.times(one))
        )

    def compare(self, asked: Comparison, data: Data | None = None) -> pd.DataFrame:
        """Facts, with the attributes `by` as columns; what is asked here ends in `facts.csv`.

        `data`: what to compare where it is more than the page's own records.
        """
        key = (asked, data or self.data)
        if key not in self._asked:
            self._asked[key] = table.compare(key[1], asked)
        return self._asked[key]

    def cells(self, selectors: Sequence[Selector], group: Group = ALL) -> pd.DataFrame:
        """Times of problems of a group with their attributes, and tflops, roofline (percent), memory_mb, subject."""
        rows = self.data.cells(selectors)
        rows = rows[rows["problem"].isin(self.data.of(group)["problem"])]
        return rows.assign(
            tflops=rows["gflops"] / 1e3, roofline=100 * rows["limit_share"], memory_mb=rows["memory_bytes"] / 1e6
        )

    def counted(self, group: Group) -> str:
        """`95.0 to 96.0 % as counted`: the zeros of a group's problems; empty where they are those that it names."""
        found = self.data.of(group)
        zeros = 100 * found["sparsity"][~found["problem"].map(group.dense_part).astype(bool)]
        if group.level is None or zeros.empty or (zeros - group.level).abs().max() < NEAR_LEVEL:
            return ""
        return f"{' to '.join(dict.fromkeys(f'{one:.1f}' for one in (zeros.min(), zeros.max())))} % as counted"

    def names(self) -> dict[str, str]:
        """What to call each problem: its label, with its size where several sizes have that label."""
        found = self.data.problems
        sizes = found.groupby("label")["size"].nunique()
        return {row.problem: row.label if sizes[row.label] == 1 else f"{row.label} {row.size}" for row in each(found)}

    def facts(self) -> pd.DataFrame:
        """Every fact that was asked, each once, in the order of asking."""
        parts = [found[table.COLUMNS] for found in self._asked.values() if len(found)]
        if not parts:
            return pd.DataFrame(columns=table.COLUMNS)
        return pd.concat(parts, ignore_index=True).drop_duplicates(table.KEY, ignore_index=True)
