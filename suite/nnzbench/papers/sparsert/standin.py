"""Real pruned patterns against calibrated stand-ins: the same problems, kernels and selection, two committed runs."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from nnzbench.facts.results import each, geometric_mean, percent
from nnzbench.report.draw.figures import SpeedupTable
from nnzbench.report.text.tables import markdown, number


@dataclass(frozen=True)
class StandinComparison:
    """One generated paragraph and its table, both Markdown."""

    paragraph: str
    table: str


def compare(real: SpeedupTable, standin: SpeedupTable, policy: str) -> StandinComparison | None:
    """Times of the stand-in run over those of the real run, per series. None where no problem is in both."""
    left, right = _times(real, policy), _times(standin, policy)
    both = left.merge(right, on=["label", "level", "series"], suffixes=("_real", "_standin"))
    if both.empty:
        return None
    both["ratio"] = both["median_us_standin"] / both["median_us_real"]
    rows = []
    for series in real.series:
        for level in dict.fromkeys(real.problems["level"]):
            here = both[(both["series"] == series.key) & (both["level"] == level)]
            if here.empty:
                continue
            rows.append(
                [
                    series.label,
                    f"{percent(level)}",
                    str(len(here)),
                    number(geometric_mean(here["speedup_real"].dropna())),
                    number(geometric_mean(here["speedup_standin"].dropna())),
                    number(geometric_mean(here["ratio"])),
                    f"{number(float(here['ratio'].min()))} to {number(float(here['ratio'].max()))}",
                ]
            )
    header = ["", "zeros", "problems", "real", "stand-in", "time ratio", "range of time ratio"]
    return StandinComparison(_paragraph(both, real, policy), markdown(header, rows))


def _times(table: SpeedupTable, policy: str) -> pd.DataFrame:
    points = table.points[table.points["policy"] == policy]
    return points[["label", "level", "series", "median_us", "speedup"]]


def _paragraph(both: pd.DataFrame, real: SpeedupTable, policy: str) -> str:
    pieces = [f"The same problems were also run on calibrated stand-ins for the pruned layers ({policy} policy)."]
    best = both[both["series"] == "best"]
    for level in dict.fromkeys(real.problems["level"]):
        here = best[best["level"] == level]
        if not here.empty:
            pieces.append(
                f"At {percent(level)} the best kernels reach {number(geometric_mean(here['speedup_real'].dropna()))}× "
                f"on the real patterns and {number(geometric_mean(here['speedup_standin'].dropna()))}× on the "
                f"stand-ins ({len(here)} problems)."
            )
    own = {series.key for series in real.series if series.own}
    sparse = both[[key in own for key in both["series"]]].reset_index(drop=True)
    if not sparse.empty:
        distance = [max(ratio, 1 / ratio) for ratio in sparse["ratio"]]
        worst = list(each(sparse))[distance.index(max(distance))]
        pieces.append(
            f"Over this project's kernels a stand-in takes {number(geometric_mean(sparse['ratio']))} times as long as "
            f"the real pattern in geometric mean; {sum(d <= 1.1 for d in distance)} of {len(distance)} times agree "
            f"within 10 %, and the furthest apart are those of problem {worst.label} at {percent(worst.level)} "
            f"(ratio {number(float(worst.ratio))})."
        )
    return " ".join(pieces)
