"""What reports/index.html carries: the rows that stand for each curve, as columns of compact JSON.

Every speed-up and mean is computed here, with the functions of the pages; the browser only filters and draws.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from nnzbench.facts.results import ResultSet, each, geometric_mean
from nnzbench.facts.selector import Selector, rows_of
from nnzbench.kernels.registry import about, dense_libraries
from nnzbench.papers.catalogue import EXPERIMENTS, page_of
from nnzbench.report import generic
from nnzbench.report.data import context
from nnzbench.report.data.series import BEST, Series, least
from nnzbench.report.draw.figures import SpeedupTable
from nnzbench.report.pages.page import Page
from nnzbench.report.text.baselines import Rival
from nnzbench.site.index.looks import series_look

RIVALS = (
    Rival("dense fp32, the best algorithm of cuBLASLt or cuDNN", ("cublaslt-f32", "cudnn-f32")),
    Rival(
        "dense TF32 on tensor cores, the fastest there is", tuple(f"{name}-tf32" for name in dense_libraries("tf32"))
    ),
    Rival("dense fp16 on tensor cores, the fastest there is", tuple(f"{name}-f16" for name in dense_libraries("f16"))),
    Rival("cuSPARSE fp32, its best algorithm", ("cusparse-f32",)),
)
"""What a time may be set against besides the 1× of the experiment's page, which stands first in the data."""
PROBLEM = ("set", "name", "op", "label", "size", "level", "nnz", "paper", "m", "k", "n", "plain")
PAGE_RIVAL = "the 1× of the experiment's page"
ROOFS = ("copy_gbs", "l2_gbs", "fp32_tflops", "tf32_tflops", "f16_tflops")


@dataclass(frozen=True)
class Recorded:
    """One experiment on one GPU with the table that its page shows."""

    results: ResultSet
    table: SpeedupTable


class Index(dict[Hashable, int]):
    """Numbers what it is asked for in the order of asking."""

    def of(self, key: Hashable) -> int:
        """The number of `key`, a new one the first time."""
        return self.setdefault(key, len(self))


def tabulate(results: ResultSet) -> SpeedupTable:
    """The table of the experiment's page, or the generic page's."""
    page = page_of(results.experiment)
    if isinstance(page, Page):
        one = page.baseline
        have = one is not None and not rows_of(results.frame, one).empty
        return generic.tabulate(results, _series(one) if one and have else None)
    return (page.table if page and page.table else generic.tabulate)(results)


def _series(one: Selector) -> Series:
    return Series(f"{one.kernel}-{one.math}", one.label, one.kernels, one.math, one.variants)


def short(value: object, digits: int = 4) -> float | None:
    """A number of few digits for JSON; None for what is missing."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def encode(data: Mapping[str, Any]) -> str:
    """JSON that can stand in a script element: no tag can begin in it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def collect(recorded: Sequence[Recorded]) -> dict[str, Any]:
    """Everything the page filters and draws. `rows`, `problems` and `means` are columns of equal length."""
    experiments, gpus, policies, variants, series = Index(), Index(), Index(), Index(), Index()
    for one in recorded:
        experiments.of(one.results.experiment)
        gpus.of(one.results.gpu)
    for name in context.POLICIES:
        policies.of(name)
    out: dict[str, Any] = {"sets": []}
    problems: list[tuple[Any, ...]] = []
    rows: list[tuple[Any, ...]] = []
    means: list[tuple[Any, ...]] = []
    for number, one in enumerate(recorded):
        for key in [BEST, *one.table.series]:
            series.of(key)
        results, table = one.results, one.table
        out["sets"].append(
            {
                "experiment": experiments.of(results.experiment),
                "gpu": gpus.of(results.gpu),
                "rivals": _rivals(table),
                "paper": table.paper_label,
            }
        )
        place = {name: len(problems) + at for at, name in enumerate(_problem_names(table))}
        problems += _problems(one, number)
        points = _ratios(table)
        best = set(points.loc[points["series"] == BEST.key, ["problem", "policy", "kernel", "variant"]].agg(tuple, 1))
        known = {one.key: one for one in table.series}
        for row in each(points[points["series"] != BEST.key]):
            chosen = not known[row.series].default and row.math == BEST.math
            rows.append(
                (
                    place[row.problem], series.of(known[row.series]), policies.of(row.policy),
                    variants.of(row.variant), short(row.median_us, 6), short(row.q1_us, 6), short(row.q3_us, 6),
                    short(row.limit_share), short(row.flops / row.bytes if row.bytes else math.nan),
                    short(row.gflops), short(row.relative_error, 2),
                    int(chosen and (row.problem, row.policy, row.kernel, row.variant) in best),
                    *(short(getattr(row, f"over{i}")) for i in range(len(RIVALS) + 1)),
                )
            )  # fmt: skip
        means += [
            (number, op, policies.of(policy), level, series.of(known[key]), *rest)
            for op, policy, level, key, *rest in _means(points)
        ]
    over = [f"over{i}" for i in range(len(RIVALS) + 1)]
    names = ("problem", "series", "policy", "variant", "us", "q1", "q3", "share", "intensity", "gflops", "error")
    return {
        **out,
        "experiments": [_experiment(str(name)) for name in experiments],
        "gpus": [_gpu(str(slug), recorded) for slug in gpus],
        "policies": list(policies),
        "rivals": [PAGE_RIVAL, *(rival.label for rival in RIVALS)],
        "series": [_described(key) for key in series if isinstance(key, Series)],
        "variants": list(variants),
        "problems": _columns(PROBLEM, problems),
        "rows": _columns((*names, "best", *over), rows),
        "means": _columns(("set", "op", "policy", "level", "series", "rival", "mean", "count", "wins", "of"), means),
    }


