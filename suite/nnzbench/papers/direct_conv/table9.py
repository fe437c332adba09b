"""Direct sparse convolution's table 9 redrawn: what the number of thread blocks is worth to the published method."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from nnzbench.facts.results import each, geometric_mean, percent
from nnzbench.papers.direct_conv import leads
from nnzbench.papers.direct_conv.layers import PUBLISHED_GPU
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.problem import Problem
from nnzbench.report.data import published
from nnzbench.report.data.series import Series, pick_under
from nnzbench.report.draw import dots, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, View
from nnzbench.report.text.fastest import Lost, time_of
from nnzbench.report.text.tables import GAP, markdown, number

EXPERIMENT = "direct_conv_table9"
SUB_BATCHES = ("paper_sbs2", "paper_sbs4", "paper_sbs8")
EXTREMES = {"paper_sbs1": "D*bS", "paper_whole": "D"}
"""Variants and the number of thread blocks that the paper's table gives them."""
VARIANTS = (*SUB_BATCHES, *EXTREMES)
BLOCKS = {"paper_sbs1": "D·bS blocks (one image each)", "paper_whole": "D blocks (the whole batch each)"}
MODELS = {"resnet50_1x1": "ResNet-50 1×1", "vgg16": "VGG-16 3×3", "cnn_1d": "1-D"}


@dataclass(frozen=True)
class Times:
    """Microseconds of the published method's variants under one policy, by problem and variant."""

    policy: str
    rows: Mapping[str, pd.DataFrame]

    def of(self, problem: str, variant: str) -> float:
        """NaN where it is not recorded."""
        return time_of(self.rows[variant], problem)

    def tuned(self, problem: str) -> float:
        """The fastest sub-batch of 2, 4 or 8 images; NaN unless all three are recorded."""
        times = [self.of(problem, variant) for variant in SUB_BATCHES]
        return math.nan if any(math.isnan(time) for time in times) else min(times)

    def best(self, problem: str) -> str:
        """Its sub-batch."""
        known = [variant for variant in SUB_BATCHES if self.of(problem, variant) == self.tuned(problem)]
        return known[0].removeprefix("paper_sbs") if known else GAP

    def ratio(self, problem: str, variant: str) -> float:
        """Time over that of the tuned sub-batch."""
        return self.of(problem, variant) / self.tuned(problem)


def decrease(ratio: float) -> float:
    """Share of its speed, in percent, that a variant `ratio` times as slow loses."""
    return 100.0 * (1.0 - 1.0 / ratio)


def layers() -> list[tuple[str, Problem]]:
    """Model and problem of every layer, in the table's order."""
    return [(row.model, row.problem) for row in problem_tables.rows(EXPERIMENT)]


def paper_decrease() -> dict[tuple[str, str], float]:
    """Percent by model and variant."""
    names = {blocks: variant for variant, blocks in EXTREMES.items()}
    frame = published.read("direct_conv_table9_blocks", ("layer", "thread_blocks", "performance_decrease_percent"))
    return {(r.layer, names[r.thread_blocks]): float(r.performance_decrease_percent) for r in each(frame)}


def _show(view: View[Any]) -> Shown:
    rows = {one: pick_under(view.frame, view.policy, _series(one)) for one in VARIANTS}
    times = Times(view.policy, rows)
    caption = (
        "Time over that of the fastest sub-batch of 2, 4 or 8 images per block, fp32, batch 128.\n"
        f"{view.policy_sentence}"
    )
    return Shown(
        dots.figure([_panel(times)], view.title, caption),
        tables=(_by_model(times, view.gpu), _by_layer(times, view.gpu)),
        lost=_lost(times),
        lines=_lines(times, view.gpu),
    )


def _lost(times: Times) -> Iterator[Lost]:
    for variant in VARIANTS:
        without = tuple(_name(problem) for _, problem in layers() if math.isnan(times.of(problem.name, variant)))
        yield Lost(f"`{variant}`", times.policy, without, len(layers()))


def _published() -> Iterator[dict[str, Any]]:
    for (model, variant), percents in paper_decrease().items():
        words = {"policy": "published", "table": "table 9", "row": MODELS[model], "series": variant}
        yield {**words, "gpu": PUBLISHED_GPU, "speedup": 1 - percents / 100}


def _series(variant: str) -> Series:
    return Series(variant, f"`{variant}`", ("direct_conv",), variants=f"{variant}$")


def _name(problem: Problem) -> str:
    s = problem.conv
    assert s is not None
    size = f"{s.channels}×{s.height}×{s.width}×{s.filters}" if s.height > 1 else f"filter {s.s}×1"
    return f"{size}, {percent(problem.sparsity)}"


