"""Direct sparse convolution's tables 6 to 8 redrawn: our times, the published method's and cuDNN's by arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd

from nnzbench.facts.results import geometric_mean, percent
from nnzbench.papers.direct_conv import leads
from nnzbench.papers.direct_conv.layers import (
    COLUMNS,
    PADDED,
    PUBLISHED_GPU,
    Layer,
    Table,
    find_layers,
    padding_us,
    published_ms,
    sub_batch_of,
)
from nnzbench.report.data.series import Series, pick_any, pick_under
from nnzbench.report.draw import dots, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, TableOf, View
from nnzbench.report.text.fastest import Lost, by_reason, mean_cell
from nnzbench.report.text.tables import GAP, markdown, number

DTYPES = {"f32": "fp32", "f16": "fp16"}
NAMED = {
    "ours": "ours, padding included",
    "paper": "the paper's method, padded input given",
    "paper_counts": "with a count per channel",
    "cudnn_nchw": "cuDNN, NCHW",
    "cudnn_nhwc": "cuDNN, NHWC",
}
"""What the table of stages calls columns of either type, and the figure the paper's."""
BEST_OF_OURS = "best of this project's kernels"
PATTERNS = {
    "equal_rows": "Equal counts: every output channel keeps the same number of weights, as the method assumes",
    "uniform": "Random positions: the method fills every channel up to the longest",
}
"""Kinds of sources of these tables, in words."""


@dataclass(frozen=True)
class Times:
    """Microseconds under one policy by problem and column, only what is recorded."""

    table: Table
    policy: str
    rows: dict[str, pd.DataFrame]
    """By column: the picked rows."""

    def of(self, layer: Layer, column: str) -> float:
        """NaN where it is not recorded."""
        row = self.row(layer, column)
        return math.nan if row is None else float(row["median_us"])

    def row(self, layer: Layer, column: str) -> Any:
        """The record of a time, None where there is none. `column` is `<what>_<dtype or tf32>`."""
        problem = layer.problem("f16" if column.endswith("_f16") else "f32")
        found = self.rows[column]
        return found.loc[problem] if problem in found.index else None

    def gain(self, layer: Layer, ours: str, theirs: str) -> float:
        """How many times as fast the first is."""
        return self.of(layer, theirs) / self.of(layer, ours)


def _show(table: Table, view: View[Any]) -> Shown:
    layers = find_layers(table)
    rows = {name: pick_under(view.frame, view.policy, column) for name, column in COLUMNS.items()}
    times = Times(table, view.policy, rows)
    patterns = {key: [one for one in layers if one.pattern == key] for key in dict.fromkeys(o.pattern for o in layers)}
    pattern, shown = next(iter(patterns.items()))
    caption = (
        f"Batch 128, {PATTERNS[pattern].partition(':')[0].lower()} of weights per channel. "
        f"Speed-up over cuDNN's fastest plan of the same type.\n{view.policy_sentence}"
    )
    panels = [_panel(times, shown, dtype) for dtype in DTYPES]
    divided = any(len(rows[f"cudnn_{dtype}"]) for dtype in DTYPES)  # without cuDNN's times nothing of ours is drawn
    return Shown(
        dots.figure(panels, view.title, caption) if divided else None,
        _finding(times, shown),
        [
            TableOf(make(times, some, view.gpu), view.of(name for layer in some for name in layer.problems.values()))
            for some in patterns.values()
            for make in (_main_table, _stage_table)
        ],
        lost=_lost(times, layers, view.frame),
        lines=_lines(times, layers, view.gpu),
        drawn=[pick_any(view.of(one.problem(dtype) for one in shown), _curves(dtype)) for dtype in DTYPES],
    )


def _curves(dtype: str) -> list[Series]:
    """What the panel of a type divides."""
    more = ["cudnn_tf32"] if dtype == "f32" else []
    return [COLUMNS[key] for key in (f"cudnn_{dtype}", f"ours_{dtype}", f"paper_{dtype}", *more)]


