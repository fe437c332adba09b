"""The problems that a ratio of a first screen is taken over, and the words that name them."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass

import pandas as pd

from nnzbench.problems.names import label_of, parse
from nnzbench.problems.tables import dlmc_sample

OPS = {"spmm": "SpMM", "sddmm": "SDDMM", "spmv": "SpMV", "conv2d": "convolution"}
NEAR = 2.5
"""Points of sparsity within which a problem whose name tells no level is of one."""


@dataclass(frozen=True)
class Group:
    """Problems that a ratio is taken over; its label is made of these fields, and can be read back."""

    op: str = ""
    level: float | None = None
    """Zeros in percent, as the problem's table has them."""
    columns: int | None = None
    like: str = ""
    """Pattern (`fnmatch`) of labels; `words` say what they are."""
    words: str = ""
    rival_like: str = ""
    """The rival's problems where sums of times are compared: a dense network's own, or the same as `like`."""
    sample: bool = False
    """The collection's representative sample alone."""
    parts: tuple[str, ...] = ()
    """Last words of the labels of what is done one after another; the times of all that begin alike are added.

    `<beginning>_dense_<part>` is the rival's problem where it does more than the sparse one, the same at any level.
    """

    @property
    def label(self) -> str:
        """`SpMM at 90 % zeros with 16 columns`; `all problems` where nothing is left out."""
        parts = [
            OPS.get(self.op, self.op),
            self.words,
            "" if self.level is None else f"at {self.level:g} % zeros",
            "" if self.columns is None else f"with {self.columns} column{'s' * (self.columns != 1)}",
            "in the representative sample" if self.sample else "",
        ]
        return " ".join(part for part in parts if part) or "all problems"

    def problems(self, frame: pd.DataFrame, rival: bool = False) -> frozenset[str]:
        """Names of its problems among the recorded ones; of the rival's problems, where these are others."""
        other = rival and bool(self.rival_like)
        pattern, level = (self.rival_like, None) if other else (self.like, self.level)
        rows = frame[["problem", "op", "n", "source", "sparsity"]].drop_duplicates("problem")
        if self.op:
            rows = rows[rows["op"] == self.op]
        if self.columns is not None:
            rows = rows[rows["n"] == self.columns]
        if self.sample:
            paths = {entry.path for entry in dlmc_sample()}
            rows = rows[rows["source"].str.partition(":")[2].isin(paths)] if len(rows) else rows
        return frozenset(
            str(name)
            for name, zeros in zip(rows["problem"], rows["sparsity"], strict=True)
            if _named(str(name), float(zeros), pattern, None if self._dense_part(str(name)) else level)
        )

    def part(self, label: str) -> tuple[str, str] | None:
        """How the label of one of its parts begins, and which part it is."""
        found = re.fullmatch(rf"(.+?)_(?:dense_)?({'|'.join(map(re.escape, self.parts))})", label)
        return (found[1], found[2]) if found else None

    def _dense_part(self, problem: str) -> bool:
        return bool(self.parts) and "_dense_" in label_of(problem)

    def whole(self, times: pd.Series[float]) -> tuple[pd.Series[float], list[str]]:
        """Sums over the parts by how their labels begin, where all have a time; `times` and the list are by problem.

        The list has what was added.
        """
        named = [(name, us, *part) for name, us in times.items() if (part := self.part(label_of(str(name))))]
        rows = pd.DataFrame(named, columns=["name", "us", "of", "part"])
        least = rows.groupby(["of", "part"])["us"].min().unstack()
        whole = least.reindex(columns=list(self.parts)).dropna().sum(axis="columns")
        return whole, list(rows.loc[rows["of"].isin(whole.index), "name"])


def _named(problem: str, zeros: float, pattern: str, level: float | None) -> bool:
    """A name that tells no level is of the nearest one."""
    parts = parse(problem)
    if level is not None and (abs(100 * zeros - level) > NEAR if parts is None else float(parts.level) != level):
        return False
    return not pattern or fnmatch.fnmatchcase(label_of(problem), pattern)


ALL = Group()