def _panel(times: Times) -> dots.Panel:
    markers = {"paper_sbs1": dots.Marker(style.SKY, "^"), "paper_whole": dots.Marker(style.VERMILLION, "s")}
    paper = paper_decrease()
    found = layers()
    curves = []
    for variant, marker in markers.items():
        ratios = tuple(times.ratio(problem.name, variant) for _, problem in found)
        curves.append(dots.Curve(BLOCKS[variant], ratios, marker))
        theirs = tuple(1 / (1 - paper[model, variant] / 100) for model, _ in found)
        hollow = dots.Marker(dots.PAPER_COLOUR, marker.marker, hollow=True, size=5.0)
        curves.append(dots.Curve(f"paper, {PUBLISHED_GPU}: {BLOCKS[variant].partition(' (')[0]}", theirs, hollow))
    rows = tuple(_name(problem) for _, problem in found)
    groups = tuple(MODELS[model] for model, _ in found)
    return dots.Panel("1× is the tuned sub-batch", rows, groups, tuple(curves), "time over tuned (log)")


def _by_model(times: Times, gpu: str) -> str:
    paper = paper_decrease()
    rows = []
    for model, word in MODELS.items():
        problems = [problem.name for name, problem in layers() if name == model]
        for variant in EXTREMES:
            ratios = [ratio for ratio in (times.ratio(name, variant) for name in problems) if not math.isnan(ratio)]
            spread = GAP
            if ratios:
                spread = f"{decrease(min(ratios)):.0f} % to {decrease(max(ratios)):.0f} %"
            mean = f"**{decrease(geometric_mean(ratios)):.0f} %**" if ratios else GAP
            counted = f"{len(ratios)} of {len(problems)}"
            rows.append([word, BLOCKS[variant], mean, spread, counted, f"{paper[model, variant]:.0f} %"])
    header = ["layer type", "thread blocks", f"loss, {gpu}", "range", "layers", f"paper: loss, {PUBLISHED_GPU}"]
    lead = f"Loss of speed on {gpu}, {times.policy} policy, fp32 (geometric mean of the layers' times over tuned)."
    return f"{lead}\n\n{markdown(header, rows, left=2)}"


def _by_layer(times: Times, gpu: str) -> str:
    rows = []
    for model, problem in layers():
        name = problem.name
        rows.append(
            [
                MODELS[model],
                _name(problem),
                *(number(times.of(name, variant) / 1e3, 3) for variant in SUB_BATCHES),
                times.best(name),
                *(number(times.of(name, variant) / 1e3, 3) for variant in EXTREMES),
                *(number(times.ratio(name, variant)) for variant in EXTREMES),
            ]
        )
    header = ["layer type", "layer", "sub-batch 2", "sub-batch 4", "sub-batch 8", "fastest", "D·bS blocks", "D blocks"]
    header += ["D·bS over tuned", "D over tuned"]
    lead = (
        f"Times in ms on {gpu}, {times.policy} policy, fp32, batch 128. Variants clearly behind the fastest kernel "
        "of the layer were timed with fewer samples."
    )
    return f"{lead}\n\n{markdown(header, rows, left=2)}"


def _lines(times: Times, gpu: str) -> list[dict[str, Any]]:
    out = []
    for _, problem in layers():
        for variant, rows in times.rows.items():
            if problem.name not in rows.index:
                continue
            row = rows.loc[problem.name]
            words = {"policy": times.policy, "table": "table 9", "row": _name(problem), "series": variant, "gpu": gpu}
            numbers = {name: row[name] for name in ("kernel", "variant", "math", "q1_us", "q3_us", "limit_share")}
            base = times.tuned(problem.name)
            out.append({**words, "problem": problem.name, **numbers, "time_us": row["median_us"], "baseline_us": base})
    return out


PAGE = PageSpec(
    lead=leads.TABLE9,
    title="Direct sparse convolution, table 9,",
    intro=(
        "What the published method loses when its number of thread blocks is not tuned (table 9 of the paper on "
        f"direct sparse convolution, {PUBLISHED_GPU}): a block computes one output channel of a sub-batch of "
        "images. Batch 128, padded input given. A loss of p % means that p % of the speed of the fastest sub-batch "
        "is gone: 1 − its time over the variant's time. A loss below zero is a gain."
    ),
    sections=(SectionSpec("blocks", "Thread blocks of the published direct convolution", _show),),
    published=_published,
    problem_names=lambda view: {problem.name: _name(problem) for _, problem in layers()},
)
