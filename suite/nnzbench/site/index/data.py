"""What reports/index.html carries: rows with their facts, the layers of `results.nearby`, estimates of `advise.grid`.

Every ratio is a fact; the browser filters, draws, looks for the nearest layer, and reads between the grid's points.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.markers import MarkerStyle

from nnzbench.advise import grid
from nnzbench.data.problems.experiment import POLICIES
from nnzbench.kernels.registry import about
from nnzbench.papers.catalogue import EXPERIMENTS
from nnzbench.report.draw import style
from nnzbench.report.draw.maps import STEPS
from nnzbench.report.draw.style import BAR, INK
from nnzbench.report.page import Bars, Dots, Page, View
from nnzbench.report.tables import MARK
from nnzbench.report.text import gpu_name
from nnzbench.results import nearby
from nnzbench.results.result_set import each
from nnzbench.results.selector import DEFAULT, Selector, dense_of, kernel, kernels_in, written_here
from nnzbench.results.table import pairs

BASELINES = (dense_of("f32"), dense_of("tf32"), dense_of("f16"), nearby.cusparse("f32"))
"""What a time may be set against besides the 1x of the experiment's page, which stands first in the data."""
PAGE_BASELINE = "the 1× of the experiment's page"
BEST = written_here()
PROBLEM = ("set", "op", "name", "label", "size", "level", "nnz", "flops", "paper")
ROW = (
    "problem", "series", "policy", "variant", "us", "below", "above", "share", "intensity", "error", "tuned", "best",
)  # fmt: skip
"""`below` and `above` are how far the quartiles lie from the median: short numbers, and there are many."""
OVER = tuple(f"over{at}" for at in range(len(BASELINES) + 1))
ROOFS = ("copy_gbs", "l2_gbs", "fp32_tflops", "tf32_tflops", "f16_tflops")
DIGITS = 5


class Numbers(dict[Hashable, int]):
    """Numbers what it is asked for in the order of asking."""

    def of(self, key: Hashable) -> int:
        """The number of `key`, a new one the first time."""
        return self.setdefault(key, len(self))


def short(value: object, digits: int = 4) -> float | None:
    """A number of few digits for JSON; None for what is missing."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def encode(data: Mapping[str, Any]) -> str:
    """Compressed JSON in letters that can stand in a script element; `unpack` of index.js reads it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode())).decode()


class Part(NamedTuple):
    """What the page carries of one experiment on one GPU, made beside the experiment's own page."""

    experiment: str
    gpu: str
    baselines: list[str | None]
    paper: str
    problems: list[tuple[Any, ...]]
    """`PROBLEM` but the set."""
    rows: list[tuple[Any, ...]]
    """`ROW` and `OVER`, with the series itself and the variant's name in their places."""
    layers: pd.DataFrame


_OF_ROW = [
    "subject", "problem", "policy", "kernel", "variant", "math", "median_us", "q1_us", "q3_us", "limit_share", "flops",
    "bytes", "relative_error", "tuned",
]  # fmt: skip


def part(page: Page, view: View) -> Part | None:
    """None where nothing is timed, as on the processor."""
    mine = _series(view)
    if not mine:
        return None
    first = page.baseline or (page.comparison.baselines[0] if page.comparison else None)
    baselines = [first.label if first else "", *(one.label for one in BASELINES)]
    facts = pairs(view, mine, [one for one in (first, *BASELINES) if one])
    keys = zip(*(facts[name] for name in ("problem", "subject", "policy", "baseline")), strict=True)
    over = dict(zip(keys, facts["ratio"], strict=True))
    there = set(facts["baseline"])
    paper, printed = _printed(page, view)
    timed = view.frame[view.frame["median_us"].notna() & view.frame["policy"].isin(POLICIES)]
    flops = dict(zip(timed["problem"], timed["flops"], strict=True))
    known = view.problems[view.problems["problem"].isin(list(flops))]
    places = {name: at for at, name in enumerate(known["problem"])}
    problems = [
        (row.op, row.problem, row.label, row.size, row.level / 100, int(row.nnz), int(flops[row.problem]),
         printed.get(row.problem))
        for row in each(known)
    ]  # fmt: skip
    best = view.times(BEST)
    best_rows = set(zip(best["problem"], best["policy"], best["kernel"], best["variant"], strict=True))
    chosen = {one.label: one for one in mine}
    cells = view.cells(mine)
    rows: list[tuple[Any, ...]] = []
    for row in each(cells.loc[cells["policy"].isin(POLICIES), _OF_ROW]):
        shown = chosen[row.subject]
        is_best = (row.problem, row.policy, row.kernel, row.variant) in best_rows and not shown.default
        spread = (short(row.median_us - row.q1_us, 2), short(row.q3_us - row.median_us, 2))
        times = (short(row.median_us, DIGITS), *spread, short(row.limit_share, 3))
        intensity = short(row.flops / row.bytes if row.bytes else math.nan, 3)
        rows.append(
            (
                *(places[row.problem], shown, POLICIES.index(row.policy), row.variant),
                *(*times, intensity, short(row.relative_error, 2)),
                *(int(row.tuned), int(is_best and row.math == BEST.math)),
                *(short(over.get((row.problem, row.subject, row.policy, one)), DIGITS) for one in baselines),
            )
        )
    shown_baselines = [one if one in there else None for one in baselines]
    results = view.results
    return Part(results.experiment, results.gpu, shown_baselines, paper, problems, rows, nearby.layers(view))


