"""Markdown tables of exactly what SparseRT's figures 4 to 6 draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nnzbench.papers.sparsert.values import (
    CUBLAS,
    CUSPARSE,
    HEURISTIC,
    LEVELS,
    MEAN,
    MOBILENET,
    PAPER_GPU,
    SPARSERT,
    SPUTNIK,
    Measured,
    Values,
    labels_of,
)
from nnzbench.facts.results import each, percent
from nnzbench.report.data.series import DEFAULT, Series
from nnzbench.report.draw.grouped_bars import known
from nnzbench.report.text.tables import GAP, markdown, number

NAMES = {
    CUBLAS: "cuBLAS",
    CUSPARSE: "cuSPARSE",
    SPARSERT: "sparsert_paper",
    SPUTNIK: "sputnik, fastest tiling",
    HEURISTIC: "sputnik, its rule's tiling",
}


def named() -> list[Series]:
    """The rows that these names are of."""
    return [
        Series(key, name, (key.partition("-")[0],), variants=DEFAULT if key == HEURISTIC else "")
        for key, name in NAMES.items()
    ]


class Column(NamedTuple):
    """A heading, one value per row and its digits; `wanted` counts the values that a measured mean should be over."""

    name: str
    values: tuple[float, ...]
    digits: int
    wanted: int = 0


def figure4(here: Measured, values: Values) -> tuple[str, ...]:
    """Panels a and b in one table, c and d in another."""
    labels = labels_of(here.table, LEVELS[0])
    columns = []
    for series in (CUBLAS, CUSPARSE, SPARSERT):
        found = values.of("4a", labels, "tflops", gpu=here.gpu, level=LEVELS[0], series=series)
        columns.append(Column(f"{NAMES[series]}, {percent(LEVELS[0])}", found, 3))
    denser = values.of("4b", labels, "tflops", gpu=here.gpu, level=LEVELS[1], series=SPARSERT)
    columns.append(Column(f"sparsert_paper, {percent(LEVELS[1])}", denser, 3))
    speeds = _table(here, labels, columns)
    ratios = []
    for figure, over in (("4c", CUBLAS), ("4d", CUSPARSE)):
        for level in LEVELS:
            ours = values.of(figure, (*labels, MEAN), "speedup", gpu=here.gpu, level=level, series=SPARSERT, over=over)
            paper = values.of(figure, (*labels, MEAN), "speedup", gpu=PAPER_GPU, level=level, series="paper", over=over)
            wanted = len(labels_of(here.table, level))
            ratios.append(Column(f"over {NAMES[over]}, {percent(level)}", ours, 2, wanted))
            ratios.append(Column(f"paper, T4, {percent(level)}", paper, 1))
    return (
        f"4a and 4b, TFLOP/s on {here.name} (the paper prints no numbers):\n\n{speeds}",
        f"4c and 4d, speed-up of sparsert_paper on {here.name} beside the paper's (its means as it states them):\n\n"
        f"{_table(here, (*labels, MEAN), ratios)}",
    )


def figure5(here: Measured, others: Sequence[Measured], values: Values) -> tuple[str, ...]:
    """One row per problem, one column per library, GPU and level."""
    labels = (*labels_of(here.table, LEVELS[1]), MEAN)
    columns = []
    for figure, over in (("5a", CUBLAS), ("5b", CUSPARSE)):
        for one in (here, *others):
            for level in LEVELS:
                found = values.of(figure, labels, "speedup", gpu=one.gpu, level=level, series=SPARSERT, over=over)
                columns.append(Column(f"over {NAMES[over]}, {one.name}, {percent(level)}", found, 2, len(labels) - 1))
        for level in LEVELS:
            found = values.of(figure, labels, "speedup", gpu=PAPER_GPU, level=level, series="paper", over=over)
            if known(found):
                columns.append(Column(f"over {NAMES[over]}, paper, T4, {percent(level)}", found, 1))
    return (_table(here, labels, columns),)


def figure6(here: Measured, values: Values) -> tuple[str, ...]:
    """Rates and speed-ups of MobileNet's problems."""
    labels = (*MOBILENET, MEAN)
    columns = []
    for series in (SPARSERT, SPUTNIK, HEURISTIC):
        found = values.of("6a", labels, "tflops", gpu=here.gpu, level=LEVELS[0], series=series)
        columns.append(Column(f"{NAMES[series]} (TFLOP/s)", found, 3))
    for over in (SPUTNIK, HEURISTIC):
        found = values.of("6b", labels, "speedup", gpu=here.gpu, level=LEVELS[0], series=SPARSERT, over=over)
        columns.append(Column(f"sparsert_paper over {NAMES[over]}", found, 2, len(MOBILENET)))
    low, high = (
        values.of("6b", labels, "speedup", gpu="T4 and V100", level=LEVELS[0], series=f"paper-{end}", over=SPUTNIK)
        for end in ("low", "high")
    )
    stated = [f"{number(a, 0)} to {number(b, 0)}" if known((a, b)) else GAP for a, b in zip(low, high, strict=True)]
    return (_table(here, labels, columns, ("paper's words, T4 and V100", stated)),)


def _table(
    here: Measured,
    labels: Sequence[str],
    columns: Sequence[Column],
    words: tuple[str, Sequence[str]] | None = None,
) -> str:
    """One row per label with its size."""
    sizes = {str(row.label): str(row.size) for row in each(here.table.problems)}
    rows = []
    for place, label in enumerate(labels):
        cells = [_mean_cell(one) if label == MEAN else number(one.values[place], one.digits) for one in columns]
        cells += [words[1][place]] if words else []
        rows.append([f"**{MEAN}**" if label == MEAN else label, sizes.get(label, ""), *cells])
    header = ["problem", "size", *(one.name for one in columns), *([words[0]] if words else [])]
    return markdown(header, rows, left=2)


def _mean_cell(column: Column) -> str:
    """The mean, which is the column's last value, in bold; `n of m` where it is over fewer problems than the figure."""
    *values, mean = column.values
    if not known((mean,)):
        return GAP
    count = len(known(values))
    partial = f" ({count} of {column.wanted})" if column.wanted and count != column.wanted else ""
    return f"**{number(mean, column.digits)}**{partial}"
