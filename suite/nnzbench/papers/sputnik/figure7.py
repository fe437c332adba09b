"""Sputnik's figure 7 redrawn: throughput as rows grow uneven, with and without the row swizzle."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nnzbench.papers.sputnik import collection, leads
from nnzbench.report.data import published
from nnzbench.report.data.frames import ResultSet, each
from nnzbench.report.data.series import Series, pick
from nnzbench.report.draw import layout, style
from nnzbench.report.page_spec import PageSpec, SectionSpec, Shown, View
from nnzbench.report.text.tables import markdown, number

CURVES = (
    Series("standard", "sputnik, standard row order", ("sputnik_ablation",), variants="no_load_balancing"),
    Series("row_swizzle", "sputnik, row swizzle", ("sputnik_ablation",), variants="complete"),
    Series("sputnik", "sputnik, best tile", ("sputnik",)),
    Series("row_stream", "row_stream", ("row_stream",)),
    Series("ring", "ring", ("ring",)),
)
"""Orders of rows by the paper's names for them, then kernels."""
LOOKS = {"standard": (style.VERMILLION, "H"), "row_swizzle": (style.BLUE, "o")}
COLUMNS = ("policy", "gpu", "curve", "variant", "cov", "median_us", "gflops", "percent")


def throughputs(results: ResultSet) -> pd.DataFrame:
    """Per policy, curve and coefficient of variation of row lengths: throughput as a percentage of that at CoV 0.

    Every curve is its own 100 %; `percent` is NaN where rows of equal length were not timed. Then the paper's numbers.
    """
    frame = results.frame[results.frame["source"].str.startswith("cov:")]
    frame = frame.assign(cov=[float(source.split(":")[1]) for source in frame["source"]])
    parts = []
    for curve in CURVES:
        best = pick(frame, curve, by=("policy", "cov"))
        even = best["policy"].map(best[best["cov"] == 0].set_index("policy")["gflops"]).astype(float)
        parts.append(best.assign(curve=curve.key, percent=100 * best["gflops"] / even))
    found = pd.concat(parts).assign(gpu=results.gpu)
    found["place"] = found["curve"].map({curve.key: place for place, curve in enumerate(CURVES)})
    found = found.sort_values(["policy", "place", "cov"], kind="stable")
    printed = _printed()
    paper = printed.assign(policy="published", curve=printed["row_order"], percent=printed["percent"])
    return pd.concat([found.reindex(columns=list(COLUMNS)), paper.reindex(columns=list(COLUMNS))], ignore_index=True)


def _printed() -> pd.DataFrame:
    columns = ("gpu", "row_order", "percent_of_balanced_throughput")
    frame = published.read("sputnik_figure7_load_imbalance", columns)
    return frame.rename(columns={"percent_of_balanced_throughput": "percent"})


def networks_cov() -> float:
    """Mean CoV of row lengths over Sputnik's collection: the figure's line of neural networks."""
    return next(s.mean for s in collection.spreads() if (s.group, s.name) == ("all", "row_cov"))


def _show(view: View[pd.DataFrame]) -> Shown:
    here = view.data[view.data["policy"] == view.policy]
    table = f"Percent of the throughput with rows of equal length, {view.gpu}:\n\n{_table(here)}"
    figure = _figure(here, view.title)
    return Shown(figure, _finding(here), (table,), _gaps(here, view.policy), headline=_headline(here))


def _headline(rows: pd.DataFrame) -> str:
    """Title of the figure: what each order of rows keeps where they are most uneven; empty where one is not known."""
    known = rows[rows["percent"].notna()]
    kept = {row.curve: row.percent for row in each(known[known["cov"] == known["cov"].max()])}
    if not {"row_swizzle", "standard"} <= set(kept):
        return ""
    return (
        f"At a CoV of {known['cov'].max():g} the row swizzle keeps {kept['row_swizzle']:.0f} % of the throughput, the "
        f"standard row order {kept['standard']:.0f} %"
    )


def _intro(view: View[pd.DataFrame]) -> str:
    row = view.frame.iloc[0]
    return (
        f"One product ({row['m']} × {row['k']} × {row['n']}, M × K × N, 75 % zeros, fp32) with rows from equal to "
        "very uneven lengths: figure 7 of *Sparse GPU Kernels for Deep Learning* (SC 2020). The coefficient of "
        "variation (CoV) is the standard deviation of row lengths over their mean, as asked of the generator; 1.73 "
        "is the largest possible here. The swizzle starts long rows first."
    )


