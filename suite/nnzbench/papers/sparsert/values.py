"""What SparseRT's figures 4 to 6 draw: rates and speed-ups per problem, measured and published, as one frame."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from nnzbench.report.data import published
from nnzbench.report.data.frames import each, geometric_mean
from nnzbench.report.draw.figures import SpeedupTable
from nnzbench.report.text import tables

LEVELS = (0.9, 0.95)
CUBLAS, CUSPARSE, SPARSERT = "cublas-f32", "cusparse-f32", "sparsert_paper-f32"
"""The last is the kernel as published, on every figure: this project's own generator is on the page's first one."""
SPUTNIK, HEURISTIC = "sputnik-f32", "sputnik-f32-default"
MEAN = "geometric mean"
PAPER_GPU = "T4"
MOBILENET = tuple(str(label) for label in range(12, 21))
SMALLER = MOBILENET[:5]
"""MobileNet's problems taken as those with the smaller matrices, as the claims do: section 5 does not list them."""
STATED = (2.0, 3.0)
"""Speed-up over Sputnik that section 5 states for the smaller matrices, on a T4 and a V100."""
COLUMNS = ("figure", "gpu", *tables.POINT_COLUMNS, "baseline", "tflops")


@dataclass(frozen=True)
class Measured:
    """One GPU's Table 1: its slug, its name as the driver has it, and every time."""

    gpu: str
    name: str
    table: SpeedupTable


@dataclass(frozen=True)
class Compared:
    """One GPU's Table 1, those of all others, and every value that figures 4 to 6 draw."""

    here: Measured
    others: Sequence[Measured]
    drawn: pd.DataFrame


def labels_of(table: SpeedupTable, level: float) -> tuple[str, ...]:
    """The paper's problem numbers at a level, in its order."""
    return tuple(str(row.label) for row in each(table.problems[table.problems["level"] == level]))


def rates(one: Measured, policy: str, level: float, series: str) -> pd.DataFrame:
    """The series' times with `tflops`: 2 operations per nonzero and column of B over the time, in 1e12 per second.

    The paper divides the operations that the sparse product requires by each library's time, so that cuBLAS's
    multiplications by zero count as wasted (section 4.1).
    """
    points = one.table.points
    here = points[(points["policy"] == policy) & (points["level"] == level) & (points["series"] == series)]
    here = here.assign(
        label=here["label"].astype(str), gpu=one.gpu, baseline="", baseline_us=math.nan, speedup=math.nan
    )
    return here.assign(tflops=2e-6 * here["nnz"] * here["n"] / here["median_us"])


def ratios(
    one: Measured, policy: str, level: float, series: str, over: str, labels: Iterable[str] | None = None
) -> pd.DataFrame:
    """Speed-ups of a series over another where both have a time, then their geometric mean; `labels` limits them."""
    base = rates(one, policy, level, over).set_index("problem")["median_us"]
    found = rates(one, policy, level, series)
    if labels is not None:
        found = found[found["label"].isin(list(labels))]
    found = found.assign(baseline=over, baseline_us=found["problem"].map(base).astype(float))
    found = found.assign(speedup=found["baseline_us"] / found["median_us"]).dropna(subset=["speedup"])
    return _with_mean(found)


def _with_mean(found: pd.DataFrame) -> pd.DataFrame:
    """The rows and one more, of their geometric mean, if there are any."""
    if found.empty:
        return found
    mean = found.iloc[[0]][["policy", "level", "series", "gpu", "baseline"]]
    mean = mean.assign(problem=MEAN, label=MEAN, speedup=geometric_mean(found["speedup"]), count=len(found))
    return pd.concat([found, mean], ignore_index=True)


def printed(table: SpeedupTable, level: float, labels: Iterable[str] | None = None) -> pd.DataFrame:
    """The paper's speed-ups over cuBLAS on a T4 (Table 1), with the geometric mean of those drawn."""
    rows = table.problems[table.problems["level"] == level].dropna(subset=["paper_speedup"])
    rows = rows.assign(label=rows["label"].astype(str))
    if labels is not None:
        rows = rows[rows["label"].isin(list(labels))]
    kept = rows[["label", "level", "m", "k", "n"]].assign(speedup=rows["paper_speedup"], problem="")
    return _with_mean(kept.assign(policy="published", series="paper", gpu=PAPER_GPU, baseline=CUBLAS))


