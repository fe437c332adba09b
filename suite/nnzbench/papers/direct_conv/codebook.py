"""The paper's 4-bit weights in its direct convolution: indices into a codebook beside weights of 32 and 16 bits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from nnzbench.facts.results import geometric_mean, percent
from nnzbench.papers.direct_conv import leads
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.problem import Problem
from nnzbench.report.data.series import MATH_LABELS, Series, pick_any, pick_under
from nnzbench.report.draw import dots, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text.fastest import Lost, by_reason, mean_cell, measured, time_of
from nnzbench.report.text.tables import markdown, number

EXPERIMENT = "direct_conv_codebook"
CLASSES = ("f32", "f16")
SOURCES = (
    ("cudnn", "cuDNN, dense", ("cudnn",), ""),
    ("paper", "the paper's method, weights stored", ("direct_conv",), r"paper_sbs[248]$"),
    ("codebook", "the same, indices into a codebook", ("direct_conv",), "codebook_sbs"),
)
"""Key, label, kernels and variants of each column."""
DRAWN = {"paper": dots.marker_of("direct_conv", hollow=True), "codebook": dots.Marker(style.BLUE, "h")}
STORED = {"f32": 8, "f16": 4}
"""Bytes of a weight and its offset."""
Times = dict[tuple[str, str, str], float]
"""Microseconds by series, arithmetic and problem, only what is known."""


def problems() -> list[Problem]:
    """The layers, in the table's order."""
    return [row.problem for row in problem_tables.rows(EXPERIMENT)]


def _series(math_class: str) -> list[Series]:
    return [Series(key, label, kernels, math_class, variants) for key, label, kernels, variants in SOURCES]


def _rows(frame: pd.DataFrame, policy: str) -> dict[tuple[str, str], pd.DataFrame]:
    return {
        (one.key, one.math): pick_under(frame, policy, one)
        for both in zip(*map(_series, CLASSES), strict=True)
        for one in both
    }


def _show(view: View[Any]) -> Shown:
    found, rows = problems(), _rows(view.frame, view.policy)
    times = {
        (key, math_class, one.name): time_of(some, one.name)
        for (key, math_class), some in rows.items()
        for one in found
        if one.name in some.index
    }
    drawn = {one: pick_any(view.of(problem.name for problem in found), _series(one)) for one in CLASSES}
    caption = f"Speed-up over cuDNN in the same arithmetic, which multiplies by every weight.\n{view.policy_sentence}"
    return Shown(
        dots.figure([_panel(times, found, one) for one in CLASSES], view.title, caption),
        _finding(times, found, view),
        [TableOf(_table(times, found, view, math_class), some) for math_class, some in drawn.items()],
        lost=_lost(times, found, view),
        lines=_lines(rows, found, times, view),
        drawn=list(drawn.values()),
    )


def _gain(times: Times, key: str, math_class: str, problem: Problem, base: str = "cudnn") -> float:
    of = (math_class, problem.name)
    return times.get((base, *of), math.nan) / times.get((key, *of), math.nan)


def _layer(problem: Problem) -> str:
    assert problem.conv is not None
    c = problem.conv
    return f"{c.channels}×{c.filters}, {c.height}×{c.width}"


def _panel(times: Times, found: list[Problem], math_class: str) -> dots.Panel:
    labels = {key: label for key, label, _, _ in SOURCES}
    curves = tuple(
        dots.Curve(labels[key], tuple(_gain(times, key, math_class, one) for one in found), marker)
        for key, marker in DRAWN.items()
    )
    rows = tuple(f"{_layer(one)}, {percent(one.sparsity)}" for one in found)
    return dots.Panel(MATH_LABELS[math_class], rows, ("VGG-16",) * len(rows), curves, "speed-up over cuDNN (log)")


def _finding(times: Times, found: list[Problem], view: View[Any]) -> str:
    sentences = []
    for math_class in CLASSES:
        gains = [_gain(times, "codebook", math_class, one, "paper") for one in found]
        gains = [gain for gain in gains if not math.isnan(gain)]
        if gains:
            sentences.append(
                f"In {MATH_LABELS[math_class]} the paper's convolution is {geometric_mean(gains):.2f}× as fast with "
                f"indices into a codebook as with the weights themselves on {view.gpu}, in geometric mean over "
                f"{len(gains)} of {len(found)} layers."
            )
    return " ".join(sentences)


def _table(times: Times, found: list[Problem], view: View[Any], math_class: str) -> str:
    header = ["arithmetic", "series", *(_layer(one) for one in found), "over cuDNN, geometric mean"]
    rows = [
        [
            MATH_LABELS[math_class],
            label,
            *(number(times.get((key, math_class, one.name), math.nan)) for one in found),
            mean_cell(_gain(times, key, math_class, one) for one in found),
        ]
        for key, label, _, _ in SOURCES
    ]
    lead = (
        f"Channels × filters, image; batch 128. Times in µs on {view.gpu}, {view.policy} policy. A stored weight and "
        f"its offset take {STORED[math_class]} bytes in {MATH_LABELS[math_class]}, an index and its offset 4."
    )
    return f"{lead}\n\n{markdown(header, rows, left=2)}"


def _lost(times: Times, found: list[Problem], view: View[Any]) -> Iterator[Lost]:
    for math_class in CLASSES:
        for key, label, kernels, variants in SOURCES:
            series = Series(key, label, kernels, math_class, variants)
            without = {one.name: _layer(one) for one in found if (key, math_class, one.name) not in times}
            what = f"{label} ({MATH_LABELS[math_class]})"
            yield from by_reason(view.frame, view.policy, series, what, without, len(found))


def _lines(
    rows: Mapping[tuple[str, str], pd.DataFrame], found: list[Problem], times: Times, view: View[Any]
) -> Iterator[dict[str, Any] | None]:
    for (key, math_class), some in rows.items():
        for one in found:
            words = {"policy": view.policy, "table": MATH_LABELS[math_class], "row": _layer(one)}
            line = measured(some, one.name, **words, series=key, gpu=view.gpu)
            base = times.get(("cudnn", math_class, one.name), math.nan)
            yield None if line is None else line | {"baseline_us": base}


PAGE = PageSpec(
    lead=leads.CODEBOOK,
    title="Direct convolution with 4-bit weights",
    intro=(
        "The paper quantises weights to 4 bits by k-means (section 4), and times none of its convolutions with them. "
        "Does a codebook make its kernel faster, as it makes a matrix times a vector faster? Four layers of its table "
        "6 with weights of 15 shared values: as published, with every weight stored, and with a 4-bit index beside "
        "each offset, looked up as entries are staged in shared memory. Every block stages its channel's entries once "
        "for all of its outputs."
    ),
    sections=(SectionSpec("speedup", "4-bit weights in the direct convolution", _show),),
    published=lambda: (),
    problem_names=lambda view: {one.name: _layer(one) for one in problems()},
    series=lambda view: [one for math_class in CLASSES for one in _series(math_class)],
)
