"""SparseRT's figures 4, 5 and 6 redrawn: rates and speed-ups by problem number, the published values beside them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pandas as pd
from matplotlib.figure import Figure

from nnzbench.papers.sparsert import findings, tables
from nnzbench.papers.sparsert.values import (
    CUBLAS,
    CUSPARSE,
    HEURISTIC,
    LEVELS,
    MEAN,
    MOBILENET,
    PAPER_GPU,
    SMALLER,
    SPARSERT,
    SPUTNIK,
    STATED,
    Compared,
    Measured,
    Values,
    labels_of,
    rates,
)
from nnzbench.facts.results import each, percent
from nnzbench.report.draw import grouped_bars, style
from nnzbench.report.draw.dots import PAPER_COLOUR, marker_of
from nnzbench.report.draw.grouped_bars import Bars, Panel, Range, light
from nnzbench.report.page_spec import SectionSpec, Shown, TableOf, View
from nnzbench.report.text.fastest import Lost

RATE, SPEEDUP = "TFLOP/s", "speed-up (log)"
COLOURS = {series: style.look(series.partition("-")[0]).colour for series in (SPARSERT, CUBLAS, CUSPARSE, SPUTNIK)}
"""The kernels' own, as on the page's first figure."""


def _show4(view: View[Compared]) -> Shown:
    here, values = view.data.here, Values(view.data.drawn, view.policy)
    caption = (
        "a: operations of the sparse product (2 per nonzero and column) over time, so that cuBLAS's multiplications"
        " by zero do not count.\nb: the same at two levels. c, d: speed-ups of sparsert_paper; its tiling, cuSPARSE's "
        "format and algorithm are the fastest per problem."
    )
    figure = _drawn(view, _figure4(here, values), caption)
    rows = _rows(view, (CUBLAS, CUSPARSE, SPARSERT))
    return Shown(
        figure,
        findings.figure4(here, values),
        [TableOf(text, rows) for text in tables.figure4(here, values)],
        lost=lost(here, view.policy),
        headline=findings.headline4(here, values),
        drawn=[rows],
    )


def _show5(view: View[Compared]) -> Shown:
    here, others, values = view.data.here, _others(view), Values(view.data.drawn, view.policy)
    caption = (
        "Speed-up of sparsert_paper over cuBLAS (left) and cuSPARSE (right), problems 1 to 11. Of cuSPARSE the paper "
        "prints geometric means only, that over these\nproblems at 95 %; of its V100 it prints no numbers."
    )
    figure = _drawn(view, _figure5(here, others, values), caption)
    headline = findings.headline5(here, values)
    found = findings.figure5(here, others, values)
    rows = _rows(view, (CUBLAS, CUSPARSE, SPARSERT), labels_of(here.table, LEVELS[1]))
    shown = [TableOf(text, rows) for text in tables.figure5(here, others, values)]
    return Shown(figure, found, shown, headline=headline, drawn=[rows])


def _show6(view: View[Compared]) -> Shown:
    here, values = view.data.here, Values(view.data.drawn, view.policy)
    caption = (
        f"{percent(LEVELS[0])} zeros. sputnik is this project's kernel of Sputnik's method with its fastest tiling,"
        " or with the one that Sputnik's rule chooses.\nThe paper prints no numbers; its section 5 states 2 to 3× "
        "on smaller matrices, taken here as problems 12 to 16, and comparable speed on larger ones."
    )
    figure = _drawn(view, _figure6(here, values), caption)
    headline = findings.headline6(here, values)
    rows = _rows(view, (SPARSERT, SPUTNIK, HEURISTIC), MOBILENET)
    rows = rows[rows["level"] == LEVELS[0]]
    shown = [TableOf(text, rows) for text in tables.figure6(here, values)]
    return Shown(figure, findings.figure6(here, values), shown, headline=headline, drawn=[rows])


def _rows(view: View[Compared], series: Sequence[str], labels: Sequence[str] = ()) -> pd.DataFrame:
    """This GPU's times of these series under the policy, of the problems with these numbers (all for none)."""
    points = view.data.here.table.points
    rows = points[(points["policy"] == view.policy) & points["series"].isin(series)]
    return rows[rows["label"].astype(str).isin(labels)] if labels else rows


def _drawn(view: View[Compared], panels: Sequence[Panel], caption: str) -> Figure:
    return grouped_bars.figure(panels, view.title, f"{caption}\nfp32, TF32 off. {view.policy_sentence}")


def _others(view: View[Compared]) -> list[Measured]:
    """Other GPUs that have times under the policy."""
    return [one for one in view.data.others if view.policy in set(one.table.points["policy"])]


def _title5(view: View[Compared]) -> str:
    others = len(_others(view))
    beside = f"{others + 1} GPUs and the paper's T4" if others else f"{view.gpu} and the paper's T4"
    return f"SparseRT on {beside}, {view.policy} policy"


def lost(here: Measured, policy: str) -> Iterator[Lost]:
    """The times that figures 4 to 6 lack."""
    for series, level in itertools.product((CUSPARSE, SPARSERT, SPUTNIK, HEURISTIC), LEVELS):
        labels = labels_of(here.table, level)
        if series in (SPUTNIK, HEURISTIC):
            labels = tuple(label for label in labels if label in MOBILENET)
        there = set(rates(here, policy, level, series)["label"])
        rows = tuple(f"problem {label}" for label in labels if label not in there)
        yield Lost(f"{tables.NAMES[series]} at {percent(level)} zeros", policy, rows, len(labels))


def _groups(here: Measured, labels: Sequence[str]) -> tuple[str, ...]:
    models = {str(row.label): str(row.model) for row in each(here.table.problems)}
    return tuple(models[label] for label in labels)


