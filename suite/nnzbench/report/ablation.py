"""SparseRT's figure 8 redrawn: what unrolling, load balancing and tuning are each worth, one left out at a time."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from nnzbench.report import context, generic, style, tables
from nnzbench.report.frames import ResultSet, each, geometric_mean, percent
from nnzbench.report.pages import Page, policy_section
from nnzbench.report.series import Series, pick
from nnzbench.report.tables import GAP, markdown, number

COMPLETE = Series("sparsert_paper", "the paper's system, tuned", ("sparsert_paper",), "f32")
MEAN = "geometric mean"
LEFT_OUT = (
    (Series("sparsert_rolled", "unrolling", ("sparsert_rolled",), "f32"), "the paper: over 10× at best"),
    (Series("sparsert_unbalanced", "load balancing", ("sparsert_unbalanced",), "f32"), "the paper: comparable"),
    (Series("sparsert_fixed", "autotuning", ("sparsert_fixed",), "f32"), "the paper: around 2×"),
)


def gains(frame: pd.DataFrame, policy: str) -> pd.DataFrame:
    """Per problem and part left out: its time over that of the complete system, where both have one."""
    complete = pick(frame, COMPLETE)
    base = complete[complete["policy"] == policy].set_index("problem")["median_us"]
    parts = {}
    for series, _ in LEFT_OUT:
        rows = pick(frame, series)
        parts[series.label] = rows[rows["policy"] == policy].set_index("problem")["median_us"] / base
    return pd.DataFrame(parts).dropna(how="all")


def gain_rows(found: pd.DataFrame, policy: str, labels: dict[str, str]) -> pd.DataFrame:
    """The bars of one policy's figure, and their geometric means, as lines of `summary.csv`."""
    rows = []
    for series, _ in LEFT_OUT:
        words = {"figure": "8", "policy": policy, "series": f"{series.key} over {COMPLETE.key}"}
        bars = found[series.label].dropna()
        rows += [
            {**words, "problem": name, "label": labels[str(name)], "speedup": value} for name, value in bars.items()
        ]
        if len(bars):
            rows.append({**words, "problem": MEAN, "speedup": geometric_mean(bars), "count": len(bars)})
    return pd.DataFrame(rows)


def build(results: ResultSet) -> tuple[Page, pd.DataFrame]:
    """Draws one figure per policy and describes the page; the summary has its bars and the speed-ups over cuBLAS."""
    table = generic.tabulate(results)
    gpu = context.gpu_name(results.gpu, results.environment)
    names = {row.problem: f"{row.label}: {row.size}" for row in each(table.problems)}
    labels = {str(row.problem): str(row.label) for row in each(table.problems)}
    sections, missing, drawn = [], set(), [tables.drawn_rows(table).assign(figure="table")]
    for policy in context.policies(results.frame):
        found = gains(results.frame, policy).reindex(list(names)).dropna(how="all")
        missing |= set(names) - set(found.dropna().index)
        drawn.append(gain_rows(found, policy, labels))
        title = f"What each part of SparseRT is worth on {gpu}, {policy} policy"
        sections.append(
            policy_section(
                results.folder,
                "gains",
                policy,
                title,
                partial(_figure, found, names, title, policy),
                text=(
                    "Time without a part over time of the complete system (the paper's tilings, searched "
                    "exhaustively): 1× means that the part is worth nothing there."
                ),
                tables=(_table(found, names), *generic.per_problem(table, policy)),
            )
        )
    gaps = [
        f"Problem {names[name]} lacks the time of a part; the means of that part are without it."
        for name in names
        if name in missing
    ]
    return Page(
        title=f"SparseRT's ablation on {gpu}",
        intro=(
            f"Figure 8 of *SparseRT* (PACT 2020) at {percent(0.9)} zeros, on {len(names) - len(missing)} problems of "
            "its Table 1: unrolled code against the same tiling with the matrix as data, rows balanced between thread "
            "blocks or not, the best tiling or one fixed choice."
        ),
        sections=tuple(sections),
        gaps=tuple(gaps),
        problem_names=names,
    ), pd.concat([rows for rows in drawn if len(rows)], ignore_index=True)[["figure", *tables.POINT_COLUMNS]]


def _figure(found: pd.DataFrame, names: dict[str, str], title: str, policy: str) -> Figure:
    figure = Figure(figsize=(10.4, 4.3))
    axis = figure.add_axes((0.062, 0.3, 0.928, 0.52))
    axis.set_yscale("log", base=2)
    axis.grid(axis="y")
    axis.axhline(1, color=style.INK, lw=1.2)
    width = 0.26
    for place, (series, claim) in enumerate(LEFT_OUT):
        values = [*found[series.label], geometric_mean(found[series.label].dropna())]
        xs = [x + (place - 1) * width + (0.5 if x == len(found) else 0.0) for x in range(len(values))]
        heights = [value - 1 for value in values]
        colour = style.look(series.kernel).colour
        axis.bar(xs, heights, width * 0.92, bottom=1, color=colour, label=f"{series.label} ({claim})")
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylabel("gain (log)")
    labels = [*(names[name] for name in found.index), MEAN]
    axis.set_xticks([*range(len(found)), len(found) + 0.5], labels)
    for tick in axis.get_xticklabels():
        tick.set(rotation=38, ha="right", rotation_mode="anchor", fontsize=7.8)
    figure.text(0.012, 0.97, title, fontsize=12, fontweight="bold", va="top")
    caption = (
        "Time without the part over time of the complete system; fp32, TF32 off.\n"
        f"{context.sentence(context.policy_text(policy))}"
    )
    figure.text(0.012, 0.91, caption, fontsize=8.5, color=style.MUTED, va="top")
    figure.legend(loc="lower center", ncols=3, fontsize=8.5)
    return figure


def _table(found: pd.DataFrame, names: dict[str, str]) -> str:
    parts = [series.label for series, _ in LEFT_OUT]
    rows = [[names[str(name)], *(number(float(line[part])) for part in parts)] for name, line in found.iterrows()]
    means = [found[part].dropna() for part in parts]
    rows.append(["**geometric mean**", *(f"**{number(geometric_mean(m))}**" if len(m) else GAP for m in means)])
    return markdown(["problem", *parts], rows)