def _gaps(here: pd.DataFrame, policy: str) -> Iterator[str]:
    for curve in CURVES:
        mine = here[here["curve"] == curve.key]
        if mine.empty:
            yield f"{curve.label}: no time ({policy})."
        elif mine["percent"].isna().all():
            yield f"{curve.label}: no time ({policy}) with rows of equal length, so it is not drawn."


def _finding(rows: pd.DataFrame) -> str:
    printed = {row.row_order: row.percent for row in each(_printed())}
    sentences = []
    for curve in CURVES:
        mine = rows[(rows["curve"] == curve.key) & rows["percent"].notna()]
        if curve.key in printed and len(mine):
            last = mine.iloc[-1]
            sentences.append(
                f"At a CoV of {last['cov']:g} the {curve.label.partition(', ')[2]} keeps {last['percent']:.1f} % of "
                f"the throughput with equal rows; the paper, on a V100 at the end of its axis, "
                f"{printed[curve.key]:g} %."
            )
    return " ".join(sentences)


def _table(rows: pd.DataFrame) -> str:
    shown = [curve for curve in CURVES if (rows["curve"] == curve.key).any()]
    cells = {(row.curve, row.cov): row for row in each(rows)}
    out = []
    for cov in sorted(set(rows["cov"])):
        line = [f"{cov:g}"]
        for curve in shown:
            cell = cells.get((curve.key, cov))
            text = "–" if cell is None else f"{number(cell.percent, 1)} ({number(cell.median_us, 1)} µs)"
            line.append(text)
        out.append(line)
    paper = {row.row_order: f"{row.percent:g} (the paper, {row.gpu})" for row in each(_printed())}
    out.append(["most uneven", *(paper.get(curve.key, "–") for curve in shown)])
    return markdown(["CoV", *(curve.label for curve in shown)], out)


def _figure(rows: pd.DataFrame, title: str) -> Figure:
    caption = "100 % is each curve's own throughput with rows of equal length; 8192×2048×128, 75 % zeros, fp32."
    figure = layout.headed(4.6, title, caption)
    axis = figure.add_axes((0.075, 0.27, 0.91, 0.6))
    axis.grid(axis="y")
    handles = []
    for curve in CURVES:
        mine = rows[(rows["curve"] == curve.key) & rows["percent"].notna()]
        if mine.empty:
            continue
        colour, marker = LOOKS.get(curve.key) or style.look(curve.kernel)
        line = Line2D(mine["cov"], mine["percent"], color=colour, marker=marker, lw=1.4, label=curve.label)
        # the paper's tile hollow, beside the same kernel's best
        hollow = curve.key == "row_swizzle"
        line.set(markerfacecolor="white" if hollow else colour, markeredgecolor=colour if hollow else "white")
        handles.append(axis.add_line(line))
    for row in each(_printed()):
        dashes = ":" if row.row_order == "standard" else "--"
        label = f"the paper, {row.gpu}, {row.row_order.replace('_', ' ')} at the end of its axis: {row.percent:g} %"
        handles.append(axis.axhline(row.percent, color="#8250df", ls=dashes, lw=1.1, label=label))
    mean = networks_cov()
    label = f"mean CoV of pruned networks' matrices: {mean:.2f}"
    handles.append(axis.axvline(mean, color="#b3bac2", lw=2, zorder=1, label=label))
    axis.autoscale_view()
    axis.set_ylim(0, max(110.0, 1.05 * rows["percent"].max()) if rows["percent"].notna().any() else 110.0)
    axis.set_xlabel("coefficient of variation of row lengths")
    axis.set_ylabel("% of throughput with equal rows")
    layout.legend_below(figure, handles, [str(handle.get_label()) for handle in handles], columns=3)
    return figure


PAGE = PageSpec(
    lead=leads.FIGURE7,
    title="Sputnik figure 7",
    intro=_intro,
    data=throughputs,
    sections=(SectionSpec("imbalance", "Throughput by imbalance of rows", _show),),
    series=lambda view: CURVES,
)
