"""Balanced Sparsity's tables 1 to 3 redrawn: the layers of PTB's LSTM, VGG-16 and TIMIT's LSTM, and its weight maps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from nnzbench.facts.results import ResultSet, each, geometric_mean, percent
from nnzbench.papers.balanced import leads, weights
from nnzbench.papers.balanced.figure4 import PUBLISHED_GPU, SOURCES
from nnzbench.papers.balanced.plot import LABELS
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.problem import Problem
from nnzbench.report.data import context, published
from nnzbench.report.data.series import Series, pick_under
from nnzbench.report.draw import dots, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text.fastest import Lost, by_reason, mean_cell, measured, summary, time_of
from nnzbench.report.text.tables import GAP, markdown, number

EXPERIMENT = "balanced_models"
NAMES = {"ptb": "PTB LSTM", "timit": "TIMIT LSTM"}
PATTERNS = {"uniform": "random", "block": "block", "balanced": "balanced"}
"""Kinds of sources and what problems of them are called."""
PAPER_SERIES = ("dense", "random", "block", "balanced")

Times = dict[tuple[str, str], float]
"""Microseconds by workload and series, all its products together; only what is known."""


@dataclass(frozen=True)
class Workload:
    """One layer of a model: the same product with each kind of pattern, done `count` times."""

    key: str
    count: int
    problems: Mapping[str, Problem]
    """By kind of pattern: `balanced`, `random`, `block`."""

    @property
    def name(self) -> str:
        """As the paper's table has it."""
        return NAMES.get(self.key, self.key.removeprefix("vgg16_"))

    @property
    def model(self) -> str:
        """What it is a layer of."""
        return "VGG-16" if self.key.startswith("vgg16") else ""

    @property
    def size(self) -> str:
        """Sizes of its product."""
        one = next(iter(self.problems.values()))
        return f"{one.m}×{one.k}×{one.n}"


def workloads() -> list[Workload]:
    """The workloads of the three tables, in the paper's order."""
    counts: dict[str, int] = {}
    problems: dict[str, dict[str, Problem]] = {}
    for row in problem_tables.rows(EXPERIMENT):
        key, _, pattern = row.problem.label.rpartition("_")
        counts[key] = row.count
        problems.setdefault(key, {})[pattern] = row.problem
    return [Workload(key, counts[key], patterns) for key, patterns in problems.items()]


def paper_times() -> Times:
    """The published microseconds, on a GPU that the paper does not name."""
    out: Times = {}
    for key, name in (("ptb", "balanced_table1_ptb_lstm"), ("timit", "balanced_table3_timit")):
        for row in each(published.read(name, ("pattern", "inference_us"))):
            out[key, row.pattern] = float(row.inference_us)
    layers = published.read("balanced_table2_vgg16", ("layer", *(f"{series}_us" for series in PAPER_SERIES)))
    for row in each(layers):
        for series in PAPER_SERIES:
            out[f"vgg16_{row.layer}", series] = float(getattr(row, f"{series}_us"))
    return out


@dataclass(frozen=True)
class Models:
    """The workloads, their published and measured times (by policy), and every line of the summary."""

    works: list[Workload]
    paper: Times
    times: dict[str, Times]
    drawn: pd.DataFrame


def collect(results: ResultSet) -> Models:
    """Every time drawn; a dense time is that beside the balanced pattern, if recorded."""
    gpu = context.gpu_name(results.gpu, results.environment)
    lines: list[dict[str, Any] | None] = []
    found: dict[str, Times] = {}
    works, paper = workloads(), paper_times()
    for policy in context.policies(results.frame):
        times: Times = {}
        for source in SOURCES:
            rows = pick_under(results.frame, policy, source)
            for work in works:
                problem = next((name for name in _candidates(work, source) if name in rows.index), "")
                time = work.count * time_of(rows, problem)
                words = {"policy": policy, "table": _table_of(work), "row": work.name, "series": source.key}
                line = measured(rows, problem, **words, gpu=gpu)
                if line is not None:
                    times[work.key, source.key] = time
                    line |= {name: work.count * line[name] for name in ("time_us", "q1_us", "q3_us")}
                lines.append(line)
        found[policy] = times
    for work in works:
        for series in PAPER_SERIES:
            words = {"policy": "published", "table": _table_of(work), "row": work.name, "series": series}
            lines.append({**words, "gpu": PUBLISHED_GPU, "time_us": paper[work.key, series]})
    frame = summary(lines)
    key = ["policy", "table", "row"]
    base = frame[frame["series"] == "dense"].set_index(key)["time_us"].rename("dense_us")
    frame["baseline_us"] = frame.join(base, on=key)["dense_us"]
    frame["speedup"] = frame["baseline_us"] / frame["time_us"]
    return Models(works, paper, found, frame)


