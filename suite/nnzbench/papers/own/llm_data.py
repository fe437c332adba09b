"""What the page of `llm_layers` shows: the fastest sparse and dense products of each layer, and where they cross."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from nnzbench.kernels.registry import dense_libraries
from nnzbench.kernels.roles import OURS
from nnzbench.papers.own import LLM_LAYERS
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.names import parse
from nnzbench.report import generic
from nnzbench.report.data import context
from nnzbench.facts.results import ResultSet, each, geometric_mean
from nnzbench.report.data.series import MATH_LABELS, Series, kernel_label, pick, rows_of
from nnzbench.report.draw.figures import SpeedupTable
from nnzbench.facts import crossover
from nnzbench.report.text.tables import GAP

LARGE_BYTES = 64 << 20
"""Dense fp16 weights of a layer that is called large: no cache of today's GPUs holds them beside anything else."""
HALF = "f16"
BEST, DENSE = "best", "dense"
COLUMNS = (
    "row", "policy", "layer", "pattern", "n", "zeros", "math", "series", "problem", "m", "k", "nnz", "kernel",
    "variant", "median_us", "q1_us", "q3_us", "limit_us", "limit_share", "bytes", "dense_us", "speedup", "sparsity",
    "lowest", "highest", "layers",
)  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """One layer of the table."""

    label: str
    m: int
    k: int
    model: str

    @property
    def name(self) -> str:
        """Such as `8192×8192`."""
        return f"{self.m}×{self.k}"

    @property
    def large(self) -> bool:
        """Whether its dense fp16 weights are `LARGE_BYTES` at least."""
        return 2 * self.m * self.k >= LARGE_BYTES


def layers() -> list[Layer]:
    """Those of the table, largest first."""
    found: dict[str, Layer] = {}
    for row in problem_tables.rows(LLM_LAYERS.name, full=True):
        problem = row.problem
        label = _base(problem.label)
        found.setdefault(label, Layer(label, problem.m, problem.k, row.model))
    return sorted(found.values(), key=lambda layer: -layer.m * layer.k)


def _base(label: str) -> str:
    return label.removesuffix("_mag").removesuffix("_2of4")


def series_of(frame: pd.DataFrame, math_class: str) -> list[Series]:
    """The best dense product, the best kernel of this project, and every sparse kernel with a time."""
    present = set(frame.loc[(frame["math"] == math_class) & frame["median_us"].notna(), "kernel"])
    dense = dense_libraries(math_class)
    words = MATH_LABELS[math_class]
    kernels = context.known_first(present - set(dense), LLM_LAYERS.kernels)
    return [
        Series(DENSE, f"best dense {words} of cuBLAS and cuBLASLt", dense, math_class),
        Series(BEST, "best sparse kernel of this project", (), math_class, roles=OURS),
        *(Series(name, kernel_label(name), (name,), math_class) for name in kernels),
    ]


def points_of(frame: pd.DataFrame, math_class: str) -> pd.DataFrame:
    """The fastest row of each series, policy and problem, with what the problem is and `speedup` over dense."""
    parts = [pick(frame, one).assign(series=one.key) for one in series_of(frame, math_class)]
    points = pd.concat(parts, ignore_index=True)
    named = [parse(str(name)) for name in points["problem"]]
    points["layer"] = [_base(one.label) if one else "" for one in named]
    points["pattern"] = [one.kind if one else "" for one in named]
    points["zeros"] = [float(one.level) / 100 if one else math.nan for one in named]
    dense = points[points["series"] == DENSE].set_index(["problem", "policy"])["median_us"].rename("dense_us")
    points = points.join(dense, on=["problem", "policy"])
    points["speedup"] = points["dense_us"] / points["median_us"]
    return points[points["layer"].isin({layer.label for layer in layers()})]


def of_series(points: pd.DataFrame, key: str = BEST, pattern: str = "uniform") -> pd.DataFrame:
    """The rows of one series and kind of pattern that can be compared with dense."""
    return points[(points["series"] == key) & (points["pattern"] == pattern) & points["speedup"].notna()]


def mean_speedups(points: pd.DataFrame, large: bool = True) -> pd.DataFrame:
    """Per policy, n and level of zeros: geometric mean of the best kernel on uniform patterns, over layers of one size.

    One curve is of one set of layers, each with all its levels: the set that makes the most of what is recorded.
    """
    among = [layer.label for layer in layers() if layer.large == large]
    rows = of_series(points)
    rows = rows[rows["layer"].isin(among)]
    out = []
    for (policy, n), group in rows.groupby(["policy", "n"]):
        for zeros, some in _complete(group).groupby("zeros"):
            mean = geometric_mean(some["speedup"])
            out.append({"policy": policy, "n": n, "zeros": zeros, "speedup": mean, "layers": len(some)})
    return pd.DataFrame(out, columns=["policy", "n", "zeros", "speedup", "layers"])