DRAWN = {6: 1, 7: 1, 8: 2}
"""Which of the lead's groups a table's figure draws all problems of, or most."""


def _page(number: int) -> PageSpec[Any]:
    table = Table.of(f"direct_conv_table{number}")
    return PageSpec(
        lead={6: leads.TABLE6, 7: leads.TABLE7, 8: leads.TABLE8}[number],
        title=f"Direct sparse convolution, table {number},",
        intro=table.intro,
        sections=(SectionSpec("speedup", table.title, partial(_show, table), group=DRAWN[number]),),
        gaps=lambda view: _untimed_types(table),
        published=lambda: _published_lines(table, find_layers(table)),
        problem_names=lambda view: {
            problem: layer.text(dtype) for layer in find_layers(table) for dtype, problem in layer.problems.items()
        },
        math_text="fp32 is IEEE fp32 with TF32 off; fp16 sums in fp32; TF32 is of tensor cores, and whether a plan of "
        "cuDNN in fp16 uses them is not recorded",
        series=lambda view: _named(),
    )


def _named() -> Iterator[Series]:
    """The columns as tables call them, and legends where that is another name."""
    for dtype, text in DTYPES.items():
        yield COLUMNS[f"cudnn_{dtype}"]
        for label in (f"ours {text}", BEST_OF_OURS):
            yield replace(COLUMNS[f"ours_{dtype}"], label=label)
        for key, label in NAMED.items():
            yield replace(COLUMNS[f"{key}_{dtype}"], label=label)
    yield from (COLUMNS["cudnn_tf32"], replace(COLUMNS["ours_f32"], label="ours"))


def _panel(times: Times, layers: list[Layer], dtype: str) -> dots.Panel:
    base = f"cudnn_{dtype}"
    curves = [
        dots.Curve(
            BEST_OF_OURS,
            _gains(times, layers, f"ours_{dtype}", base),
            dots.marker_of("direct_conv"),
        ),
        dots.Curve(
            NAMED["paper"],
            _gains(times, layers, f"paper_{dtype}", base),
            dots.marker_of("direct_conv", hollow=True),
        ),
    ]
    if dtype == "f32":
        curves.append(
            dots.Curve("cuDNN TF32", _gains(times, layers, "cudnn_tf32", base), dots.Marker(style.MUTED, "_"))
        )
    published = tuple(_published_gain(times.table, layer, dtype) for layer in layers)
    curves.append(dots.Curve(f"paper on a {PUBLISHED_GPU}, over its cuDNN", published, dots.PAPER))
    rows = tuple(f"{layer.label}, {percent(layer.level)}" for layer in layers)
    title = f"{DTYPES[dtype]}: 1× is cuDNN {DTYPES[dtype]}, its fastest plan"
    return dots.Panel(title, rows, tuple(layer.group for layer in layers), tuple(curves), "speed-up (log)")


def _gains(times: Times, layers: list[Layer], ours: str, theirs: str) -> tuple[float, ...]:
    return tuple(times.gain(layer, ours, theirs) for layer in layers)


def _published_gain(table: Table, layer: Layer, dtype: str) -> float:
    found = published_ms(table, layer, dtype)
    return found.cudnn / found.sparse


def _finding(times: Times, layers: list[Layer]) -> str:
    sentences = []
    for ours, theirs, words in (
        ("ours_f32", "cudnn_f32", "cuDNN fp32"),
        ("ours_f32", "cudnn_tf32", "cuDNN TF32"),
        ("ours_f16", "cudnn_f16", "cuDNN fp16"),
        ("ours_f32", "paper_f32", "the paper's method in fp32"),
    ):
        gains = [gain for gain in _gains(times, layers, ours, theirs) if not math.isnan(gain)]
        if gains:
            sentences.append(
                f"{geometric_mean(gains):.2f}× as fast as {words} in geometric mean ({sum(g > 1 for g in gains)} of "
                f"{len(gains)} faster)"
            )
    if not sentences:
        return ""
    return (
        f"With equal counts, the best of this project's kernels is {'; '.join(sentences)}. The fastest plan stands for "
        "either side, in the type named: fp32 kernels against cuDNN's fp32 and TF32, fp16 kernels against its fp16."
        + _half_of_cudnn(times, layers)
    )