def _candidates(work: Workload, source: Series) -> list[str]:
    patterns = [PATTERNS[source.source]] if source.source else ["balanced", "random", "block"]
    return [work.problems[pattern].name for pattern in patterns if pattern in work.problems]


def _table_of(work: Workload) -> str:
    return {"ptb": "table 1", "timit": "table 3"}.get(work.key, "table 2")


def _show(view: View[Models]) -> Shown:
    works, times, paper = view.data.works, view.data.times[view.policy], view.data.paper
    unit = (
        f"times in µs on {view.gpu}, {view.policy} policy, fp32 (TF32 where named); `paper` is published "
        f"({PUBLISHED_GPU})."
    )
    caption = (
        "Speed-up over cuBLAS fp32, which multiplies by every weight. Each pattern has the sparsity the paper "
        f"reached with it.\n{view.policy_sentence}"
    )
    ptb, timit = (next(work for work in works if work.key == key) for key in ("ptb", "timit"))
    vgg = [work for work in works if work.model]
    return Shown(
        dots.figure([_panel(works, times, paper)], view.title, caption),
        _finding(works, times, paper),
        [
            TableOf(text, view.of(one.name for work in some for one in work.problems.values()))
            for text, some in (
                (_small_table(ptb, times, paper, f"Table 1, PTB LSTM: two 6000×3072 products; {unit}"), [ptb]),
                (_vgg_table(vgg, times, paper, f"Table 2, VGG-16: one image, without im2col; {unit}"), vgg),
                (_small_table(timit, times, paper, f"Table 3, TIMIT LSTM: two 4096×2048 products; {unit}"), [timit]),
            )
        ],
        lost=_lost(works, times, view),
    )


def _names(view: View[Models]) -> dict[str, str]:
    works = view.data.works
    return {one.name: f"{work.name}, {pattern}" for work in works for pattern, one in work.problems.items()}


def _gain(times: Times, key: str, series: str) -> float:
    return times.get((key, "dense"), math.nan) / times.get((key, series), math.nan)


def _panel(works: list[Workload], times: Times, paper: Times) -> dots.Panel:
    markers = {
        "dense_tf32": dots.Marker(style.MUTED, "_"),
        "random": dots.marker_of("cusparse"),
        "random_sputnik": dots.marker_of("sputnik"),
        "block": dots.Marker(style.SKY, "s"),
        "balanced_paper": dots.marker_of("balanced", hollow=True),
        "balanced": dots.marker_of("balanced"),
    }
    curves = [
        dots.Curve(LABELS[series], tuple(_gain(times, work.key, series) for work in works), marker)
        for series, marker in markers.items()
    ]
    published_gains = tuple(_gain(paper, work.key, "balanced") for work in works)
    return dots.Panel(
        title="Batch 1",
        rows=tuple(f"{work.name}: {work.size}" for work in works),
        groups=tuple(work.model for work in works),
        curves=(*curves, dots.Curve(f"paper: balanced ({PUBLISHED_GPU})", published_gains, dots.PAPER)),
        ylabel="speed-up (log)",
    )


def _finding(works: list[Workload], times: Times, paper: Times) -> str:
    gains = {work.name: _gain(times, work.key, "balanced") for work in works}
    gains = {name: gain for name, gain in gains.items() if not math.isnan(gain)}
    if not gains:
        return ""
    slower = [name for name, gain in gains.items() if gain <= 1]
    theirs = [_gain(paper, work.key, "balanced") for work in works]
    return (
        f"`balanced` is {geometric_mean(gains.values()):.2f}× as fast as cuBLAS fp32 in geometric mean over "
        f"{len(gains)} of {len(works)} workloads ({min(gains.values()):.2f} to {max(gains.values()):.2f}×); the "
        f"paper's times give {geometric_mean(theirs):.2f}× over all. "
        + (f"It is not faster on {', '.join(slower)}." if slower else "It is faster on each of them.")
    )


