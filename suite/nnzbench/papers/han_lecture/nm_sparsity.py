"""2:4 sparsity redrawn: cuSPARSELt on sparse tensor cores against the best dense product in the same arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from nnzbench import paths
from nnzbench.facts.results import geometric_mean
from nnzbench.papers.han_lecture import leads
from nnzbench.plans import architectures
from nnzbench.problems import tables as problem_tables
from nnzbench.problems.problem import Problem
from nnzbench.report.data.series import DEFAULT, MATH_LABELS, Series, pick_any, pick_under
from nnzbench.report.draw import dots, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text.fastest import Lost, mean_cell, time_of
from nnzbench.report.text.marks import MARK, cuts
from nnzbench.report.text.tables import GAP, markdown, number

EXPERIMENT = "nm_sparsity"
PUBLISHED_FACTOR = 2.0
"""What larger products come close to in figure 3 of *Accelerating Sparse Deep Neural Networks* (INT8, A100)."""
PUBLISHED_BERT = 1.5
"""Speed-up of BERT that the A100's makers measured."""
PUBLISHED_GPU = "A100"
GROUPS = {"a100": "m = n = 10240 (figure 3)", "bert": "layers of BERT-large", "cube": "cubes"}
CLASSES = {"i8": ("i8", "INT8, 2:4"), "f16": ("f16", "fp16, 2:4"), "f32": ("tf32", "TF32, 1:2")}
"""By type of the problem: arithmetic class, and how that and its pattern are called."""
PEAKS = {
    "fp32": "fp32_tflops",
    "TF32": "tf32_tflops",
    "fp16": "fp16_tensor_tflops",
    "INT8": "int8_tensor_tops",
}
"""Columns of `datasets/gpus.csv`."""
FIRST_SPARSE = 80
"""The first architecture with sparse tensor cores."""


SOURCES = (
    Series("cublas", "cuBLAS", ("cublas",)),
    Series("cublaslt", "cuBLASLt, best", ("cublaslt",)),
    Series("dense", "best dense", ("cublas", "cublaslt")),
    Series("default", "cuSPARSELt, its default", ("cusparselt",), variants=DEFAULT),
    Series("search", "cuSPARSELt, best of its search", ("cusparselt",)),
)
"""One column of the table each; its arithmetic is that of the problem."""
Times = dict[tuple[str, str], float]
"""Microseconds by series and problem, only what is known."""


def problems(dtype: str) -> list[Problem]:
    """Those of one type, in the table's order."""
    return [row.problem for row in problem_tables.rows(EXPERIMENT) if row.problem.dtype == dtype]


def _title(view: View[Any]) -> str:
    return f"2:4 sparsity on sparse tensor cores of {view.gpu}, {view.policy} policy"


def _show(view: View[Any]) -> Shown:
    rows = {
        (dtype, one.key): pick_under(view.frame, view.policy, replace(one, math=math_class))
        for dtype, (math_class, _) in CLASSES.items()
        for one in SOURCES
    }
    times = {
        (series, one.name): time_of(some, one.name)
        for (dtype, series), some in rows.items()
        for one in problems(dtype)
        if one.name in some.index
    }
    caption = (
        "Speed-up of cuSPARSELt over the faster of cuBLAS and cuBLASLt in one arithmetic; the units could give "
        f"2× at most.\n{view.policy_sentence}"
    )
    drawn = {
        dtype: pick_any(
            view.of(one.name for one in problems(dtype)), [replace(one, math=math_class) for one in SOURCES]
        )
        for dtype, (math_class, _) in CLASSES.items()
    }
    return Shown(
        dots.figure([_panel(times, dtype) for dtype in CLASSES], view.title, caption),
        tables=[
            TableOf(_overview(times, view), view.frame.iloc[:0]),  # its numbers have the mark
            *(TableOf(_table(times, dtype, view.gpu, view.policy), some) for dtype, some in drawn.items()),
        ],
        lost=_lost(times, view.policy),
        lines=_lines(rows, times, view.policy, view.gpu),
        drawn=list(drawn.values()),
    )


