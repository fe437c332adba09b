"""The problems that a ratio is taken over: which they are, how they pair, and what is made of their ratios."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

import pandas as pd

from nnzbench.data.problems.tables import dlmc_sample

OPS = {"spmm": "SpMM", "sddmm": "SDDMM", "spmv": "SpMV", "conv2d": "convolution"}
NEAR = 2.5
"""Points of sparsity within which a problem that was asked for at no level is of one."""

Statistic = Literal["geometric mean", "mean", "total"]
"""Of paired ratios, or the sum of the baseline's times over the sum of the subject's."""


@dataclass(frozen=True)
class Group:
    """Problems that a ratio is taken over; its label, made of these fields, names it in facts."""

    op: str = ""
    level: float | None = None
    """Zeros in percent, as the problem's table has them; of the baseline's problems not, where these are others."""
    columns: int | None = None
    like: str = ""
    """Pattern (`fnmatch`) of labels; `words` say what they are."""
    words: str = ""
    where: str = ""
    """Condition on the attributes of problems (`pandas.DataFrame.query`), such as `pattern == 'uniform' and n > 8`."""
    sample: int = 0
    """The collection's representative sample of at least so many matrices alone; 0 for all problems."""
    baseline_like: str = ""
    """The baseline's problems where these are others; sums are then compared."""
    parts: tuple[str, ...] = ()
    """Last words of the labels of what is done one after another; the times of all that begin alike are added.

    `<beginning>_dense_<part>` is the baseline's problem where it does more than the sparse one, the same at any level.
    """
    cases: str = ""
    """Regular expression at the start of a stem (`problem.stem_of`) whose groups name the case: cases are paired, not
    stems. Empty for each stem a case."""
    baseline_cases: str = ""
    """The same of the baseline's problems; empty for `cases`."""
    statistic: Statistic = "geometric mean"
    by_matrix: bool = False
    """Whether intervals resample matrices with all of their problems rather than single problems."""
    counted: bool = False
    """Whether each problem counts as often as its table says (`mean` and `total`)."""
    ideal: bool = False
    """Whether the baseline is not the dense time d but what skipping every zero would make of it with the overhead o of
    a launch, as the subject's row has it: (d - o) * density + o."""

    @property
    def label(self) -> str:
        """`SpMM at 90 % zeros with 16 columns`; `all problems` where nothing is left out."""
        parts = [
            OPS.get(self.op, self.op),
            self.words or self.where,
            "" if self.level is None else f"at {self.level:g} % zeros",
            "" if self.columns is None else f"with {self.columns} column{'s' * (self.columns != 1)}",
            "in the representative sample" if self.sample else "",
            "against the ideal time" if self.ideal else "",
        ]
        label = " ".join(part for part in parts if part) or "all problems"
        return label if self.statistic == "geometric mean" else f"{label} ({self.statistic})"

    def problems(self, problems: pd.DataFrame, baseline: bool = False) -> pd.DataFrame:
        """Of problems as `data.described` has them those of the group, with their `case`, which is what pairs them with
        the other side's."""
        pattern = (baseline and self.baseline_like) or self.like
        level = None if baseline and (self.baseline_like or self.baseline_cases) else self.level
        rows = problems
        if self.op:
            rows = rows[rows["op"] == self.op]
        if self.columns is not None:
            rows = rows[rows["n"] == self.columns]
        if self.where:
            rows = rows.query(self.where)
        if self.sample:
            paths = {entry.path for entry in dlmc_sample(self.sample)}
            rows = rows[rows["source"].str.partition(":")[2].isin(paths)] if len(rows) else rows
        if level is not None:
            near = rows["asked"].isna() & ((100 * rows["sparsity"] - level).abs() <= NEAR)
            rows = rows[(rows["asked"] == level) | near | rows["label"].map(self.dense_part).astype(bool)]
        if pattern:
            kept = [fnmatchcase(label, pattern) for label in rows["label"]]
            rows = rows[pd.Series(kept, rows.index, bool)]  # a mask also where there are none
        if not (cases := self.baseline_cases if baseline and self.baseline_cases else self.cases):
            return rows.assign(case=rows["stem"])
        found = [re.match(cases, stem) for stem in rows["stem"]]
        rows = rows.assign(case=pd.Series([one and " ".join(one.groups()) for one in found], rows.index, object))
        return rows[rows["case"].notna()]

    def part(self, label: str) -> tuple[str, str] | None:
        """How the label of one of its parts begins, and which part it is."""
        found = re.fullmatch(rf"(.+?)_(?:dense_)?({'|'.join(map(re.escape, self.parts))})", label)
        return (found[1], found[2]) if found else None

    def dense_part(self, label: str) -> bool:
        """Whether it is the baseline's problem of a part, dense at whatever level."""
        return bool(self.parts) and "_dense_" in label


ALL = Group()
