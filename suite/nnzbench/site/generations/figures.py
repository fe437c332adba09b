"""Figures of GPUs side by side: a colour and marker per GPU, filled where measured, hollow where a paper printed it."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from nnzbench.facts.results import each, geometric_mean
from nnzbench.report.data.series import kernel_label
from nnzbench.report.draw.style import BAND, GPU_COLOURS, INK, MUTED, look
from nnzbench.report.text.marks import MARK, WORDS
from nnzbench.site.generations import peaks

_MARKERS = "oDs^vP<X>hd"
HEAD_IN, ROW_IN, FOOT_IN = 0.95, 0.34, 1.05
"""Inches of title and caption, of one row of a chart, of axis and legend."""
SHARE_ROWS = 20
"""Groups of problems that the figure of shares has room for; the table has all."""

ABOVE = "Above 100 %: operands in L2, or a dense algorithm that multiplies less than it is counted for (Winograd)."

GpuKey = tuple[str, str]
"""Slug, and `measured` or `published`."""


def gpu_colour(gpu: str) -> tuple[str, str]:
    """Colour and marker of a GPU: by its line in `datasets/gpus.csv`, from its name where it is not listed."""
    known = list(peaks.listed())
    at = known.index(gpu) if gpu in known else zlib.crc32(gpu.encode())
    return GPU_COLOURS[at % len(GPU_COLOURS)], _MARKERS[at % len(_MARKERS)]


def _line(gpu: GpuKey, size: float = 7) -> Line2D:
    colour, marker = gpu_colour(gpu[0])
    face = colour if gpu[1] == "measured" else "white"
    return Line2D([], [], ls="", marker=marker, ms=size, mfc=face, mec=colour, mew=1.3)


def speedup_figure(points: pd.DataFrame, names: Mapping[GpuKey, str], title: str, caption: str) -> Figure:
    """Per group of problems and GPU: each speed-up as a dot, the geometric mean as a large marker. One policy."""
    best = points[points["compared"] & points["alike"]]
    groups = list(dict.fromkeys(best["group"]))
    keys = _present(best, names)
    labels = _marked(groups, best.loc[best["speedup_untuned"], "group"])
    text = f"{caption}\nSmall dots are problems, large markers their geometric mean."
    figure, axis = _rows(labels, title, text + _meaning(labels))
    step = 0.72 / max(len(keys), 1)
    for place, key in enumerate(keys):
        colour, _ = gpu_colour(key[0])
        for y, group in enumerate(groups):
            values = _of(best, key)[lambda rows, group=group: rows["group"] == group]["speedup"].dropna()
            if values.empty:
                continue
            at = y - 0.36 + step * (place + 0.5)
            axis.plot(list(values), [at] * len(values), ls="", marker="o", ms=2.6, mfc=colour, mec="none", alpha=0.45)
            line = _line(key)
            line.set_data([geometric_mean(values)], [at])
            axis.add_line(line)
    axis.axvline(1, color=INK, lw=1.2)
    _powers(axis, list(best["speedup"].dropna()), "speed-up over the dense product on the same GPU (log)")
    _legend(figure, [(_line(key), names[key]) for key in keys])
    return figure


def gain_figure(
    gains: pd.DataFrame, points: pd.DataFrame, names: Mapping[GpuKey, str], title: str, caption: str
) -> Figure:
    """What the dense and the sparse kernel gained from one GPU to the next, beside what either would by data sheet.

    That is the table's yardstick: of the row's own arithmetic, or of device memory, whichever takes longer.
    """
    rows = gains[gains["sparse_gain"].notna()].reset_index(drop=True)
    older = [names[r.gpu_from, r.kind_from].partition(" (")[0] for r in each(rows)]  # the page names the paper
    newer = [names[r.gpu_to, "measured"] for r in each(rows)]
    cut = rows.loc[(rows[["untuned_dense", "untuned_sparse"]] > 0).any(axis=1), "group"]
    first = _marked(rows["group"], cut)
    labels = [f"{group}\n{old} → {new}" for group, old, new in zip(first, older, newer, strict=True)]
    figure, axis = _rows(labels, title, caption + _meaning(first), row_in=0.55)
    values = []
    kernels = list(dict.fromkeys(_kernel(points, row) for row in each(rows)))
    for y, row in enumerate(each(rows)):
        kernel = look(_kernel(points, row))
        marks = [
            (row.dense_gain, y, "|", INK, 16, 2.4),
            (row.sparse_gain, y, kernel.marker, kernel.colour, 7, 0.8),
            (row.expected_dense, y - 0.2, "$D$", MUTED, 7, 0.4),
            (row.expected_sparse, y + 0.2, "$S$", MUTED, 7, 0.4),
        ]
        for value, height, marker, colour, size, width in marks:
            if not math.isnan(value):
                values.append(value)
                axis.plot([value], [height], ls="", marker=marker, ms=size, mfc=colour, mec=colour, mew=width)
    axis.axvline(1, color=INK, lw=1.0)
    _powers(axis, values, "time on the older GPU over time on the newer one (log)")
    handles = [
        (Line2D([], [], ls="", marker="|", ms=12, mec=INK, mew=2.4), "dense baseline"),
        *((_kernel_mark(kernel), f"sparse: {kernel_label(kernel)}") for kernel in kernels),
        *(
            (Line2D([], [], ls="", marker=f"${kind[0].upper()}$", ms=7, mfc=MUTED, mec=MUTED), f"{kind} by data sheet")
            for kind in ("dense", "sparse")
        ),
    ]
    _legend(figure, handles)
    return figure


def share_figure(shares: pd.DataFrame, names: Mapping[GpuKey, str], title: str, caption: str) -> Figure:
    """Share of peak bandwidth (left) and of peak FLOP/s (right) per group and GPU: sparse large, dense small."""
    groups = share_rows(shares)
    more = shares["group"].nunique() - len(groups)
    shares = shares[shares["group"].isin(groups)]
    keys = _present(shares, names)
    labels = _marked(groups, shares.loc[shares["untuned"] > 0, "group"])
    height = HEAD_IN + ROW_IN * len(groups) + FOOT_IN
    figure = Figure(figsize=(10.4, height))
    for side, (column, label) in enumerate(
        (("share_of_bandwidth", "share of peak bandwidth (log)"), ("share_of_flops", "share of peak FLOP/s (log)"))
    ):
        axis = figure.add_axes((0.235 + 0.385 * side, (FOOT_IN - 0.1) / height, 0.36, (ROW_IN * len(groups)) / height))
        _bands(axis, labels, labels=side == 0)
        for key in keys:
            for role, size in (("dense", 3.6), ("best", 7.0)):
                rows = _of(shares, key)
                rows = rows[(rows["role"] == role) & rows[column].notna()]
                line = _line(key, size)
                line.set_data(list(rows[column]), [groups.index(group) for group in rows["group"]])
                axis.add_line(line)
        _percents(axis, list(shares[column].dropna()), label)
    rest = f" {more} more groups are in the table." if more else ""
    marks = "Large: best sparse kernel. Small: dense baseline. Geometric means over problems."
    _head(figure, title, f"{caption}\n{marks}{rest}{_meaning(labels)}\n{ABOVE}")
    _legend(figure, [(_line(key), names[key]) for key in keys])
    return figure


def share_rows(shares: pd.DataFrame) -> list[str]:
    """Groups to draw, in their order: those known of several GPUs, then those whose sparse kernel is nearest a peak."""
    sparse = shares[shares["role"] == "best"]
    gpus = shares.groupby("group")["gpu"].nunique()
    nearest = sparse.set_index("group")[["share_of_bandwidth", "share_of_flops"]].max(axis=1).groupby(level=0).max()
    order = sorted(gpus.index, key=lambda group: (gpus[group] == 1, -float(nearest.get(group, 0.0))))
    kept = set(order[:SHARE_ROWS])
    return [group for group in dict.fromkeys(shares["group"]) if group in kept]


def _marked(groups: Iterable[str], cut: Collection[str]) -> list[str]:
    """The groups' names, with the mark where a run did not tune what is drawn."""
    there = set(cut)
    return [group + MARK * (group in there) for group in groups]