def _lost(times: Times, policy: str) -> Iterator[Lost]:
    for dtype, (_, words) in CLASSES.items():
        some = problems(dtype)
        for source in SOURCES:
            without = tuple(_name(p) for p in some if (source.key, p.name) not in times)
            yield Lost(f"{source.label} ({words})", policy, without, len(some))


def _group(problem: Problem) -> str:
    return GROUPS[problem.label.partition("_")[0]]


def _name(problem: Problem) -> str:
    label = problem.label.partition("_")[2]
    size = f"{problem.m}×{problem.k}×{problem.n}"
    return f"{label} {size}" if label else size


def _gain(times: Times, series: str, problem: Problem, base: str = "dense") -> float:
    return times.get((base, problem.name), math.nan) / times.get((series, problem.name), math.nan)


def _panel(times: Times, dtype: str) -> dots.Panel:
    some = problems(dtype)
    _, words = CLASSES[dtype]
    markers = {
        "cublas": dots.Marker(style.INK, "_"),
        "default": dots.marker_of("cusparselt", hollow=True),
        "search": dots.marker_of("cusparselt"),
    }
    labels = {source.key: source.label for source in SOURCES}
    curves = [
        dots.Curve(labels[series], tuple(_gain(times, series, p) for p in some), marker)
        for series, marker in markers.items()
    ]
    printed = dtype == "i8"  # in which arithmetic the figure is drawn
    theirs = tuple(PUBLISHED_FACTOR if printed and p.label == "a100" else math.nan for p in some)
    curves.append(dots.Curve(f"paper: nearly {PUBLISHED_FACTOR:g}× ({PUBLISHED_GPU}, INT8)", theirs, dots.PAPER))
    rows, groups = tuple(_name(p) for p in some), tuple(_group(p) for p in some)
    return dots.Panel(f"{words}: 1× is the best dense product", rows, groups, tuple(curves), "speed-up (log)")


def _overview(times: Times, view: View[Any]) -> str:
    """Geometric means and spans by group of products and arithmetic."""
    rows = []
    for key, group in GROUPS.items():
        cells = []
        for dtype, (math_class, _) in CLASSES.items():
            some = {p.name: _gain(times, "search", p) for p in problems(dtype) if p.label.partition("_")[0] == key}
            gains = [gain for gain in some.values() if not math.isnan(gain)]
            compared = (replace(one, math=math_class) for one in SOURCES if one.key in ("dense", "search"))
            mark = MARK if cuts(view.of(some), *compared) else ""
            mean, span = geometric_mean(gains), f"{min(gains):.2f} to {max(gains):.2f}" if gains else ""
            cells.append(f"**{mean:.2f}×**{mark} ({span}, {len(gains)} products)" if gains else GAP)
        if set(cells) != {GAP}:
            rows.append([group, *cells])
    lead = f"cuSPARSELt over the best dense product on {view.gpu}, {view.policy}, in geometric mean:"
    return f"{lead}\n\n{markdown(['', *(words for _, words in CLASSES.values())], rows)}" if rows else ""


def _table(times: Times, dtype: str, gpu: str, policy: str) -> str:
    some = problems(dtype)
    _, words = CLASSES[dtype]
    rows = [
        [
            _group(p),
            _name(p),
            *(number(times.get((source.key, p.name), math.nan)) for source in SOURCES if source.key != "dense"),
            number(_gain(times, "search", p, "cublas")),
            number(_gain(times, "search", p)),
            f"nearly {PUBLISHED_FACTOR:g}" if p.label == "a100" else "",
        ]
        for p in some
    ]
    means = [mean_cell(_gain(times, "search", p, base) for p in some) for base in ("cublas", "dense")]
    rows.append(["**geometric mean**", "", "", "", "", "", *means, ""])
    header = ["", "m×k×n", *(source.label for source in SOURCES if source.key != "dense")]
    header += ["over cuBLAS", "over the best dense", f"paper: {PUBLISHED_GPU}, INT8, over cuBLAS"]
    lead = f"{words}. Times in µs on {gpu}, {policy} policy, tensor cores throughout."
    return f"{lead}\n\n{markdown(header, rows, left=2)}"


