"""Figures of GPUs side by side: a colour and marker per GPU, filled where measured, hollow where a paper printed it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from nnzbench.facts.results import each
from nnzbench.report.draw.canvas import Look, grid, scale
from nnzbench.report.draw.style import BAND, GPU_COLOURS, INK, MUTED
from nnzbench.site.generations import peaks
from nnzbench.site.generations.summary import LATER, GpuKey, Names

_MARKERS = "oDs^vP<X>hd"
ROW_IN, LEFT_IN = 0.3, 3.0


def gpu_colour(gpu: str) -> tuple[str, str]:
    """Colour and marker of a GPU: by its line in `datasets/gpus.csv`, from its name where it is not listed."""
    known = list(peaks.listed())
    at = known.index(gpu) if gpu in known else zlib.crc32(gpu.encode())
    return GPU_COLOURS[at % len(GPU_COLOURS)], _MARKERS[(at + at // len(GPU_COLOURS)) % len(_MARKERS)]


def _look(key: GpuKey) -> Look:
    return Look(*gpu_colour(key[0]), hollow=key[1] != "measured")


def speedup_figure(facts: pd.DataFrame, names: Names) -> Figure | None:
    """Sparse over dense on each GPU: a marker per group and GPU with its 95 % interval. Facts of one policy."""
    rows = facts[facts["fact"] == "speed-up"]
    looks = {names[key]: _look(key) for key in names if key in set(rows["gpu"])}
    groups = list(dict.fromkeys(rows["of"]))

    def draw(axis: Axes, _: Any, __: Any) -> None:
        _bands(axis, groups)
        for row in each(rows):
            look, y = looks[names[row.gpu]], groups.index(row.of)
            y += 0.2 * (0.5 - (row.gpu[1] == "measured")) * 2
            axis.plot([row.low, row.high], [y, y], color=look.colour, lw=1.6, alpha=0.6)
            axis.add_line(_at(look.line(), row.ratio, y))
        scale(axis, "ratio", "x", [*rows["low"], *rows["high"]])
        axis.set_xlabel("times as fast as the dense product of the same GPU (log)", fontsize=8.5)

    caption = (
        "Geometric means over common problems with 95 % intervals, hot L2: a paper's method, where none was published "
        "the fastest sparse kernel, over cuBLAS or cuDNN in the same arithmetic. Hollow: printed in a paper."
    )
    legend = {name: look.line() for name, look in looks.items()}
    return _figure("Speed-up of sparse over dense, by GPU", caption, groups, legend, draw) if groups else None


def gain_figure(facts: pd.DataFrame, names: Names) -> Figure | None:
    """What the dense and the sparse kernel gained from one GPU to the next, and would by data sheet. One policy."""
    rows = facts[facts["fact"].isin(LATER) & (facts["fact"] != "quotient")]
    timed = rows[rows["fact"] == "sparse"]
    keys = list(dict.fromkeys(zip(timed["of"], timed["older"], timed["gpu"], strict=True)))
    labels = [f"{of}: {_short(names[old])} → {_short(names[new])}" for of, old, new in keys]
    marks = {
        "dense": Look(INK, "s"),
        "sparse": Look("#D55E00", "o"),
        "dense sheet": Look(MUTED, "s", hollow=True),
        "sparse sheet": Look(MUTED, "o", hollow=True),
    }

    def draw(axis: Axes, _: Any, __: Any) -> None:
        _bands(axis, labels)
        for row in each(rows):
            if (key := (row.of, row.older, row.gpu)) in keys:
                y = keys.index(key) + (0.18 if row.fact.endswith("sheet") else -0.18)
                axis.add_line(_at(marks[row.fact].line(), row.ratio, y))
        scale(axis, "ratio", "x", rows["ratio"])
        axis.set_xlabel("older GPU's time over the newer one's (log)", fontsize=8.5)

    caption = (
        "Geometric means over common problems, hot L2. By data sheet: at the rate of the row's arithmetic or of device "
        "memory, whichever takes longer."
    )
    legend = {LATER[name]: one.line() for name, one in marks.items()}
    title = "What the dense and the sparse kernel gained from one GPU to the next"
    return _figure(title, caption, labels, legend, draw, 0.42) if labels else None


def share_figure(shares: pd.DataFrame, names: Names) -> Figure | None:
    """Shares of peak bandwidth and FLOP/s of groups that several GPUs know (of one GPU, all): sparse filled to dense.

    Dense and sparse of a GPU are joined. One policy.
    """
    several = shares.groupby("group")["gpu_key"].nunique() > 1
    chosen = shares[shares["group"].isin(several.index[several])] if several.any() else shares
    keys = [key for key in names if key in set(chosen["gpu_key"])]
    groups = list(dict.fromkeys(chosen["group"]))
    columns = {"of_bandwidth": "share of peak bandwidth (log)", "of_flops": "share of peak FLOP/s (log)"}

    def draw(axis: Axes, _: Any, column: Any) -> None:
        _bands(axis, groups)
        for key in keys:
            look = _look(key)
            mine = chosen[chosen["gpu_key"] == key].pivot(index="group", columns="role", values=column)
            for group, ends in mine.iterrows():
                y = groups.index(str(group)) + 0.15 * (1 if key[1] == "measured" else -1)
                axis.plot(list(ends), [y] * len(ends), color=look.colour, lw=1.2, alpha=0.7)
                if "dense" in ends:
                    axis.plot([ends["dense"]], [y], marker="|", ms=9, mew=2, color=look.colour)
                if "best" in ends:
                    axis.add_line(_at(look.line(), ends["best"], y))
        axis.set_xscale("log")
        ticks = [0.001, 0.01, 0.03, 0.1, 0.3, 1.0]
        axis.xaxis.set_major_locator(FixedLocator(ticks))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.axvline(1, color=INK, lw=1.0)
        axis.grid(axis="x")
        axis.set_xlabel(columns[column], fontsize=8.5)

    caption = (
        "Geometric means, hot L2, of problems that several GPUs know. Markers: the best sparse kernel (hollow: printed "
        "in a paper, over data sheets); bars: the dense product. Above 100 %: operands in L2, or a dense algorithm "
        "that multiplies less than it is counted for (Winograd)."
    )
    legend = {names[key]: _look(key).line() for key in keys}
    title = "Share of each GPU's peaks that sparse and dense kernels reach"
    return _figure(title, caption, groups, legend, draw, columns=list(columns)) if groups else None


def _figure(
    title: str,
    caption: str,
    labels: Sequence[str],
    legend: Mapping[str, Any],
    draw: Any,
    row_in: float = ROW_IN,
    columns: Sequence[Any] = ("hot",),
) -> Figure:
    left = max(LEFT_IN, 0.25 + 0.073 * max(map(len, labels)))
    return grid([None], columns, [row_in * len(labels) + 0.1], title, caption, dict(legend), draw, left, share="y")


def _short(name: str) -> str:
    """Without the paper, which the page names."""
    return name.partition(" (")[0]


def _at(line: Any, x: float, y: float) -> Any:
    line.set_data([x], [y])
    return line


def _bands(axis: Axes, names: Sequence[str]) -> None:
    for y in range(0, len(names), 2):
        axis.axhspan(y - 0.5, y + 0.5, color=BAND, lw=0, zorder=0)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_yticks(range(len(names)), list(names), fontsize=8.5)
