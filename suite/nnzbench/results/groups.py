"""The problems that a ratio is taken over: which they are, how they pair, and what is made of their ratios."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from nnzbench.data.problems.problem import label_of, parse, stem_of
from nnzbench.data.problems.tables import dlmc_sample

OPS = {"spmm": "SpMM", "sddmm": "SDDMM", "spmv": "SpMV", "conv2d": "convolution"}
NEAR = 2.5
"""Points of sparsity within which a problem whose name tells no level is of one."""

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
    """Regular expression at the start of a stem (`names.stem_of`) whose groups name the case: cases are paired, not
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
        """Of recorded problems (columns problem, op, n, source, sparsity; one row each) those of the group.

        With a column `case`, which is what pairs them with the other side's.
        """
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
        kept = [
            _named(str(name), float(zeros), pattern, None if self.dense_part(str(name)) else level)
            for name, zeros in zip(rows["problem"], rows["sparsity"], strict=True)
        ]
        rows = rows[pd.Series(kept, rows.index, bool)]  # a mask also where there are none
        cases = self.baseline_cases if baseline and self.baseline_cases else self.cases
        rows = rows.assign(
            case=pd.Series([_case(cases, stem_of(str(one))) for one in rows["problem"]], rows.index, object)
        )
        return rows[rows["case"].notna()]

    def part(self, stem: str) -> tuple[str, str] | None:
        """How the label of one of its parts begins, and which part it is."""
        found = re.fullmatch(rf"(.+?)_(?:dense_)?({'|'.join(map(re.escape, self.parts))})", label_of(stem) or stem)
        return (found[1], found[2]) if found else None

    def dense_part(self, problem: str) -> bool:
        """Whether it is the baseline's problem of a part, dense at whatever level."""
        return bool(self.parts) and "_dense_" in label_of(problem)


def _named(problem: str, zeros: float, pattern: str, level: float | None) -> bool:
    """A name that tells no level is of the nearest one."""
    parts = parse(problem)
    if level is not None and (abs(100 * zeros - level) > NEAR if parts is None else float(parts.level) != level):
        return False
    return not pattern or fnmatch.fnmatchcase(label_of(problem), pattern)


def _case(cases: str, stem: str) -> str | None:
    if not cases:
        return stem
    found = re.match(cases, stem)
    return None if found is None else " ".join(found.groups())


ALL = Group()