def _lines(
    rows: Mapping[tuple[str, str], pd.DataFrame], times: Times, policy: str, gpu: str
) -> Iterator[dict[str, Any]]:
    columns = ("kernel", "variant", "math", "q1_us", "q3_us", "limit_share")
    for (dtype, series), some in rows.items():
        for one in problems(dtype):
            if (series, one.name) not in times:
                continue
            row = some.loc[one.name]
            words = {"policy": policy, "table": _group(one), "row": _name(one), "series": series, "gpu": gpu}
            numbers = {column: row[column] for column in columns}
            base, time = times.get(("dense", one.name), math.nan), times[series, one.name]
            yield {**words, "problem": one.name, **numbers, "time_us": time, "baseline_us": base}


def _show_peaks(view: View[Any]) -> Shown:
    rows = []
    for one in pd.read_csv(paths.datasets() / "gpus.csv").to_dict("records"):
        rates = {name: float(one[column]) for name, column in PEAKS.items()}
        doubled = architectures.number(str(one["arch"])) >= FIRST_SPARSE
        sparse = [number(2 * rates[name] if doubled else math.nan, 1) for name in PEAKS if name != "fp32"]
        rows.append([str(one["name"]), *(number(rate, 1) for rate in rates.values()), *sparse])
    header = ["GPU", *PEAKS, *(f"{name}, 2:4" for name in PEAKS if name != "fp32")]
    words = (
        "What the units could give at most, from NVIDIA's data sheets and whitepapers, in units of 1e12 operations per "
        f"second, sums in fp32 or (INT8) 32-bit integers; the paper's table 1 is the {PUBLISHED_GPU}'s. Sparse tensor "
        "cores start with sm_80 and double every rate (TF32 with 1:2)."
    )
    return Shown(None, words, [markdown(header, rows)])


PAGE = PageSpec(
    lead=leads.NM_SPARSITY,
    title="2:4 sparsity",
    intro=(
        "Products with a matrix that keeps two of every four weights (INT8, fp16) or one of every two (TF32), the "
        "patterns of sparse tensor cores. *Accelerating Sparse Deep Neural Networks* (2021) shows INT8 on an "
        f"{PUBLISHED_GPU} in its figure 3 and prints no numbers: larger products come close to "
        f"{PUBLISHED_FACTOR:g}×; BERT as a whole became {PUBLISHED_BERT:g}× as fast. INT8 sums here are exact 32-bit "
        "integers, checked as such. The sparse matrix is compressed beforehand, outside the times."
    ),
    sections=(
        SectionSpec("speedup", _title, _show),
        SectionSpec("peaks", "", _show_peaks, heading="Peak rates, dense and sparse", once=True),
    ),
    published=lambda: [
        {"policy": "published", "table": "figure 3", "row": "large products, INT8", "series": "search"}
        | {"gpu": PUBLISHED_GPU, "math": "int8", "speedup": PUBLISHED_FACTOR}
    ],
    problem_names=lambda view: {
        p.name: f"{_name(p)}, {MATH_LABELS[p.dtype]}" for dtype in CLASSES for p in problems(dtype)
    },
    math_text="INT8 with 32-bit sums, fp16 with sums in fp32, and TF32 (fp32 operands); all on tensor cores",
    series=lambda view: [
        replace(source, math=math_class, label={"dense": "the best dense"}.get(source.key, source.label))
        for source in SOURCES
        for math_class, _ in CLASSES.values()
    ],
)