def _level_bars(
    here: Measured, values: Values, figure: str, labels: Sequence[str], column: str, over: str = ""
) -> tuple[Bars, ...]:
    """Both levels of sparsert_paper, with the published value of each bar for ratios."""
    out = []
    for level, colour in zip(LEVELS, (COLOURS[SPARSERT], light(COLOURS[SPARSERT])), strict=True):
        measured = values.of(figure, labels, column, gpu=here.gpu, level=level, series=SPARSERT, over=over)
        paper = values.of(figure, labels, column, gpu=PAPER_GPU, level=level, series="paper", over=over) if over else ()
        out.append(Bars(f"sparsert_paper at {percent(level)} zeros", measured, colour, printed=paper))
    return tuple(out)


def _figure4(here: Measured, values: Values) -> list[Panel]:
    labels = labels_of(here.table, LEVELS[0])
    groups, whole = _groups(here, labels), (*labels, MEAN)
    libraries = tuple(
        Bars(
            tables.NAMES[series] if series != SPARSERT else f"sparsert_paper at {percent(LEVELS[0])} zeros",
            values.of("4a", labels, "tflops", gpu=here.gpu, level=LEVELS[0], series=series),
            COLOURS[series],
        )
        for series in (CUBLAS, CUSPARSE, SPARSERT)
    )
    ticks = (*labels, "mean")
    ninety, both = percent(LEVELS[0]), " and ".join(percent(level) for level in LEVELS)
    b, c, d = (
        _level_bars(here, values, figure, rows, column, over)
        for figure, rows, column, over in (
            ("4b", labels, "tflops", ""),
            ("4c", whole, "speedup", CUBLAS),
            ("4d", whole, "speedup", CUSPARSE),
        )
    )
    return [
        Panel(f"a: useful TFLOP/s at {ninety} zeros", labels, groups, libraries, RATE, ratio=False),
        Panel(f"b: TFLOP/s of sparsert_paper at {both}", labels, groups, b, RATE, ratio=False),
        Panel("c: speed-up over cuBLAS", ticks, groups, c, SPEEDUP, ratio=True),
        Panel("d: speed-up over cuSPARSE", ticks, groups, d, SPEEDUP, ratio=True),
    ]


def _figure5(here: Measured, others: Sequence[Measured], values: Values) -> list[Panel]:
    labels = labels_of(here.table, LEVELS[1])
    groups, whole = _groups(here, labels), (*labels, MEAN)
    gpus = [(here.gpu, here.name, COLOURS[SPARSERT])]
    gpus += [
        (one.gpu, one.name, colour) for one, colour in zip(others, itertools.cycle(style.GPU_COLOURS), strict=False)
    ]
    panels = []
    for figure, over in (("5a", CUBLAS), ("5b", CUSPARSE)):
        bars = []
        for gpu, name, colour in gpus:
            for level, shade in zip(LEVELS, (colour, light(colour)), strict=True):
                found = values.of(figure, whole, "speedup", gpu=gpu, level=level, series=SPARSERT, over=over)
                bars.append(Bars(f"{name}, {percent(level)}", found, shade))
        for level, shade in zip(LEVELS, (PAPER_COLOUR, light(PAPER_COLOUR)), strict=True):
            found = values.of(figure, whole, "speedup", gpu=PAPER_GPU, level=level, series="paper", over=over)
            bars.append(Bars(f"SparseRT paper, T4, {percent(level)}", found, shade, hollow=True))
        title = f"Speed-up over {tables.NAMES[over]}"
        panels.append(Panel(title, (*labels, "mean"), groups, tuple(bars), SPEEDUP, ratio=True))
    return panels


def _figure6(here: Measured, values: Values) -> list[Panel]:
    groups = _groups(here, MOBILENET)
    words = {SPARSERT: "sparsert_paper", SPUTNIK: "sputnik, fastest tiling", HEURISTIC: "sputnik, its rule's tiling"}
    tint = light(COLOURS[SPUTNIK])  # of the colour that both papers' kernels have, told apart by their markers
    colours = {SPARSERT: COLOURS[SPARSERT], SPUTNIK: tint, HEURISTIC: light(tint)}
    markers = {
        SPARSERT: marker_of("sparsert_paper"),
        SPUTNIK: marker_of("sputnik"),
        HEURISTIC: marker_of("sputnik", hollow=True),
    }
    speeds = tuple(
        Bars(
            words[series],
            values.of("6a", MOBILENET, "tflops", gpu=here.gpu, level=LEVELS[0], series=series),
            colours[series],
            marker=markers[series],
        )
        for series in (SPARSERT, SPUTNIK, HEURISTIC)
    )
    whole = (*MOBILENET, MEAN)
    gains = tuple(
        Bars(
            f"over {words[over]}",
            values.of("6b", whole, "speedup", gpu=here.gpu, level=LEVELS[0], series=SPARSERT, over=over),
            colours[over],
            marker=markers[over],
        )
        for over in (SPUTNIK, HEURISTIC)
    )
    stated = Range("SparseRT paper's words, T4 and V100", 0, len(SMALLER) - 1, *STATED)
    return [
        Panel(f"TFLOP/s at {percent(LEVELS[0])} zeros", MOBILENET, groups, speeds, RATE, ratio=False),
        Panel("Speed-up over Sputnik", (*MOBILENET, "mean"), groups, gains, SPEEDUP, ratio=True, stated=(stated,)),
    ]


SECTIONS = (
    SectionSpec("figure4", "SparseRT and NVIDIA's libraries", _show4, heading="Figure 4", group=0),
    SectionSpec("figure5", _title5, _show5, heading="Figure 5", group=1),
    SectionSpec("figure6", "SparseRT and Sputnik on MobileNet V1's problems", _show6, heading="Figure 6"),
)
