"""The axes of Balanced Sparsity's figure 4: time against sparsity, what was measured above what was published."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from nnzbench.facts.results import percent
from nnzbench.report.data import context
from nnzbench.report.draw import style

LABELS = {
    "dense": "cuBLAS fp32",
    "dense_tf32": "cuBLAS TF32",
    "random": "cuSPARSE, random positions",
    "random_sputnik": "sputnik, random positions",
    "block": "cuSPARSE, 8×8 blocks",
    "balanced_paper": "balanced, the paper's mapping",
    "balanced": "balanced",
    "ideal": "ideal, o = 10 µs",
    "ideal_floor": "ideal, o as measured",
}
"""Names of the curves, in drawing order."""
_DRAWN = {"ideal": "ideal", "ideal_floor": "ideal"}
"""Names in the legend of those that are one curve there: each has its own panels."""
PAPER_LABELS = {
    "dense": "cuBLAS",
    "random": "cuSPARSE",
    "block": "8×8 blocks",
    "balanced": "balanced",
    "ideal": "ideal",
}

_LOOKS: dict[str, dict[str, Any]] = {
    "dense": {"color": style.INK, "lw": 2.6},
    "dense_tf32": {"color": "#b3bac2", "lw": 1.2},
    "random": {"color": style.ORANGE, "marker": "v", "ms": 5},
    "random_sputnik": {"color": style.BLUE, "marker": "o", "ms": 4.5},
    "block": {"color": style.SKY, "marker": "s", "ms": 4.5},
    "balanced_paper": {"color": style.PURPLE, "marker": "P", "ms": 5.5, "mfc": "white", "lw": 0.9},
    "balanced": {"color": style.PURPLE, "marker": "P", "ms": 6.5, "lw": 1.8},
    "ideal": {"color": style.GREEN, "ls": "--"},
    "ideal_floor": {"color": style.GREEN, "ls": "--"},
}
_TICKS = (0.5, 0.625, 0.75, 0.875, 0.96875)
_TIMES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


def draw(drawn: pd.DataFrame, policy: str, gpu: str) -> Figure:
    """Two columns (batch 1 and 8), two rows (this GPU and the paper's, each row on one scale)."""
    figure = Figure(figsize=(10.4, 8.2))
    for row, (shown, name) in enumerate(((policy, gpu), ("published", "as published, GPU not named"))):
        here = drawn[drawn["policy"] == shown]
        limits = (float(here["time_us"].min()) / 1.4, float(here["time_us"].max()) * 1.4) if len(here) else (1.0, 10.0)
        for column, batch in enumerate((1, 8)):
            axis = figure.add_axes((0.075 + 0.49 * column, 0.535 - 0.395 * row, 0.42, 0.315))
            # the ideal with the paper's overhead of a launch stands beside the paper's times alone
            named = (here["batch"] == batch) & ((here["series"] != "ideal") | (shown == "published"))
            _axis(axis, here[named], limits)
            axis.set_title(f"Batch {batch}: {name}", pad=4)
    present = [name for name in LABELS if (drawn.loc[drawn["policy"] == policy, "series"] == name).any()]
    lines = {str(line.get_label()): line for axis in figure.axes for line in reversed(axis.get_lines())}
    legend = {_DRAWN.get(name, LABELS[name]): lines[name] for name in present if name in lines}
    figure.text(
        0.012, 0.988, f"A 16384×8192 matrix against its sparsity on {gpu}, {policy} policy",
        fontsize=12, fontweight="bold", va="top",
    )  # fmt: skip
    caption = (
        f"Time of one product, fp32. {context.sentence(context.policy_text(policy))}\n"
        "Below: the paper's cuBLAS, cuSPARSE, 8×8 blocks (another library), balanced and ideal. The ideal's overhead "
        "is as measured above, 10 µs below."
    )
    figure.text(0.012, 0.958, caption, fontsize=8.5, color=style.MUTED, va="top")
    if legend:
        figure.legend(list(legend.values()), list(legend), loc="lower center", ncols=4, fontsize=8.5)
    return figure


def _axis(axis: Axes, here: pd.DataFrame, limits: tuple[float, float]) -> None:
    axis.set_yscale("log")
    axis.set_ylim(*limits)
    axis.set_xlim(0.48, 0.99)
    axis.grid()
    for name in LABELS:
        rows = here[here["series"] == name].sort_values("sparsity")
        if not rows.empty:
            axis.plot(rows["sparsity"], rows["time_us"], label=name, **{"lw": 1.2, **_LOOKS[name]})
    axis.set_xticks(_TICKS, [percent(level) for level in _TICKS])
    axis.yaxis.set_major_locator(FixedLocator([t for t in _TIMES if limits[0] <= t <= limits[1]]))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("zeros")
    axis.set_ylabel("time (µs, log)")
