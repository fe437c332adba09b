"""SparseRT's Table 3 and figure 7 redrawn: 3x3 convolutions of ResNet-50 against cuDNN's fastest fp32 plan."""

from __future__ import annotations

import dataclasses
import itertools
import math

from nnzbench.papers.sparsert import leads
from nnzbench.report import generic
from nnzbench.report.data import published
from nnzbench.facts.results import ResultSet, each, geometric_mean, percent
from nnzbench.report.data.series import BEST, DEFAULT, Series, pick
from nnzbench.report.draw import grouped_bars, style
from nnzbench.report.draw.figures import SpeedupTable, drawn_times, speedup_figure
from nnzbench.report.draw.grouped_bars import Bars, Panel, light
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, View
from nnzbench.report.text import tables

BASELINE = Series("cudnn-f32", "best cuDNN fp32 plan", ("cudnn",), "f32")
KERNEL = Series("sparsert_conv_paper-f32", "sparsert_conv_paper", ("sparsert_conv_paper",), "f32")
OWN = Series("sparsert_conv-f32", "sparsert_conv", ("sparsert_conv",), "f32")
"""This project's form of the generator, drawn beside the paper's method."""
FIRST_CHOICE = Series("cudnn-f32-default", "cuDNN fp32, its first choice", ("cudnn",), "f32", DEFAULT)


def table3(results: ResultSet) -> SpeedupTable:
    """Every recorded convolution against the fastest of cuDNN's fp32 plans, the paper's speed-ups beside."""
    found = generic.tabulate(results, BASELINE)
    printed = {(row.shape, row.level): row.paper_speedup for row in each(published.sparsert_table3())}
    problems = found.problems.copy()
    problems["paper_speedup"] = [printed.get((row.shape, row.level), math.nan) for row in each(problems)]
    return dataclasses.replace(
        found,
        problems=problems,
        baseline_text="the fastest of cuDNN's fp32 plans (Winograd and implicit GEMM included)",
        paper_label="SparseRT paper, T4",
    )


def _show(view: View[SpeedupTable]) -> Shown:
    table, policy = view.data, view.policy
    caption = f"Speed-up over {table.baseline_text}.\n{view.policy_sentence}"
    return Shown(
        speedup_figure(table, policy, view.title, caption),
        _finding(table, view.results, policy),
        (tables.means(table, policy), *generic.per_problem(table, view)),
        drawn=[drawn_times(table, policy)],
    )


def speedups_by_problem(
    table: SpeedupTable, policy: str, series: Series = KERNEL
) -> dict[float, tuple[tuple[float, ...], tuple[float, ...]]]:
    """Per level: the speed-up of the series and the paper's by problem number, NaN where there is none."""
    here = (table.points["policy"] == policy) & (table.points["series"] == series.key)
    times = dict(zip(table.points.loc[here, "problem"], table.points.loc[here, "speedup"], strict=True))
    found = {}
    for level in sorted(set(table.problems["level"])):
        rows = {str(row.label): row for row in each(table.problems[table.problems["level"] == level])}
        ours = tuple(
            float(times.get(rows[label].problem, math.nan)) if label in rows else math.nan for label in labels(table)
        )
        paper = tuple(float(rows[label].paper_speedup) if label in rows else math.nan for label in labels(table))
        found[level] = (ours, paper)
    return found


def labels(table: SpeedupTable) -> tuple[str, ...]:
    """The paper's problem numbers, each once."""
    return tuple(dict.fromkeys(str(label) for label in table.problems["label"]))