def _meaning(labels: Iterable[str]) -> str:
    """What the mark means, where one has it."""
    return f" {MARK} {WORDS}." if any(label.endswith(MARK) for label in labels) else ""


def _kernel_mark(kernel: str) -> Line2D:
    colour, marker = look(kernel)
    return Line2D([], [], ls="", marker=marker, ms=7, mfc=colour, mec=colour)


def _kernel(points: pd.DataFrame, row: Any) -> str:
    """The like kernel that is the fastest most often in the group on the newer GPU."""
    alike = points["alike"] & points["compared"]
    rows = points[(points["group"] == row.group) & (points["gpu"] == row.gpu_to) & alike]
    return str(rows["kernel"].mode().iloc[0])


def _of(frame: pd.DataFrame, key: GpuKey) -> pd.DataFrame:
    return frame[(frame["gpu"] == key[0]) & (frame["kind"] == key[1])]


def _present(frame: pd.DataFrame, names: Mapping[GpuKey, str]) -> list[GpuKey]:
    have = set(zip(frame["gpu"], frame["kind"], strict=True))
    return [key for key in names if key in have]


def _rows(labels: Sequence[str], title: str, caption: str, row_in: float = 0.5) -> tuple[Figure, Axes]:
    height = HEAD_IN + row_in * len(labels) + FOOT_IN
    figure = Figure(figsize=(10.4, height))
    axis = figure.add_axes((0.36, (FOOT_IN - 0.1) / height, 0.62, row_in * len(labels) / height))
    _bands(axis, labels, labels=True)
    _head(figure, title, caption)
    return figure, axis


