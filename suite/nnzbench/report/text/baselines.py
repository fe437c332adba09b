"""The best sparse kernel against each dense rival: the answer changes with the rival's arithmetic, so all are shown."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from nnzbench.facts.results import geometric_mean, percent
from nnzbench.kernels.registry import dense_libraries
from nnzbench.report.data.series import BEST, Series, kernel_label, least, pick
from nnzbench.report.draw.figures import SpeedupTable
from nnzbench.report.text.tables import GAP, markdown, number


@dataclass(frozen=True)
class Rival:
    """The fastest of several series, by key, is what the best kernel is divided by."""

    label: str
    series: tuple[str, ...]

    @property
    def half(self) -> bool:
        """Whether it is of fp16 alone."""
        return all(key.endswith("-f16") for key in self.series)


RIVALS = (
    Rival("cuBLAS fp32, its default algorithm", ("cublas-f32",)),
    Rival("cuBLASLt fp32, best of all algorithms", ("cublaslt-f32",)),
    Rival("TF32 tensor cores, best of cuBLAS and cuBLASLt", ("cublas-tf32", "cublaslt-tf32")),
    Rival("fp16 tensor cores, best of cuBLAS and cuBLASLt", ("cublas-f16", "cublaslt-f16")),
    Rival("cuSPARSE fp32, best of all algorithms", ("cusparse-f32",)),
)


def products_of(table: SpeedupTable) -> SpeedupTable:
    """The sparse products alone: other operations have no dense rival that computes the same.

    A table without a column `op` holds nothing else.
    """
    if "op" not in table.problems:
        return table
    problems = table.problems[table.problems["op"] == "spmm"]
    points = table.points[table.points["problem"].isin(set(problems["problem"]))]
    return dataclasses.replace(table, problems=problems, points=points)


def ratios(table: SpeedupTable, policy: str, rival: Rival) -> pd.DataFrame:
    """Per problem with both: `level`, `label` and `ratio` = rival's time / best time of this project's kernels."""
    points = table.points[table.points["policy"] == policy]
    best = points[points["series"] == BEST.key].set_index("problem")
    both = best.join(least(points, rival.series).rename("rival_us"), how="inner")
    return both.assign(ratio=both["rival_us"] / both["median_us"])[["level", "label", "ratio"]]


def in_half(frame: pd.DataFrame, policy: str, levels: Mapping[str, float]) -> str:
    """Markdown: the best fp16 kernel of this project over the best dense fp16 product, per level of the problems.

    `levels` has the problems that count; empty where none has both times.
    """
    here = frame[frame["problem"].isin(set(levels)) & (frame["policy"] == policy)]
    best = pick(here, replace(BEST, math="f16")).set_index("problem")
    dense = pick(here, Series("dense", "", dense_libraries("f16"), "f16")).set_index("problem")["median_us"]
    both = best.join(dense.rename("dense_us"), how="inner")
    both = both.assign(ratio=both["dense_us"] / both["median_us"], level=both.index.map(levels))
    rows = []
    for level in dict.fromkeys(levels.values()):
        some = both[both["level"] == level]
        if len(some):
            counts = sorted(Counter(some["kernel"]).items(), key=lambda one: (-one[1], one[0]))
            fastest = ", ".join(f"{kernel_label(kernel)} {count}" for kernel, count in counts)
            mean, wins = geometric_mean(some["ratio"]), int((some["ratio"] > 1).sum())
            rows.append([percent(level), f"**{number(mean)}×**", f"{wins} of {len(some)}", fastest])
    return markdown(["zeros", "best fp16 kernel over best dense fp16", "wins", "fastest"], rows) if rows else ""


def against(table: SpeedupTable, policy: str, levels: Sequence[float] = ()) -> str:
    """Markdown: geometric mean of those ratios per level (none: all), and how many problems the sparse kernel wins."""
    levels = levels or list(dict.fromkeys(table.problems["level"]))
    rows = []
    for rival in RIVALS:
        found = ratios(table, policy, rival)
        if found.empty:
            continue
        line = [rival.label]
        for level in levels:
            values = found.loc[found["level"] == level, "ratio"]
            mean = GAP if values.empty else f"**{number(geometric_mean(values))}×**"
            line += [mean, f"{int((values > 1).sum())} of {len(values)}"]
        rows.append(line)
    header = ["best sparse kernel against"]
    for level in levels:
        header += [f"{percent(level)} zeros", "wins"]
    return markdown(header, rows) if rows else ""