def _columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def _problem_names(table: SpeedupTable) -> list[str]:
    return [str(name) for name in table.problems["problem"] if isinstance(name, str)]


def _problems(one: Recorded, number: int) -> list[tuple[Any, ...]]:
    recorded = one.results.frame.drop_duplicates("problem")
    columns = ["problem", "op", "nnz", "m", "k", "n", "shape"]
    known = {
        name: (op, *map(int, sizes), shape) for name, op, *sizes, shape in recorded[columns].itertuples(index=False)
    }
    out = []
    for row in each(one.table.problems):
        if isinstance(row.problem, str):
            op, nnz, m, k, n, shape = known[row.problem]
            plain = int(not isinstance(shape, str) or not shape)  # a product, and no step of a network
            paper = short(getattr(row, "paper_speedup", math.nan))
            out.append((number, row.problem, op, str(row.label), row.size, row.level, nnz, paper, m, k, n, plain))
    return out


def _rivals(table: SpeedupTable) -> list[str | None]:
    """In words what each rival is in this experiment, None where it has no time."""
    present = set(table.points["series"])
    out: list[str | None] = [table.baseline_text if table.baseline.key in present else None]
    for rival in RIVALS:
        labels = [one.label for one in table.series if one.key in rival.series and one.key in present]
        out.append((f"the faster of {' and '.join(labels)}" if len(labels) > 1 else labels[0]) if labels else None)
    return out


def _ratios(table: SpeedupTable) -> pd.DataFrame:
    """The table's points with `over0` (the page's speed-up) and one column per rival: rival's time over this one's."""
    parts = []
    for _, points in table.points.groupby("policy", sort=False):
        part = points.assign(over0=points["speedup"])
        for number, rival in enumerate(RIVALS, start=1):
            part[f"over{number}"] = points["problem"].map(least(points, rival.series)) / points["median_us"]
        parts.append(part)
    return pd.concat(parts) if parts else table.points


def _means(points: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Op, policy, level, series, rival, geometric mean, problems that have one, wins, problems with a time."""
    out = []
    for (op, policy, level, series), group in points.groupby(["op", "policy", "level", "series"], sort=False):
        for rival in range(len(RIVALS) + 1):
            values = group[f"over{rival}"].dropna()
            if len(values):
                mean, wins = short(geometric_mean(values), 6), int((values > 1).sum())
                out.append((op, policy, level, series, rival, mean, len(values), wins, len(group)))
    return out


def _experiment(name: str) -> dict[str, str]:
    known = EXPERIMENTS.get(name)
    title = f"{known.title} – {known.paper}, {known.figure}" if known else ""
    return {"name": name, "title": title}


def _gpu(slug: str, recorded: Sequence[Recorded]) -> dict[str, Any]:
    """Name and measured roofs: of the last recording that has them."""
    mine = [one.results for one in recorded if one.results.gpu == slug]
    names = [context.gpu_name(slug, one.environment) for one in mine]
    peaks = [one.environment.get("peaks") for one in mine]
    found = next((p for p in reversed(peaks) if isinstance(p, dict)), {})
    return {"slug": slug, "name": names[-1], "roofs": {name: short(found.get(name)) for name in ROOFS}}


def _described(series: Series) -> dict[str, Any]:
    return {
        "key": series.key,
        "label": series.label,
        "kernel": series.kernel or "best",
        "math": series.math,
        "own": series.own,
        "dense": int(series.dense),
        "pattern": about(series.kernel).pattern if series.kernel else "",
        **series_look(series),
    }
