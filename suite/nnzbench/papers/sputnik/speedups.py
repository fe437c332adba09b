"""Speed-ups over cuSPARSE as Sputnik states them: geometric mean, peak and share of problems won."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pandas as pd

from nnzbench.report.data import published
from nnzbench.facts.results import each, geometric_mean
from nnzbench.report.data.series import BEST, DEFAULT, Series, pick
from nnzbench.report.text.tables import GAP, markdown, number


@dataclass(frozen=True)
class Kind:
    """One operation in one arithmetic: its rows, this project's series, and its rivals; `kernel` is the paper's."""

    key: str
    title: str
    op: str
    math: str
    kernel: str

    def rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The records of this operation and type of data."""
        return frame[(frame["op"] == self.op) & (frame["dtype"] == self.math)]

    @property
    def own(self) -> tuple[Series, ...]:
        """The best of this project's kernels, the paper's kernel tuned, and with its own choice of tile."""
        return (
            replace(BEST, math=self.math),
            Series(f"{self.kernel}-{self.math}", f"{self.kernel}, best tile", (self.kernel,), self.math),
            Series(
                f"{self.kernel}-{self.math}-default", f"{self.kernel}, heuristic", (self.kernel,), self.math, DEFAULT
            ),
        )

    @property
    def named(self) -> tuple[Series, ...]:
        """Those whose labels stand in tables and legends."""
        return (self.cusparse, *self.own, *self.rivals, *self.dense)

    @property
    def cusparse(self) -> Series:
        """The fastest of cuSPARSE's algorithms, layouts and preprocessing."""
        return Series(f"cusparse-{self.math}", "cuSPARSE, best", ("cusparse",), self.math)

    @property
    def cusparse_default(self) -> Series:
        """cuSPARSE's default algorithm, as the paper ran it."""
        return Series(f"cusparse-{self.math}-default", "cuSPARSE, default", ("cusparse",), self.math, DEFAULT)

    @property
    def rivals(self) -> tuple[Series, ...]:
        """The other papers' kernels that the paper compares with, in their own choice."""
        known = {
            "spmm_f32": (
                Series("merge_spmm-f32-default", "MergeSpMM, its own rule", ("merge_spmm",), "f32", DEFAULT),
                Series("aspt-f32", "ASpT", ("aspt",), "f32"),
            ),
            "sddmm_f32": (Series("aspt_sddmm-f32", "ASpT", ("aspt_sddmm",), "f32"),),
        }
        return known.get(self.key, ())

    @property
    def dense(self) -> tuple[Series, ...]:
        """Dense products of the same problem; there are none of SDDMM."""
        labels = {"f32": "cuBLAS fp32", "tf32": "cuBLAS TF32", "f16": "cuBLAS fp16"}
        maths = ("f32", "tf32") if self.math == "f32" else (self.math,)
        return tuple(Series(f"cublas-{math}", labels[math], ("cublas",), math) for math in maths)


SPMM = Kind("spmm_f32", "SpMM, fp32", "spmm", "f32", "sputnik")
SDDMM = Kind("sddmm_f32", "SDDMM, fp32", "sddmm", "f32", "sputnik_sddmm")
MIXED = Kind("spmm_f16", "SpMM, fp16 data and fp32 sums", "spmm", "f16", "sputnik")
KINDS = (SPMM, SDDMM, MIXED)


def times(rows: pd.DataFrame, series: Series) -> pd.Series[float]:
    """Microseconds by problem, from rows of one policy."""
    return pick(rows, series).set_index("problem")["median_us"]


def statistics(kind: Kind, frame: pd.DataFrame, policy: str) -> pd.DataFrame:
    """Per series of ours and rival: geometric mean, peak, problems won and compared."""
    rows = kind.rows(frame)
    rows = rows[rows["policy"] == policy]
    rivals = [
        (rival, times(rows, rival)) for rival in (kind.cusparse, kind.cusparse_default, *kind.rivals, *kind.dense)
    ]
    out = []
    for mine in kind.own:
        own = times(rows, mine)
        for rival, theirs in rivals:
            found = (theirs / own).dropna()
            out.append(
                {
                    "kind": kind.key,
                    "policy": policy,
                    "series": mine.key,
                    "series_label": mine.label,
                    "rival": rival.key,
                    "rival_label": rival.label,
                    **summary(found),
                }
            )
    return pd.DataFrame(out)


def summary(ratios: pd.Series[float]) -> dict[str, float]:
    """Geometric mean, peak, problems won and compared."""
    return {
        "geometric_mean": geometric_mean(ratios),
        "peak": ratios.max(),
        "won": int((ratios > 1).sum()),
        "count": len(ratios),
    }


def peak(value: float) -> str:
    """`4.45×`, `14.2×`, `297.5×`, or a dash."""
    return GAP if math.isnan(value) else f"{number(value, 1 if value >= 10 else 2)}×"


def table(stats: pd.DataFrame, paper: list[list[str]]) -> str:
    """Markdown: one line per series and rival with problems in common, then the paper's lines."""
    rows = [
        [
            row.series_label,
            row.rival_label,
            f"**{number(row.geometric_mean)}×**",
            peak(row.peak),
            f"{row.won} of {row.count}",
        ]
        for row in each(stats)
        if row.count
    ]
    return markdown(["", "over", "geometric mean", "peak", "faster"], [*rows, *paper], left=2)


def published_rows(kind: Kind, name: str = "sputnik_rnn") -> pd.DataFrame:
    """The paper's speed-ups of that table over each of its rivals."""
    frame = published.read(name, ("kernel", "gpu", "baseline", "geomean_speedup", "peak_speedup"))
    rows = frame[frame["kernel"] == kind.op]
    return rows[rows["precision"] == kind.math] if "precision" in rows else rows


def paper_rows(kind: Kind, name: str = "sputnik_rnn") -> list[list[str]]:
    """The same as lines of a table."""
    rows = published_rows(kind, name)
    return [
        [
            f"the paper, {row.gpu}",
            row.baseline,
            f"{number(row.geomean_speedup)}×",
            peak(row.peak_speedup),
            GAP,
        ]
        for row in each(rows)
    ]