def _half_of_cudnn(times: Times, layers: list[Layer]) -> str:
    """Where cuDNN is slower in fp16 than in TF32, which makes it an easy rival of fp16 kernels; else empty."""
    longer = [gain for gain in _gains(times, layers, "cudnn_tf32", "cudnn_f16") if not math.isnan(gain)]
    if not longer or geometric_mean(longer) <= 1:
        return ""
    over = [gain for gain in _gains(times, layers, "ours_f16", "cudnn_tf32") if not math.isnan(gain)]
    beside = f", and over its TF32 fp16 kernels are {geometric_mean(over):.2f}× as fast" if over else ""
    return (
        f" cuDNN's fastest fp16 plan is slower than its TF32 one here: it takes {geometric_mean(longer):.2f} times as "
        f"long in geometric mean (slower on {sum(gain > 1 for gain in longer)} of {len(longer)}){beside}."
    )


def _ms(us: float, digits: int = 3) -> str:
    return number(us / 1e3, digits)


def _lead(times: Times, pattern: str, gpu: str) -> str:
    return (
        f"{PATTERNS[pattern]}. Times in ms on {gpu}, {times.policy} policy, batch 128; columns `paper` are published "
        f"({PUBLISHED_GPU})."
    )


def _main_table(times: Times, layers: list[Layer], gpu: str) -> str:
    """The paper's table: sparse and cuDNN in each type, ours and its own."""
    ratios = (("ours_f32", "cudnn_f32"), ("ours_f32", "cudnn_tf32"), ("ours_f16", "cudnn_f16"))
    columns = ("ours_f32", "ours_f16", "cudnn_f32", "cudnn_tf32", "cudnn_f16")
    rows = []
    for layer in layers:
        paper = {dtype: published_ms(times.table, layer, dtype) for dtype in DTYPES}
        rows.append(
            [
                layer.label,
                percent(layer.level),
                *(_ms(times.of(layer, column)) for column in columns),
                *(number(times.gain(layer, *pair)) for pair in ratios),
                *(number(paper[dtype].sparse, 3) for dtype in DTYPES),
                *(number(paper[dtype].cudnn, 3) for dtype in DTYPES),
                *(number(_published_gain(times.table, layer, dtype)) for dtype in DTYPES),
            ]
        )
    means = [mean_cell(_gains(times, layers, *pair)) for pair in ratios]
    theirs = [mean_cell(_published_gain(times.table, layer, dtype) for layer in layers) for dtype in DTYPES]
    rows.append(["**geometric mean**", "", *("" for _ in columns), *means, "", "", "", "", *theirs])
    header = [times.table.heading, "zeros", "ours fp32", "ours fp16", "cuDNN fp32", "cuDNN TF32", "cuDNN fp16"]
    header += ["ours over cuDNN fp32", "ours over cuDNN TF32", "ours fp16 over cuDNN fp16"]
    header += ["paper: sparse fp32", "paper: sparse fp16", "paper: cuDNN fp32", "paper: cuDNN fp16"]
    header += ["paper: fp32 over cuDNN", "paper: fp16 over cuDNN"]
    return f"{_lead(times, layers[0].pattern, gpu)}\n\n{markdown(header, rows, left=1)}"


