"""The page of any experiment with records: times, and speed-ups over the best-known dense baseline it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from nnzbench.facts.results import ResultSet, each, percent, size_of
from nnzbench.kernels.registry import about
from nnzbench.matrices.formats import MatrixError
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.names import case_of, stem_of
from nnzbench.report.data import context
from nnzbench.report.data.series import (
    BEST,
    Series,
    geometric_means,
    kernel_label,
    references,
    speedup_series,
    speedups,
    standing,
)
from nnzbench.report.draw.figures import PER_PANEL, SpeedupTable, drawn_times, level_figure, names_of, speedup_figure
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text import tables

USUAL_LEVELS = (0.0, 0.5, 0.6, 0.625, 0.7, 0.75, 0.8, 0.875, 0.9, 0.95, 0.98, 0.99)
MATH = {"f32": "fp32", "f16": "fp16"}


def level_of(sparsity: float) -> float:
    """The usual level a counted sparsity belongs to, else itself to two digits."""
    nearest = min(USUAL_LEVELS, key=lambda level: abs(level - sparsity))
    return nearest if abs(nearest - sparsity) <= 0.0125 else round(sparsity, 2)


def tabulate(results: ResultSet, baseline: Series | None = None) -> SpeedupTable:
    """Every recorded problem, grouped by level, with the paper's own numbers, against `baseline`."""
    frame = results.frame
    baseline = baseline or choose_baseline(frame)
    columns = ["problem", "op", "m", "k", "n", "shape", "sparsity", "source"]
    problems = frame[columns].drop_duplicates("problem").reset_index(drop=True)
    problems["level"] = [level_of(float(s)) for s in problems["sparsity"]]
    problems["place"] = _places(results.experiment, list(problems["problem"]))
    problems = problems.sort_values(["level", "place"], kind="stable", ignore_index=True).drop(columns="place")
    problems["size"] = [size_of(row) for row in each(problems)]
    problems["model"] = ""
    problems["label"] = _labels(results.experiment, list(problems["problem"]))
    series = speedup_series(frame, baseline)
    rows = speedups(frame, series, baseline).merge(problems[["problem", "label", "level", "model"]], on="problem")
    place = {name: at for at, name in enumerate(problems["problem"])}
    rows["place"] = rows["problem"].map(place)
    points = rows.sort_values(["policy", "place", "position"], kind="stable", ignore_index=True)
    return SpeedupTable(
        problems=problems,
        points=points,
        means=geometric_means(points, problems),
        series=tuple(series),
        baseline=baseline,
        baseline_text=baseline.label,
    )


def _places(experiment: str, names: Sequence[str]) -> list[int]:
    """Where recorded problems stand in the experiment's table, what is not in it last.

    Rows of a run on several GPUs come in another order.
    """
    try:
        stems = [stem_of(row.problem.name) for row in problem_tables.rows(experiment)]
    except MatrixError:
        stems = []
    known = {stem: at for at, stem in enumerate(dict.fromkeys(stems))}
    return [known.get(stem_of(name), len(known)) for name in names]


def _labels(experiment: str, names: Sequence[str]) -> list[str]:
    """The paper's own numbers for recorded problems, or a running number where a table does not have them all."""
    try:
        known = {p.name: p.label for real in (True, False) for p in problem_tables.load(experiment, real)}
    except MatrixError:
        known = {}
    labels = [known.get(name) or _label_by_name(name, known) for name in names]
    labels = [label.lstrip("0") for label in labels]
    return labels if all(labels) else [str(number) for number in range(1, len(names) + 1)]


def _label_by_name(name: str, known: Mapping[str, str]) -> str:
    """The label of the same problem on another source of data."""
    case = case_of(name)
    return next((label for other, label in known.items() if case_of(other) == case), "")


def choose_baseline(frame: pd.DataFrame) -> Series:
    """The first reference (`series.references`) with a time, else the first kernel recorded."""
    timed = standing(frame)
    present = set(zip(timed["kernel"], timed["math"], strict=True))
    first = frame[["kernel", "math"]].iloc[0]
    kernel, math = next((pair for pair in references() if pair in present), (str(first["kernel"]), str(first["math"])))
    library = about(kernel).role == "library"
    label = f"{kernel_label(kernel)} {MATH.get(math, math)}" if library else kernel_label(kernel)
    return Series(f"{kernel}-{math}", label, (kernel,), math)


def _show(view: View[SpeedupTable]) -> Shown:
    table = view.data
    draw = speedup_figure if _fits(table) else level_figure
    caption = f"Speed-up over {table.baseline_text}; {context.policy_text(view.policy)}."
    figure = draw(table, view.policy, view.title, caption)
    return Shown(
        figure,
        tables=(tables.means(table, view.policy), *per_problem(table, view)),
        drawn=[drawn_times(table, view.policy)],
        names=names_of(table),
    )


def _fits(table: SpeedupTable) -> bool:
    counts = table.problems.groupby("level").size()
    return len(counts) <= 4 and int(counts.max()) <= PER_PANEL


def gaps(table: SpeedupTable) -> list[str]:
    """Sentences on problems without a time of the baseline, or of any kernel of ours."""
    out = []
    for policy, points in table.points.groupby("policy", sort=True):
        for what, keys in ((table.baseline.label, {table.baseline.key}), (BEST.label, {BEST.key})):
            have = set(points.loc[points["series"].isin(keys), "problem"])
            lost = [
                f"{row.label} ({row.size}) at {percent(row.level)}"
                for row in each(table.problems)
                if row.problem not in have
            ]
            if lost and have:
                out.append(f"No time of {what} ({policy}) for problem {', '.join(lost)}.")
    return out


def per_problem(table: SpeedupTable, view: View[Any]) -> list[TableOf]:
    """One table per level, of every problem's speed-ups; none where problems are too many."""
    return by_level(table, view) if _fits(table) else []


def by_level(table: SpeedupTable, view: View[Any], lead: str = "") -> list[TableOf]:
    """The same however many problems there are; `lead` stands before the level."""
    levels = dict.fromkeys(table.problems["level"])
    problems = {level: table.problems.loc[table.problems["level"] == level, "problem"] for level in levels}
    return [
        TableOf(f"{lead}{percent(level)} zeros:\n\n{tables.speedups(table, view.policy, level)}", view.of(some))
        for level, some in problems.items()
    ]


PAGE = PageSpec(
    title="",
    intro=lambda view: f"{len(view.data.problems)} problems; 1× is {view.data.baseline_text}.",
    data=tabulate,
    sections=(SectionSpec("speedup", "", _show),),
    gaps=lambda view: gaps(view.data),
    problem_names=lambda view: {str(name): str(name) for name in view.data.problems["problem"]},
)