def printed_mean(level: float, baseline: str) -> pd.DataFrame:
    """The paper's stated geometric mean over all problems of a level."""
    frame = published.read("sparsert_headlines", ("claim", "baseline", "sparsity", "value"))
    names = {CUBLAS: "cuBLAS", CUSPARSE: "cuSPARSE"}
    here = (frame["claim"] == "geomean_speedup") & (frame["sparsity"] == level)
    rows = frame[here & (frame["baseline"] == names[baseline])][["value"]].rename(columns={"value": "speedup"})
    return rows.assign(
        policy="published", series="paper", gpu=PAPER_GPU, baseline=baseline, level=level, problem=MEAN, label=MEAN
    )


def _stated() -> pd.DataFrame:
    ends = [("paper-low", STATED[0]), ("paper-high", STATED[1])]
    rows = [{"label": label, "series": series, "speedup": value} for label in SMALLER for series, value in ends]
    return pd.DataFrame(rows).assign(
        policy="published", gpu="T4 and V100", baseline=SPUTNIK, level=LEVELS[0], problem=""
    )


def drawn(here: Measured, others: Sequence[Measured], policies: Sequence[str]) -> pd.DataFrame:
    """Every value of figures 4, 5 and 6, published ones once: columns `COLUMNS`, one row per bar or diamond."""
    both = labels_of(here.table, LEVELS[1])
    parts: list[tuple[str, pd.DataFrame]] = []
    for policy in policies:
        parts += [("4a", rates(here, policy, LEVELS[0], one)) for one in (CUBLAS, CUSPARSE, SPARSERT)]
        for level in LEVELS:
            parts.append(("4b", rates(here, policy, level, SPARSERT)))
            parts.append(("4c", ratios(here, policy, level, SPARSERT, CUBLAS)))
            parts.append(("4d", ratios(here, policy, level, SPARSERT, CUSPARSE)))
            for one in (here, *others):
                parts.append(("5a", ratios(one, policy, level, SPARSERT, CUBLAS, both)))
                parts.append(("5b", ratios(one, policy, level, SPARSERT, CUSPARSE, both)))
        for series in (SPARSERT, SPUTNIK, HEURISTIC):
            rows = rates(here, policy, LEVELS[0], series)
            parts.append(("6a", rows[rows["label"].isin(MOBILENET)]))
        parts += [("6b", ratios(here, policy, LEVELS[0], SPARSERT, one, MOBILENET)) for one in (SPUTNIK, HEURISTIC)]
    for level in LEVELS:
        table = printed(here.table, level)
        parts.append(("4c", table[table["label"] != MEAN]))
        parts.append(("4c", printed_mean(level, CUBLAS)))
        parts.append(("4d", printed_mean(level, CUSPARSE)))
        parts.append(("5a", printed(here.table, level, both)))
    parts.append(("5b", printed_mean(LEVELS[1], CUSPARSE)))  # at 90 % the paper's mean is over other problems too
    parts.append(("6b", _stated()))
    frames = [rows.assign(figure=figure).dropna(axis=1, how="all") for figure, rows in parts if len(rows)]
    return pd.concat(frames, ignore_index=True).reindex(columns=list(COLUMNS))


class Values:
    """Looks values of one policy, and the published ones, up by what they are."""

    def __init__(self, frame: pd.DataFrame, policy: str) -> None:
        rows = frame[frame["policy"].isin([policy, "published"])]
        keys = zip(*(rows[name] for name in ("figure", "gpu", "level", "series", "label")), strict=True)
        found = zip(keys, rows["baseline"].fillna(""), rows["tflops"], rows["speedup"], strict=True)
        self._found = {(*key, over): {"tflops": rate, "speedup": gain} for key, over, rate, gain in found}

    def of(
        self, figure: str, labels: Sequence[str], column: str, *, gpu: str, level: float, series: str, over: str = ""
    ) -> tuple[float, ...]:
        """One value of `tflops` or `speedup` per label (`MEAN` for the mean), NaN where there is none."""
        found = (self._found.get((figure, gpu, level, series, label, over)) for label in labels)
        return tuple(math.nan if one is None else float(one[column]) for one in found)
