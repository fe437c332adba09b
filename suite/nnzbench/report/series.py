"""Which rows stand for which curve: one time per problem and policy for each series, and its speed-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from nnzbench.kernel import about, known
from nnzbench.report.frames import geometric_mean
from nnzbench.roles import OURS

Pick = Literal["selected", "default", "best-own"]
DEFAULT_WORDS = frozenset({"default", "heuristic"})

MATH_LABELS = {"f32": "fp32", "tf32": "TF32", "f16": "fp16", "bf16": "bf16"}


@dataclass(frozen=True)
class Series:
    """One curve of a figure and one column of its table."""

    key: str
    label: str
    kernel: str
    """Empty for the best of several kernels."""
    math: str
    pick: Pick = "selected"

    @property
    def drawn(self) -> bool:
        """Whether figures show it. A sparse library's other arithmetic covers a few problems only: tables have it."""
        said = about(self.kernel)
        return said.role != "library" or said.work == "dense" or "f32" not in said.maths or self.math == "f32"

    @property
    def own(self) -> bool:
        """Whether it is a kernel of this project rather than of a vendor's library."""
        return self.pick == "best-own" or about(self.kernel).role in OURS


BEST = Series("best", "best of this project's kernels", "", "f32", "best-own")


def kernel_label(kernel: str) -> str:
    """The name readers know: `cuBLAS` for `cublas`, ours as they are called."""
    return about(kernel).label


def references(sparse: bool = True) -> list[tuple[str, str]]:
    """Kernel and arithmetic of what a page without a baseline of its own divides by: the first of them with a time.

    Dense libraries in fp32, then in fp16, then (if `sparse`) sparse ones in fp32.
    """
    kinds = (("dense", "f32"), ("dense", "f16"), *((("sparse", "f32"),) if sparse else ()))
    said = known()
    return [
        (name, math)
        for work, math in kinds
        for name, one in said.items()
        if one.role == "library" and one.reference and one.work == work and math in one.maths
    ]


def speedup_series(frame: pd.DataFrame, baseline: Series) -> list[Series]:
    """The series present in `frame`, in drawing order: ours, then cuSPARSE, then dense in each math mode."""
    present = sorted({(str(k), str(m)) for k, m in zip(frame["kernel"], frame["math"], strict=True)}, key=_order)
    series = [BEST] if any(about(k).role in OURS and m == "f32" for k, m in present) else []
    for kernel, math in present:
        said = about(kernel)
        label, dense = said.label, said.work == "dense"
        suffix = f" {MATH_LABELS[math]}" if dense or math != "f32" else ""
        if (kernel, math) == (baseline.kernel, baseline.math):
            series.append(baseline)
            continue
        word = ", best" if said.searched else ""
        series.append(Series(f"{kernel}-{math}", f"{label}{suffix}{word}", kernel, math))
        default = pick(frame, Series("", "", kernel, math, "default"))
        if not dense and not default.empty:
            name = "default" if said.role == "library" else "its heuristic"
            series.append(Series(f"{kernel}-{math}-default", f"{label}{suffix}, {name}", kernel, math, "default"))
    return series


def _order(item: tuple[str, str]) -> tuple[int, int, str, str]:
    kernel, math = item
    said = about(kernel)
    return (int(said.role == "library"), said.rank, kernel, math if math != "f32" else "")


def pick(frame: pd.DataFrame, series: Series) -> pd.DataFrame:
    """The rows of a series: at most one per problem and policy, only rows with a checked time."""
    timed = frame[(frame["status"] == "ok") & frame["median_us"].notna() & (frame["math"] == series.math)]
    if series.pick == "best-own":
        chosen = timed[timed["selected"] & timed["own"]]
    elif series.pick == "default":
        words = [bool(DEFAULT_WORDS & set(v.replace("-", "_").split("_"))) for v in timed["variant"]]
        chosen = timed[pd.Series(words, index=timed.index, dtype=bool) & (timed["kernel"] == series.kernel)]
    else:
        chosen = timed[timed["selected"] & (timed["kernel"] == series.kernel)]
    ordered = chosen.sort_values(["median_us", "kernel", "variant"], kind="stable")
    return ordered.drop_duplicates(["problem", "policy"]).sort_index()


def speedups(frame: pd.DataFrame, series: Sequence[Series], baseline: Series) -> pd.DataFrame:
    """One row per policy, problem and series that has a time, with `baseline_us` and `speedup`.

    `speedup` is NaN where the baseline of that problem and policy is missing.
    """
    base = pick(frame, baseline).set_index(["problem", "policy"])["median_us"].rename("baseline_us")
    parts = []
    for position, one in enumerate(series):
        rows = pick(frame, one).copy()
        rows["series"], rows["series_label"], rows["position"] = one.key, one.label, position
        parts.append(rows)
    rows = pd.concat(parts, ignore_index=True) if parts else frame.iloc[:0].assign(series="", series_label="")
    rows = rows.join(base, on=["problem", "policy"])
    rows["speedup"] = rows["baseline_us"] / rows["median_us"]
    return rows


def geometric_means(rows: pd.DataFrame, problems: pd.DataFrame) -> pd.DataFrame:
    """Per policy, level and series: the geometric mean speed-up over the problems that have one.

    `rows` needs `level`; `problems` (one row per problem, with `level`) says how many there should be (`of`).
    """
    expected = problems.groupby("level").size().to_dict()
    out = []
    for (policy, level, position), group in rows.groupby(["policy", "level", "position"], sort=True):
        values = group["speedup"].dropna()
        out.append(
            {
                "policy": policy,
                "level": level,
                "series": group["series"].iloc[0],
                "series_label": group["series_label"].iloc[0],
                "position": position,
                "geometric_mean": geometric_mean(values),
                "count": len(values),
                "of": expected.get(level, 0),
                "faster": int((values > 1).sum()),
                "smallest": values.min(),
                "largest": values.max(),
            }
        )
    columns = ["policy", "level", "series", "series_label", "position", "geometric_mean", "count", "of", "faster"]
    return pd.DataFrame(out, columns=[*columns, "smallest", "largest"])
