"""Sputnik's table I: speed-ups over cuSPARSE and cuBLAS over the collection, in all and by class of problem."""

from __future__ import annotations

import pandas as pd

from nnzbench.papers.sputnik.speedups import KINDS, peak, summary, times
from nnzbench.report.data import published
from nnzbench.facts.results import ResultSet, each
from nnzbench.report.text.marks import MARK, cuts
from nnzbench.report.text.tables import GAP, markdown, number

NAMES = {"rn50": "ResNet-50", "transformer": "Transformer"}


def classes(results: ResultSet, found: pd.DataFrame, policy: str) -> pd.DataFrame:
    """Table I by kind, model, batch and group of sparsity: the best kernel over each rival, and peak throughput.

    `mark` is that of a ratio of kernels which were not tuned on all problems of its class.
    """
    out = []
    for kind in KINDS:
        rows = kind.rows(results.frame)
        rows = rows[rows["policy"] == policy]
        own = times(rows, kind.own[0])
        best = found[(found["kind"] == kind.key) & (found["policy"] == policy) & (found["series"] == "best")]
        for rival in (kind.cusparse, *kind.dense):
            gains = (times(rows, rival) / own).dropna()
            for (model, batch, zeros), group in best.groupby(["model", "batch", "zeros"], sort=True):
                here = gains[gains.index.isin(group["problem"])]
                counted = rows[rows["problem"].isin(here.index)]
                out.append(
                    {
                        "row": "class",
                        "kind": kind.key,
                        "policy": policy,
                        "series": "best",
                        "model": model,
                        "batch": batch,
                        "zeros": zeros,
                        "rival": rival.key,
                        **summary(here),
                        "peak_tflops": group["gflops"].max() / 1e3,
                        "mark": MARK if cuts(counted, kind.own[0], rival) else "",
                    }
                )
    return pd.DataFrame(out)


def all_problems(found: pd.DataFrame, stats: list[pd.DataFrame], frame: pd.DataFrame, gpu: str) -> str:
    """Markdown: the paper's three lines and the share of problems won, ours and the paper's side by side.

    `frame` has the records under the policy: a column of ratios of kernels that were not tuned has the mark.
    """
    columns = ("kernel", "precision", "geomean_speedup", "peak_speedup", "peak_tflops", "percent_faster")
    printed = published.read("sputnik_table1_dataset", columns)
    paper = {f"{row.kernel}_{row.precision}": row for row in each(printed)}
    lines: list[list[str]] = [[name] for name in ("geometric mean", "peak", "problems won", "peak TFLOP/s")]
    header = [f"over cuSPARSE, {gpu}"]
    for kind, one in zip(KINDS, stats, strict=True):
        for series in kind.own[:2]:
            (row,) = each(one[(one["series"] == series.key) & (one["rival"] == kind.cusparse.key)])
            rows = found[(found["kind"] == kind.key) & (found["series"] == series.key)]
            cut = MARK if cuts(kind.rows(frame), series, kind.cusparse) else ""
            header.append(f"{kind.title}: {'best' if series.key == 'best' else series.kernel}{cut}")
            won = GAP if not row.count else f"{100 * row.won / row.count:.1f} % of {row.count}"
            cells = [f"**{number(row.geometric_mean)}×**", peak(row.peak), won, number(rows["gflops"].max() / 1e3)]
            for line, cell in zip(lines, cells, strict=True):
                line.append(cell if row.count else GAP)
        told = paper[kind.key]
        header.append("the paper, V100")
        cells = [f"{told.geomean_speedup:g}×", peak(told.peak_speedup)]
        cells += [f"{told.percent_faster:g} %", f"{told.peak_tflops:g}"]
        for line, cell in zip(lines, cells, strict=True):
            line.append(cell)
    return markdown(header, lines)


def by_class(groups: pd.DataFrame) -> str:
    """Markdown: one line per kind and class, the geometric mean over each rival with the problems won."""
    if groups.empty:
        return ""
    out = []
    for kind in KINDS:
        mine = groups[groups["kind"] == kind.key]
        for (model, batch, zeros), group in mine.groupby(["model", "batch", "zeros"], sort=True):
            rivals = {row.rival: row for row in each(group)}
            cells = [_gain(rivals.get(rival.key)) for rival in (kind.cusparse, *kind.dense)]
            cells += [GAP] * (3 - len(cells))
            fastest = number(float(group["peak_tflops"].iloc[0]))
            out.append([kind.title, NAMES.get(str(model), str(model)), str(batch), str(zeros), *cells, fastest])
    header = ["", "model", "batch", "zeros", "over cuSPARSE, best", "over cuBLAS in its type", "over cuBLAS TF32"]
    return markdown([*header, "peak TFLOP/s"], out, left=2)


def _gain(row: object) -> str:
    if row is None or not row.count:  # type: ignore[attr-defined]
        return GAP
    return f"**{number(row.geometric_mean)}×**{row.mark} ({row.won} of {row.count})"  # type: ignore[attr-defined]