def collect(parts: Sequence[Part], gpus: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Everything the page filters, draws and asks; `rows`, `problems` and `layers` are columns of equal length.

    `gpus`: what `gpu_of` tells of each that has a part.
    """
    experiments, slugs, variants, series = Numbers(), Numbers(), Numbers(), Numbers()
    series.of(BEST)
    sets: list[dict[str, Any]] = []
    problems: list[tuple[Any, ...]] = []
    rows: list[tuple[Any, ...]] = []
    layers = []
    for one in parts:
        numbers = {"experiment": experiments.of(one.experiment), "gpu": slugs.of(one.gpu)}
        sets.append({**numbers, "baselines": one.baselines, "paper": one.paper})
        start = len(problems)
        problems += [(len(sets) - 1, *problem) for problem in one.problems]
        rows += [
            (start + problem, series.of(shown), policy, variants.of(variant), *rest)
            for problem, shown, policy, variant, *rest in one.rows
        ]
        layers.append(one.layers.assign(gpu=numbers["gpu"]))
    table = pd.concat(layers, ignore_index=True) if layers else pd.DataFrame(columns=[*nearby.COLUMNS, "gpu"])
    return {
        "sets": sets,
        "experiments": [_experiment(str(name)) for name in experiments],
        "gpus": [gpus[str(slug)] for slug in slugs],
        "policies": list(POLICIES),
        "baselines": [PAGE_BASELINE, *(one.label for one in BASELINES)],
        "series": [_described(one) for one in series if isinstance(one, Selector)],
        "variants": list(variants),
        "problems": _columns(PROBLEM, problems),
        "rows": _columns((*ROW, *OVER), rows),
        "layers": _layers(table),
        "points": grid.POINTS,
        **_map(table),
    }


def _columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def _series(view: View) -> list[Selector]:
    """Every kernel in every arithmetic, and its own first choice where it has one."""
    found = kernels_in(view.frame)
    first = (kernel(one.kernel, one.math, DEFAULT) for one in found)
    return [*found, *(one for one in first if len(view.times(one)))]


def _printed(page: Page, view: View) -> tuple[str, dict[str, float]]:
    """What the paper's ratios are called, and each by problem: those that a figure of the page shows beside ours."""
    for figure in page.figures:
        if not isinstance(figure, Dots | Bars) or figure.printed is None or figure.value != "ratio":
            continue
        made = figure.printed.make(view)
        keys = [one for one in (figure.x, figure.panels) if one in made]
        if set(keys) <= set(view.problems) and not made.duplicated(keys).any():  # a number of one problem
            found = view.problems.merge(made[[*keys, "value"]], on=keys)
            return figure.printed.label, {row.problem: float(f"{row.value:.4g}") for row in each(found)}
    return "", {}


def _layers(table: pd.DataFrame) -> dict[str, list[Any]]:
    """Columns of `nearby.layers`, with texts as places in lists of their own (`words`)."""
    out: dict[str, Any] = {"words": {}}
    for name in [*nearby.COLUMNS, "gpu"]:
        values = table[name].tolist()
        if values and isinstance(values[0], str):
            words = Numbers()
            out[name] = [words.of(one) for one in values]
            out["words"][name] = list(words)
        else:
            digits = {"ratio": 6, "us": DIGITS, "baseline_us": DIGITS}.get(name)
            out[name] = [short(one, digits) for one in values] if digits else [_plain(one) for one in values]
    return out


def _map(table: pd.DataFrame) -> dict[str, Any]:
    """`cells`: where in the layers each lies, its line (of `nearby.ZEROS`) and its panel; `names` of their kernels."""
    found = [nearby.cells(mine) for _, mine in table.groupby("gpu")]
    sizes = list(dict.fromkeys(nearby.SIZES.values()))
    rows = [
        (at, nearby.ZEROS.index(int(row.level)), sizes.index(nearby.size_class(row.rows, row.inner)))
        for some in found
        for at, row in zip(some.index, each(some), strict=True)
    ]
    kernels = sorted({name for some in found for name in (*some["kernel"], *some["baseline_kernel"])})
    return {
        "cells": _columns(("layer", "line", "panel"), rows),
        "names": {name: about(name).label for name in kernels},
        "zeros": nearby.ZEROS,
        "widths": nearby.WIDTHS,
        "steps": STEPS,
        "mark": MARK,
        "homes": [f"{rows} × {inner}" for rows, inner in nearby.SIZES],
    }


def _plain(value: Any) -> float | int:
    return int(value) if value == int(value) else value


def _experiment(name: str) -> dict[str, str]:
    known = EXPERIMENTS.get(name)
    title = f"{known.title} – {known.paper}, {known.figure}" if known else ""
    return {"name": name, "title": title}


def gpu_of(slug: str, environments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Name and measured roofs of a GPU: of its last recording that has them."""
    peaks = [one.get("peaks") for one in environments]
    found = next((p for p in reversed(peaks) if isinstance(p, dict)), {})
    name = gpu_name(slug, dict(environments[-1]))
    return {"slug": slug, "name": name, "roofs": {name: short(found.get(name)) for name in ROOFS}}


def _described(one: Selector) -> dict[str, Any]:
    work = "" if not one.kernel or one.default or about(one.kernel).study else about(one.kernel).work
    return {"label": one.label, "kernel": one.kernel or "best", "math": one.math, "work": work, **look(one)}


DARK_GROUND, DARK_INK, LIGHT_GROUND = "#12161c", "#e6eaf0", "#ffffff"
LEAST_CONTRAST = 3.0
"""What WCAG 2 asks of graphics against their ground."""
_SHADES = {"tf32": ("#6e7781", "#2f8f9d"), "f16": ("#8a5a00", "#c77d1e")}
"""Of dense libraries by arithmetic: without and with a search of algorithms."""
_STRETCH = {"f16": (1.0, 0.5), "tf32": (0.5, 1.0), "bf16": (0.8, 0.45), "i8": (0.55, 0.55)}
"""Width and height of a marker in other arithmetic than fp32: flat, narrow, small."""
_SHAPES = {
    "_": ((-0.5, -0.11), (0.5, -0.11), (0.5, 0.11), (-0.5, 0.11)),
    "o": tuple((0.5 * math.cos(i * math.pi / 12), 0.5 * math.sin(i * math.pi / 12)) for i in range(24)),
}
"""Markers that Matplotlib has no polygon of."""


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio of two colours, 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def look(one: Selector) -> dict[str, Any]:
    """`light` and `dark` colours, whether the marker is `hollow`, and its `shape` (x, y pairs in -0.75 to 0.75)."""
    if not one.kernel:  # the best of several
        return {"light": BAR, "dark": "#4a5563", "hollow": False, "shape": _shape("o", one)}
    given = style.look(one.kernel)
    colour = _SHADES[one.math][about(one.kernel).searched] if one.dense and one.math in _SHADES else given.colour
    dark = colour if contrast(colour, DARK_GROUND) >= LEAST_CONTRAST else DARK_INK
    return {"light": colour, "dark": dark, "hollow": one.default, "shape": _shape(given.marker, one)}


def _shape(marker: str, one: Selector) -> list[list[float]]:
    """One page shows a kernel's fp32 beside its fp16, which figures of one type need not."""
    stretched = not one.dense or one.math not in _SHADES  # those are told by their colour
    wide, high = _STRETCH.get(one.math, (1.0, 1.0)) if stretched else (1.0, 1.0)
    points: Any = _SHAPES.get(marker)
    if points is None:
        drawn = MarkerStyle(marker)
        polygon = np.asarray(drawn.get_path().transformed(drawn.get_transform()).to_polygons()[0])
        points = [(float(x), -float(y)) for x, y in polygon[:-1]]  # y grows downwards in a browser
    return [[round(x * wide, 3) + 0.0, round(y * high, 3) + 0.0] for x, y in points]


def _luminance(colour: str) -> float:
    parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


THEME = {"ink": INK, "ground": LIGHT_GROUND, "dark_ink": DARK_INK, "dark_ground": DARK_GROUND}
"""The colours that looks are chosen against."""