def _complete(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of those layers and levels that, each layer with each level, are the most; of as many, more layers."""
    by_level = {float(zeros): set(some["layer"]) for zeros, some in rows.groupby("zeros")}  # type: ignore[arg-type]
    whole: list[pd.DataFrame] = []
    for least in sorted({len(have) for have in by_level.values()}):
        levels = [zeros for zeros, have in by_level.items() if len(have) >= least]
        mates = set.intersection(*(by_level[zeros] for zeros in levels))
        whole.append(rows[rows["zeros"].isin(levels) & rows["layer"].isin(mates)])
    return max(whole, key=lambda found: (len(found), found["layer"].nunique()))


def crossings(points: pd.DataFrame, means: pd.DataFrame) -> pd.DataFrame:
    """Per policy, n, pattern and layer: `sparsity` from which the best kernel is as fast as dense; see `crossover`.

    `layer` is empty for the mean over large layers.
    """
    curves = [*of_series(points).groupby(["policy", "layer", "n", "pattern"])]
    curves += [*of_series(points, pattern="magnitude").groupby(["policy", "layer", "n", "pattern"])]
    curves += [*means.assign(layer="", pattern="uniform").groupby(["policy", "layer", "n", "pattern"])]
    out = []
    for (policy, layer, n, pattern), curve in curves:
        found = crossover.crossover(zip(curve["zeros"], curve["speedup"], strict=True))
        ends = {"sparsity": found, "lowest": curve["zeros"].min(), "highest": curve["zeros"].max()}
        out.append({"policy": policy, "layer": layer, "n": n, "pattern": pattern, **ends})
    return pd.DataFrame(out, columns=["policy", "layer", "n", "pattern", "sparsity", "lowest", "highest"])


@dataclass(frozen=True)
class Layers:
    """What the page shows."""

    points: pd.DataFrame
    """In fp16."""
    others: pd.DataFrame
    """In other arithmetic."""
    means: pd.DataFrame
    """Over large layers."""
    small_means: pd.DataFrame
    """Over the others."""
    crossed: pd.DataFrame
    layers: tuple[Layer, ...]
    """Recorded ones, largest first."""
    columns: tuple[int, ...]
    """Recorded numbers of columns of B."""
    policies: tuple[str, ...]
    """Those with a time, hot first."""
    words: Mapping[tuple[str, str, int, str], str]
    """The crossings by policy, layer, n and pattern."""

    @property
    def finest(self) -> Layer | None:
        """The layer with the most levels of zeros, on which a crossing is between the nearest of them."""
        uniform = of_series(self.points)
        levels = uniform.groupby("layer")["zeros"].nunique().to_dict()
        return max(self.layers, key=lambda layer: levels.get(layer.label, 0)) if levels else None

    def crossing(self, policy: str, layer: str, n: int, pattern: str = "uniform") -> str:
        """From which share of zeros on sparse is as fast, in words; `layer` is empty for the large ones together."""
        return self.words.get((policy, layer, n, pattern), GAP)


def collect(results: ResultSet) -> Layers:
    """Picks the rows of every series."""
    points = points_of(results.frame, HALF)
    means = mean_speedups(points)
    others = [points_of(results.frame, other).assign(math=other) for other in MATH_LABELS if other != HALF]
    present = set(points["layer"])
    crossed = crossings(points, means)
    return Layers(
        points=points,
        others=pd.concat(others, ignore_index=True),
        means=means,
        small_means=mean_speedups(points, large=False),
        crossed=crossed,
        layers=tuple(layer for layer in layers() if layer.label in present),
        columns=tuple(sorted({int(n) for n in points["n"]})),
        policies=tuple(context.policies(results.frame)),
        words={
            (row.policy, row.layer, row.n, row.pattern): crossover.text(row.sparsity, row.lowest, row.highest)
            for row in each(crossed)
        },
    )


def table(results: ResultSet) -> SpeedupTable:
    """For `index.html`: every fp16 problem over cuBLAS fp16; of other records what the generic page has."""
    half = results.frame[results.frame["dtype"] == HALF]
    dense = Series("cublas-f16", "cuBLAS fp16, the fastest layout", ("cublas",), HALF)
    if rows_of(half, dense).empty:
        return generic.tabulate(results)
    return generic.tabulate(replace(results, frame=half), dense)


def summary(data: Layers) -> pd.DataFrame:
    """Every time, the means over large layers, and the crossings."""
    parts = (
        data.points.assign(row="time"),
        data.others.assign(row="time"),
        data.means.assign(row="mean of large layers", series=BEST, pattern="uniform", math=HALF),
        data.small_means.assign(row="mean of other layers", series=BEST, pattern="uniform", math=HALF),
        data.crossed.assign(row="crossover", series=BEST, math=HALF),
    )
    return pd.concat([part.reindex(columns=list(COLUMNS)) for part in parts if len(part)], ignore_index=True)
