"""Balanced Sparsity's figure 1 redrawn: what a pattern costs in perplexity against the time of its product.

The paper's figure prints no numbers; its table 4 has the perplexities of the same model at three sparsities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from nnzbench.facts.results import ResultSet, each, percent
from nnzbench.kernels.roles import Role
from nnzbench.papers.balanced import leads
from nnzbench.report.data import context, published
from nnzbench.report.data.series import Series, pick_under
from nnzbench.report.draw import dots, layout, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, View
from nnzbench.report.text.tables import GAP, markdown, number

LEVELS = (0.6, 0.7, 0.8)
RANGE = 100
"""The balance range of the paper's table that is nearest to the recorded 96 columns."""
COLUMNS = ("policy", "series", "sparsity", "problem", "kernel", "variant", "time_us", "dense_us", "perplexity")


@dataclass(frozen=True)
class Way:
    """One curve: a kernel on one kind of pattern, and the line of the paper's table with its perplexities."""

    series: Series
    start: str
    """Of the problem's name."""
    pattern: str
    """Of the paper's table; empty where it prints no perplexity."""
    size: int
    marker: dots.Marker

    @property
    def key(self) -> str:
        return self.series.key

    @property
    def label(self) -> str:
        return self.series.label


def _balanced(key: str, label: str, role: Role, hollow: bool) -> Way:
    series = Series(key, label, ("balanced",), roles=frozenset({role}))
    return Way(series, "balanced_", "balanced", RANGE, dots.marker_of("balanced", hollow=hollow))


def _blocks(size: int, colour: str) -> Way:
    series = Series(f"block{size}", f"{size}×{size} blocks, cuSPARSE", ("cusparse",))
    return Way(series, f"block{size}_", "block", size, dots.Marker(colour, "s"))


DENSE = Series("dense", "cuBLAS fp32", ("cublas",))
WAYS = (
    _balanced("balanced_paper", "balanced, the paper's mapping", "paper", hollow=True),
    _balanced("balanced", "balanced", "own", hollow=False),
    _blocks(4, style.GREEN),
    _blocks(8, style.SKY),
    _blocks(16, style.BLUE),
    Way(Series("random", "random, cuSPARSE", ("cusparse",)), "random_", "", 0, dots.marker_of("cusparse")),
)


def collect(results: ResultSet) -> pd.DataFrame:
    """One row per policy, way and sparsity with its time, the dense product's time and the published perplexity."""
    printed = published.read("balanced_table4_perplexity", ("pattern", "size", "sparsity", "perplexity"))
    known = {(row.pattern, row.size, row.sparsity): row.perplexity for row in each(printed)}
    rows = []
    for policy in context.policies(results.frame):
        dense = pick_under(results.frame, policy, DENSE)["median_us"]
        for way in WAYS:
            found = pick_under(results.frame, policy, way.series)
            for row in each(found[[name.startswith(way.start) for name in found.index]].reset_index()):
                level = min(LEVELS, key=lambda level: abs(level - row.sparsity))
                rows.append(
                    {
                        "policy": policy,
                        "series": way.key,
                        "sparsity": level,
                        "problem": row.problem,
                        "kernel": row.kernel,
                        "variant": row.variant,
                        "time_us": row.median_us,
                        "dense_us": float(dense.median()) if len(dense) else math.nan,
                        "perplexity": known.get((way.pattern, way.size, level), math.nan),
                    }
                )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _show(view: View[pd.DataFrame]) -> Shown | None:
    here = view.data[view.data["policy"] == view.policy]
    return Shown(_figure(here, view), _finding(here), (_table(here),)) if len(here) else None


def _finding(rows: pd.DataFrame) -> str:
    best = {way: rows[(rows["series"] == way) & (rows["sparsity"] == 0.8)] for way in ("balanced_paper", "block8")}
    if any(found.empty for found in best.values()):
        return ""
    balanced, block = (found.iloc[0] for found in best.values())
    return (
        f"At 80 % zeros the paper's balanced kernel takes {balanced['time_us']:.1f} µs at a perplexity of "
        f"{balanced['perplexity']}, 8×8 blocks in cuSPARSE {block['time_us']:.1f} µs at {block['perplexity']}; the "
        f"dense product takes {balanced['dense_us']:.1f} µs."
    )


def _figure(rows: pd.DataFrame, view: View[pd.DataFrame]) -> Figure:
    caption = (
        f"{view.policy_sentence}\nPerplexity on PTB is the paper's (table 4, its own training); lower is better. "
        "Points of a curve: 60, 70 and 80 % zeros."
    )
    figure = layout.headed(4.8, view.title, caption)
    axis = figure.add_axes((0.075, 0.24, 0.905, 0.575))
    handles = []
    for way in WAYS:
        mine = rows[(rows["series"] == way.key) & rows["perplexity"].notna()].sort_values("sparsity")
        if mine.empty:
            continue
        line = way.marker.line()
        line.set(data=(mine["time_us"], mine["perplexity"]), ls="-", lw=1.0, color=way.marker.colour, label=way.label)
        handles.append(axis.add_line(line))
    axis.autoscale_view()
    dense = rows["dense_us"].dropna()
    if len(dense):
        handles.append(axis.axvline(float(dense.iloc[0]), color=style.INK, lw=1.4, label="dense, cuBLAS fp32"))
    axis.margins(0.06)
    axis.set_xlim(left=0)
    axis.grid()
    axis.set_xlabel("time of one gate matrix (µs)")
    axis.set_ylabel("perplexity")
    layout.legend_below(figure, handles, [str(handle.get_label()) for handle in handles], columns=3)
    return figure


def _table(rows: pd.DataFrame) -> str:
    cells = {(row.series, row.sparsity): row for row in each(rows)}
    out = []
    for way in WAYS:
        line = [way.label]
        for level in LEVELS:
            row = cells.get((way.key, level))
            line += [number(row.time_us, 1), number(row.perplexity, 1)] if row is not None else [GAP, GAP]
        out.append(line)
    header = [f"{percent(level)}, {what}" for level in LEVELS for what in ("µs", "perplexity")]
    return markdown(["", *header], out)


def _gaps(view: View[pd.DataFrame]) -> Iterator[str]:
    yield "The paper's figure prints neither times nor perplexities, and vector sparsity has no kernel: not drawn."
    yield "The perplexity with random zeros is not printed; by the paper's words it is nearly that of balanced ones."
    for policy in view.policies:
        here = view.data[view.data["policy"] == policy]
        have = {(row.series, row.sparsity) for row in each(here)}
        lost = [f"{way.label} at {percent(level)}" for way in WAYS for level in LEVELS if (way.key, level) not in have]
        if lost:
            yield f"No checked time ({policy}) of {', '.join(lost)}."


PAGE = PageSpec(
    lead=leads.FIGURE1,
    title="Balanced Sparsity figure 1",
    intro=(
        "What a pattern of zeros costs and gains on the LSTM language model of figure 1 of *Balanced Sparsity for "
        "Efficient DNN Inference on GPU* (AAAI 2019): perplexity as the paper's table 4 prints it, against the time of "
        "one gate matrix (6000 × 3000, padded to 3072) at batch 1 here. The library of block-sparse products that the "
        "paper used is not part of this suite; cuSPARSE on the same blocks stands in."
    ),
    data=collect,
    sections=(SectionSpec("tradeoff", "Perplexity against time by pattern", _show),),
    gaps=_gaps,
    series=lambda view: [DENSE, *(way.series for way in WAYS)],
)