def _head(figure: Figure, title: str, caption: str) -> None:
    height = figure.get_size_inches()[1]
    figure.text(0.012, 1 - 0.12 / height, title, fontsize=12, fontweight="bold", va="top")
    figure.text(0.012, 1 - 0.38 / height, caption, fontsize=8.5, color=MUTED, va="top")


def _bands(axis: Axes, names: Sequence[str], labels: bool) -> None:
    for y in range(0, len(names), 2):
        axis.axhspan(y - 0.5, y + 0.5, color=BAND, lw=0, zorder=0)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_yticks(range(len(names)), list(names) if labels else [""] * len(names), fontsize=8.5)
    axis.tick_params(axis="y", length=0)


def _powers(axis: Axes, values: Sequence[float], label: str) -> None:
    """A logarithmic axis with a tick at each power of two."""
    low, high = min([*values, 0.8]) / 1.25, max([*values, 2.0]) * 1.25
    axis.set_xscale("log", base=2)
    axis.set_xlim(low, high)
    ticks = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    axis.xaxis.set_major_locator(FixedLocator([2.0**p for p in ticks]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.grid(axis="x")
    axis.set_xlabel(label)


def _percents(axis: Axes, values: Sequence[float], label: str) -> None:
    low, high = min([*values, 0.05]) / 1.4, max([*values, 1.0]) * 1.4
    axis.set_xscale("log")
    axis.set_xlim(low, high)
    ticks = [t for t in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0) if low <= t <= high]
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.axvline(1, color=INK, lw=1.0)
    axis.grid(axis="x")
    axis.set_xlabel(label)


def _legend(figure: Figure, entries: Sequence[tuple[Line2D, str]]) -> None:
    handles = [handle for handle, _ in entries]
    columns = 3 if len(handles) < 7 else 4  # there is room for two lines
    figure.legend(handles, [text for _, text in entries], loc="lower center", ncols=columns, fontsize=8.5)
