"""The best sparse kernel against each dense rival: the answer changes with the rival's arithmetic, so all are shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from nnzbench.report.data.frames import geometric_mean, percent
from nnzbench.report.data.series import BEST, least
from nnzbench.report.draw.figures import SpeedupTable
from nnzbench.report.text.tables import GAP, markdown, number


@dataclass(frozen=True)
class Rival:
    """The fastest of several series, by key, is what the best kernel is divided by."""

    label: str
    series: tuple[str, ...]


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