def _figure7(view: View[SpeedupTable]) -> Shown:
    """Both levels side by side per problem, as the paper draws them."""
    table = view.data
    ticks, found = labels(table), speedups_by_problem(table, view.policy)
    beside = speedups_by_problem(table, view.policy, OWN)
    bars = []
    for series, values in ((KERNEL, found), (OWN, beside)):
        colour = style.look(series.kernel).colour
        for (level, (ours, paper)), shade in zip(
            values.items(), itertools.cycle([colour, light(colour)]), strict=False
        ):
            printed = paper if series is KERNEL else ()
            bars.append(Bars(f"{series.label} at {percent(level)} zeros", ours, shade, printed=printed))
    caption = (
        f"Speed-up over {table.baseline_text}, by problem of Table 3.\n"
        f"3×3 filters, padding 1, one image; fp32, TF32 off. {KERNEL.label} is the paper's method, {OWN.label} this "
        f"project's form of it.\n{view.policy_sentence}"
    )
    panel = Panel("Speed-up over cuDNN", ticks, ("ResNet-50",) * len(ticks), tuple(bars), "speed-up (log)", ratio=True)
    sizes = {str(row.label): str(row.size) for row in each(table.problems)}
    header, cells = ["problem", "size"], []
    for level, (ours, paper) in found.items():
        header += [f"{what}, {percent(level)}" for what in (KERNEL.label, OWN.label, "paper, T4")]
        cells += [(ours, 2), (beside[level][0], 2), (paper, 1)]
    rows = [
        [label, sizes[label], *(tables.number(values[place], digits) for values, digits in cells)]
        for place, label in enumerate(ticks)
    ]
    text = (
        "The paper's speed-up falls as the filters grow, but for problem 4. "
        f"Here its method ({KERNEL.label}) reaches {_sequence(found)} for problems {ticks[0]} to {ticks[-1]}."
    )
    figure = grouped_bars.figure([panel], view.title, caption, columns=1)
    return Shown(figure, text, (tables.markdown(header, rows, left=2),))


def _sequence(found: dict[float, tuple[tuple[float, ...], tuple[float, ...]]]) -> str:
    parts = [
        f"{', '.join('no time' if math.isnan(value) else f'{value:.1f}×' for value in ours)} at {percent(level)}"
        for level, (ours, _) in found.items()
    ]
    return " and ".join(parts)


def _finding(table: SpeedupTable, results: ResultSet, policy: str) -> str:
    sentences = []
    for level in dict.fromkeys(table.problems["level"]):
        here = (table.means["policy"] == policy) & (table.means["level"] == level)
        found = table.means[here & (table.means["series"] == BEST.key)]
        if found.empty or not found["count"].iloc[0]:
            continue
        paper = table.problems.loc[table.problems["level"] == level, "paper_speedup"].dropna()
        row = found.iloc[0]
        sentences.append(
            f"At {percent(level)} zeros the best of this project's kernels is {row['geometric_mean']:.2f}× as fast as "
            f"the {BASELINE.label} in geometric mean over {row['count']} of {row['of']} problems; the paper reports "
            f"{geometric_mean(paper):.1f}× over cuDNN on a T4."
        )
    default = pick(results.frame, FIRST_CHOICE)
    best = pick(results.frame, BASELINE).set_index(["problem", "policy"])["median_us"]
    default = default[default["policy"] == policy].join(best.rename("best_us"), on=["problem", "policy"])
    ratios = (default["median_us"] / default["best_us"]).dropna()
    if len(ratios):
        sentences.append(
            f"cuDNN's own first choice takes {ratios.min():.2f} to {ratios.max():.2f} times its fastest plan."
        )
    return " ".join(sentences)


PAGE = PageSpec(
    lead=leads.TABLE3,
    title="SparseRT Table 3",
    intro=(
        "The four 3×3 convolutions of a pruned ResNet-50 in Table 3 and figure 7 of *SparseRT* (PACT 2020): one "
        "image, padding 1. Real filters where their values are public (problems 1 to 3), the real pattern with "
        "random values for problem 4."
    ),
    data=table3,
    table=table3,
    sections=(
        SectionSpec("speedup", "Sparse 3×3 convolutions of ResNet-50, one image,", _show),
        SectionSpec("figure7", "SparseRT's sparse convolution", _figure7, heading="Figure 7", group=1),
    ),
    gaps=lambda view: generic.gaps(view.data),
    problem_names=lambda view: {
        row.problem: f"{row.label} at {percent(row.level)}" for row in each(view.data.problems)
    },
    series=lambda view: [BASELINE, KERNEL, OWN],
)