def _stage_table(times: Times, layers: list[Layer], gpu: str) -> str:
    """What the times above contain: padding, layouts and the variants chosen."""
    rows = []
    for layer in layers:
        for dtype, word in DTYPES.items():
            ours, paper = times.row(layer, f"ours_{dtype}"), times.row(layer, f"paper_{dtype}")
            if ours is None and paper is None:
                continue
            rows.append(
                [
                    f"{layer.label}, {percent(layer.level)}",
                    word,
                    GAP if ours is None else f"{ours['kernel']} `{ours['variant']}`",
                    _ms(times.of(layer, f"ours_{dtype}")),
                    _ms(times.of(layer, f"paper_{dtype}")),
                    GAP if paper is None else sub_batch_of(str(paper["variant"])),
                    _ms(times.of(layer, f"paper_counts_{dtype}")),
                    "none" if not layer.padded else _ms(padding_us(times.rows, layer, dtype)),
                    "none",
                    *(_ms(times.of(layer, f"cudnn_{layout}_{dtype}")) for layout in ("nchw", "nhwc")),
                ]
            )
    header = [
        times.table.heading,
        "type",
        "our variant",
        NAMED["ours"],
        NAMED["paper"],
    ]
    header += ["its sub-batch", "with a count per channel", "padding", "layout conversion"]
    header += ["cuDNN, NCHW", "cuDNN, NHWC"]
    text = (
        f"The parts of those times ({gpu}, {times.policy} policy, ms). Ours and the paper's method read and write "
        "NCHW, so no layout is converted. The paper's method takes a padded input: `padding` is what its fastest "
        "variant takes longer with that pass in its time. It fills every channel up to the same number of weights; "
        "`with a count per channel` is its fastest variant that does not. cuDNN's NHWC times start from an image "
        "already in that layout. Variants clearly behind the fastest were timed with fewer samples."
    )
    return f"{text}\n\n{markdown(header, rows, left=3)}" if rows else ""


def _lines(times: Times, layers: list[Layer], gpu: str) -> list[dict[str, Any]]:
    out = []
    for layer in layers:
        for column in COLUMNS:
            row = times.row(layer, column)
            if row is None:
                continue
            dtype = "f16" if column.endswith("_f16") else "f32"
            words = {"policy": times.policy, "table": f"table {times.table.number}", "row": layer.text(dtype)}
            numbers = {name: row[name] for name in ("kernel", "variant", "math", "q1_us", "q3_us", "limit_share")}
            base = times.of(layer, f"cudnn_{dtype}")
            words |= {"series": column, "gpu": gpu, "problem": layer.problem(dtype)}
            out.append({**words, **numbers, "time_us": row["median_us"], "baseline_us": base})
    return out


def _published_lines(table: Table, layers: list[Layer]) -> list[dict[str, Any]]:
    out = []
    for layer in layers:
        for dtype in DTYPES:
            found = published_ms(table, layer, dtype)
            words = {"policy": "published", "table": f"table {table.number}", "row": layer.text(dtype)}
            for series, ms in (("paper", found.sparse), ("cudnn", found.cudnn)):
                if not math.isnan(ms):
                    numbers = {"time_us": 1e3 * ms, "baseline_us": 1e3 * found.cudnn}
                    out.append({**words, "series": f"{series}_{dtype}", "gpu": PUBLISHED_GPU, "math": dtype, **numbers})
    return out


def _lost(times: Times, layers: list[Layer], frame: pd.DataFrame) -> Iterator[Lost]:
    for name, column in COLUMNS.items():
        dtype = "f16" if name.endswith("_f16") else "f32"
        able = [layer for layer in layers if dtype in layer.problems and (layer.padded or name not in PADDED)]
        without = {layer.problem(dtype): layer.text(dtype) for layer in able if math.isnan(times.of(layer, name))}
        yield from by_reason(frame, times.policy, column, column.label, without, len(able))


def _untimed_types(table: Table) -> Iterator[str]:
    """Sentences on columns that are empty because the table has no such problems."""
    layers = find_layers(table)
    for pattern in dict.fromkeys(layer.pattern for layer in layers):
        mine = [layer for layer in layers if layer.pattern == pattern]
        for dtype, text in DTYPES.items():
            if not any(layer.problem(dtype) for layer in mine):
                have = " and ".join(other for name, other in DTYPES.items() if any(one.problem(name) for one in mine))
                yield (
                    f"{PATTERNS[pattern].partition(':')[0]}: the experiment has them in {have} alone, so that measured "
                    f"columns of {text} are empty there."
                )


TABLE6, TABLE7, TABLE8 = map(_page, (6, 7, 8))
