"""Which rows stand for which curve: one time per problem and policy for each series, and its speed-up."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from nnzbench.facts.results import geometric_mean
from nnzbench.kernels.registry import about, known
from nnzbench.kernels.roles import OURS, Role

MATH_LABELS = {"f32": "fp32", "tf32": "TF32", "f16": "fp16", "bf16": "bf16", "i8": "INT8"}


def word(*words: str) -> str:
    """Pattern of variants that have one of the words between underscores or hyphens."""
    return rf"(.*[_-])?({'|'.join(words)})([_-]|$)"


DEFAULT = word("default", "heuristic")
"""What a kernel or library would run by its own choice."""
COLUMN_DEFAULT = "(csr_default_col|spmv_csr_default)$"
"""That choice of cuSPARSE on column-major operands, which papers call; a single column has no other layout."""


@dataclass(frozen=True)
class Series:
    """One curve of a figure, column or row of a table, or side of a claim: the rows that compete to be its times."""

    key: str
    label: str
    kernels: tuple[str, ...]
    """Empty for every kernel whose rows have one of `roles`."""
    math: str = "f32"
    variants: str = ""
    """Pattern at the start of a variant's name; empty for all."""
    roles: frozenset[Role] = frozenset()
    """Whose rows, where one kernel has a paper's mapping and ours; empty for all of the kernels'."""
    source: str = ""
    """First word of the problem's source; empty for all."""

    def __post_init__(self) -> None:
        if not self.kernels and not self.roles:
            raise ValueError(f"series '{self.key}' names neither kernels nor roles: it would be anybody's rows")

    @property
    def kernel(self) -> str:
        """The kernel of a series of one, else empty."""
        return self.kernels[0] if len(self.kernels) == 1 else ""

    @property
    def default(self) -> bool:
        """Whether it is its kernel's own first choice."""
        return self.variants == DEFAULT

    @property
    def untunable(self) -> bool:
        """Whether no tuning changes it: a first choice, in one layout or any, or one part that a study leaves out."""
        study = bool(self.kernels) and all(about(kernel).study for kernel in self.kernels)
        return bool(self.variants) and (study or re.search("default|heuristic", self.variants) is not None)

    @property
    def drawn(self) -> bool:
        """Whether figures show it. A sparse library's other arithmetic covers a few problems only: tables have it."""
        said = about(self.kernel)
        return said.role != "library" or said.work == "dense" or "f32" not in said.maths or self.math == "f32"

    @property
    def dense(self) -> bool:
        """Whether it multiplies by every weight."""
        return bool(self.kernels) and all(about(kernel).work == "dense" for kernel in self.kernels)

    @property
    def own(self) -> bool:
        """Whether it is of kernels of this project rather than of a vendor's library or external ones."""
        roles = {about(kernel).role for kernel in self.kernels} or self.roles
        return roles <= OURS


BEST = Series("best", "best of this project's kernels", (), roles=OURS)


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
        best = ", best" if said.searched else ""
        series.append(Series(f"{kernel}-{math}", f"{label}{suffix}{best}", (kernel,), math))
        default = rows_of(frame, Series("", "", (kernel,), math, DEFAULT))
        if not dense and not default.empty:
            name = "default" if said.role == "library" else "its heuristic"
            series.append(Series(f"{kernel}-{math}-default", f"{label}{suffix}, {name}", (kernel,), math, DEFAULT))
    return series


def _order(item: tuple[str, str]) -> tuple[int, int, str, str]:
    kernel, math = item
    said = about(kernel)
    return (int(said.role == "library"), said.rank, kernel, math if math != "f32" else "")


def rows_of(frame: pd.DataFrame, series: Series) -> pd.DataFrame:
    """The rows with a checked time that compete in a series, in the order of `frame`."""
    kept = (frame["status"] == "ok") & frame["median_us"].notna() & (frame["math"] == series.math)
    if series.kernels:
        kept &= frame["kernel"].isin(series.kernels)
    if series.roles:
        kept &= frame["role"].isin(series.roles)
    found = frame[kept]
    if series.source:
        found = found[found["source"].str.match(rf"{re.escape(series.source)}(:|$)")]
    if series.variants:
        found = found[found["variant"].str.match(series.variants)]
    return found


def pick(frame: pd.DataFrame, series: Series, by: Sequence[str] = ("problem", "policy")) -> pd.DataFrame:
    """The fastest of a series' rows, at most one per problem and policy (or what `by` names), in the frame's order.

    Of equal times the one that stands for its kernel comes first, then by name of kernel and variant.
    """
    rows = rows_of(frame, series)
    fastest = rows[rows["median_us"] == rows.groupby(list(by), sort=False)["median_us"].transform("min")]
    ordered = fastest.sort_values(["selected", "kernel", "variant"], ascending=[False, True, True], kind="stable")
    return ordered.drop_duplicates(list(by)).sort_index()


def pick_under(frame: pd.DataFrame, policy: str, series: Series) -> pd.DataFrame:
    """The same under one policy, indexed by problem."""
    return pick(frame[frame["policy"] == policy], series).set_index("problem")


def pick_any(frame: pd.DataFrame, series: Iterable[Series]) -> pd.DataFrame:
    """The rows of all these series that `pick` takes, each once."""
    taken = frozenset().union(*(pick(frame, one).index for one in series))
    return frame[frame.index.isin(taken)]


def standing(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that stand for their kernel: the fastest checked one of each problem, arithmetic and policy."""
    return frame[frame["selected"] & frame["median_us"].notna()]


def least(points: pd.DataFrame, keys: Collection[str], by: str = "problem") -> pd.Series[float]:
    """Least time of several series, by their keys, per problem. `points` are picked rows of one policy."""
    return points[points["series"].isin(keys)].groupby(by)["median_us"].min()


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