def _small_table(work: Workload, times: Times, paper: Times, lead: str) -> str:
    key, rows = work.key, []
    for source in SOURCES:
        pattern = PATTERNS.get(source.source, "")
        level = percent(work.problems[pattern].sparsity) if pattern else "0 %"
        published_us = paper.get((key, source.key), math.nan)
        rows.append(
            [
                LABELS[source.key],
                level,
                number(times.get((key, source.key), math.nan)),
                number(_gain(times, key, source.key)),
                number(published_us, 1),
                number(_gain(paper, key, source.key)),
            ]
        )
    return f"{lead}\n\n{markdown(['', 'zeros', 'time', 'over cuBLAS fp32', 'paper: time', 'paper: over dense'], rows)}"


def _vgg_table(layers: list[Workload], times: Times, paper: Times, lead: str) -> str:
    rows = []
    for work in layers:
        line = [work.name, work.size]
        for source in SOURCES:
            pattern = PATTERNS.get(source.source, "")
            text = number(times.get((work.key, source.key), math.nan), 1)
            level = f" ({percent(work.problems[pattern].sparsity)})" if pattern and text != GAP else ""
            line.append(text + level)
        line.append(number(_gain(times, work.key, "balanced")))
        line += [number(paper[work.key, series], 1) for series in PAPER_SERIES]
        rows.append([*line, number(_gain(paper, work.key, "balanced"))])
    gains = [_gain(times, work.key, "balanced") for work in layers]
    theirs = [_gain(paper, work.key, "balanced") for work in layers]
    blank = [""] * len(PAPER_SERIES)
    rows.append(["**geometric mean**", "", *("" for _ in SOURCES), mean_cell(gains), *blank, mean_cell(theirs)])
    keys = [work.key for work in layers]
    sums = {source.key: _sum(times, keys, source.key) for source in SOURCES}
    paper_sums = {series: paper["vgg16_total", series] for series in PAPER_SERIES}
    total = ["**total**", "", *(number(sums[source.key], 1) for source in SOURCES)]
    total += [number(sums["dense"] / sums["balanced"]), *(number(paper_sums[series], 1) for series in PAPER_SERIES)]
    rows.append([*total, number(paper_sums["dense"] / paper_sums["balanced"])])
    header = ["layer", "M×K×N", *(LABELS[source.key] for source in SOURCES), "balanced over cuBLAS fp32"]
    header += [*(f"paper: {series}" for series in PAPER_SERIES), "paper: balanced over dense"]
    return f"{lead} Sparsity in brackets; a total needs every layer.\n\n{markdown(header, rows, left=2)}"


def _sum(times: Times, keys: list[str], series: str) -> float:
    """NaN where one is missing."""
    return math.fsum(times.get((key, series), math.nan) for key in keys)


def _lost(works: list[Workload], times: Times, view: View[Models]) -> Iterator[Lost]:
    for source in SOURCES:
        without = {_candidates(work, source)[0]: work.name for work in works if (work.key, source.key) not in times}
        yield from by_reason(view.frame, view.policy, source, LABELS[source.key], without, len(works))


PAGE = PageSpec(
    lead=leads.MODELS,
    title="Balanced Sparsity, tables 1 to 3,",
    intro=(
        "The products of *Balanced Sparsity for Efficient DNN Inference on GPU* (AAAI 2019) at batch 1. The paper "
        "does not say which products of its LSTMs it timed: the gate matrices here are a choice, so those two "
        "published times are no yardstick. Its GPU is not named. Each pattern has the sparsity that the paper "
        "reached without losing accuracy."
    ),
    data=collect,
    sections=(SectionSpec("speedup", "Layers of Balanced Sparsity's models", _show), weights.SECTION),
    summary=lambda view: view.data.drawn,
    problem_names=_names,
    series=lambda view: SOURCES,
)
