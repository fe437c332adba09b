"""Tables of a page, from their declarations to Markdown."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from nnzbench.report.page import COLUMN, Crossings, Made, Pivot, RatioTable, Table, View
from nnzbench.report.text import GAP, markdown, number
from nnzbench.results import energy
from nnzbench.results.crossover import crossover
from nnzbench.results.crossover import text as crossing_text
from nnzbench.results.groups import ALL, Group
from nnzbench.results.result_set import each, geometric_mean
from nnzbench.results.selector import Selector
from nnzbench.results.table import Comparison

MARK, CLOCKS = "†", "‡"
"""Mark a ratio that could be on the other side of 1: by tuning of kernels that were partly tuned, or as a tenth of its
pairs or more ran at SM clocks or on machines apart (`facts.table.APART`)."""
TUNING, CARDS = 1.25, 1.07
"""Ratios up to which these could turn a verdict round: what tuning seldom gains more than, and what two runs of one
commit agree within 19 times in 20."""
HEADS = {
    "label": "problem", "stem": "problem", "level": "zeros (%)", "n": "columns", "size": "size", "m": "rows",
    "k": "inner size", "subject": "kernel", "dtype": "type", "kind": "pattern", "op": "operation", "nnz": "nonzeros",
    "state": "state size (1000s)", "batch": "batch",
}  # fmt: skip
"""What attributes are called above a column."""
DIGITS = {"ratio": 2, "time": 2, "rate": 2, "roofline": 0, "memory": 1}


@functools.singledispatch
def markdown_of(element: Table, view: View) -> str:
    """The table as Markdown; empty for nothing to show."""
    raise TypeError(f"{element!r} is no table")


def ratio_text(row: object) -> str:
    """`2.34×` of a fact, marked where tuning, clocks or machines could turn it round."""
    return f"{number(row.ratio)}×{marks(row)}"  # type: ignore[attr-defined]


def marks(row: object) -> str:
    """What stands behind a fact's ratio."""
    near = max(row.ratio, 1 / row.ratio)  # type: ignore[attr-defined]
    clocks = 0 < getattr(row, "n", 1) <= 10 * getattr(row, "apart", 0)
    untuned = not row.tuned  # type: ignore[attr-defined]
    return MARK * (untuned and near < TUNING) + CLOCKS * (clocks and near < CARDS)


@markdown_of.register
def _ratios(element: RatioTable, view: View) -> str:
    asked = element.comparison
    facts = view.compare(asked)
    facts = facts[facts["policy"] == view.policy]
    if facts.empty:
        return ""
    baselines = [one.label for one in asked.baselines if one.label in set(facts["baseline"])]
    most = facts.groupby("group")["n"].max().to_dict()
    levels = {one.label: f"; {text}" for one in asked.groups if (text := view.counted(one))}
    cells = {(row.group, row.subject, row.baseline): row for row in each(facts)}
    rows = []
    for group in dict.fromkeys(facts["group"]):
        for subject in asked.subjects:
            line = [cells.get((group, subject.label, one)) for one in baselines]
            if any(line):
                shown = [GAP if one is None else f"{ratio_text(one)} ({_wins(one, most[group])})" for one in line]
                rows.append([subject.label, f"{group} ({most[group]}{levels.get(group, '')})", *shown])
    return markdown(["kernel", "problems", *(f"over {one}" for one in baselines)], rows, left=2)


def _wins(row: object, most: int) -> str:
    return f"{row.wins}{f' of {row.n}' if row.n < most else ''}"  # type: ignore[attr-defined]


@markdown_of.register
def _pivot(element: Pivot, view: View) -> str:
    by = tuple(dict.fromkeys(one for one in (*element.rows, element.columns) if one != "subject"))
    values = valued(view, element.series, element.value, element.baseline, element.group, by)
    values = values[values["policy"] == view.policy]
    if values.empty:
        return ""
    heads = order_of(view, element.columns, values, element.series)
    keys = values[[*element.rows, element.columns]].itertuples(index=False, name=None)
    digits = DIGITS[element.value]
    cells = {key: number(row.value, digits) + row.mark for key, row in zip(keys, each(values), strict=True)}
    return _lines(element, _rows(view, element.rows, values, element.series), heads, cells)


def _lines(
    element: Pivot | Crossings,
    keys: Iterable[tuple[Hashable, ...]],
    heads: Sequence[Hashable],
    cells: Mapping[tuple[Hashable, ...], str],
) -> str:
    """A line a key that has cells, by key and head."""
    lines = {key: [cells.get((*key, head), GAP) for head in heads] for key in keys}
    rows = [[*map(shown, key), *line] for key, line in lines.items() if set(line) != {GAP}]
    header = [*(HEADS.get(name, name) for name in element.rows), *(head_of(element.columns, head) for head in heads)]
    return markdown(header, rows, left=len(element.rows))


def valued(
    view: View,
    series: Sequence[Selector],
    value: str,
    baseline: Selector | None,
    group: Group,
    by: tuple[str, ...],
) -> pd.DataFrame:
    """One row per policy, subject and combination of the attributes `by`: their columns, `value`, and its `mark`.

    Ratios are facts; of times, rates and the like it is the geometric mean where several problems fall together.
    """
    if value == "ratio":
        if baseline is None:
            raise ValueError("a ratio needs a baseline")
        facts = view.compare(Comparison(tuple(series), (baseline,), (group,), by))
        facts["mark"] = [marks(row) for row in each(facts)]
        facts = _attributed(facts).rename(columns={"ratio": "value"})
        return facts[[*by, "subject", "policy", "value", "mark"]]
    rows = view.cells(series, group).dropna(subset=[COLUMN[value]])
    groups = rows.groupby([*by, "subject", "policy"], sort=False, dropna=False)
    return groups.agg(value=(COLUMN[value], geometric_mean)).reset_index().assign(mark="")


def _attributed(facts: pd.DataFrame) -> pd.DataFrame:
    """The attribute of that name in place of the count of problems, which facts call `n`."""
    return facts.drop(columns="n").rename(columns={"columns": "n"})


def order_of(view: View, attribute: str, values: pd.DataFrame, series: Sequence[Selector]) -> list[Hashable]:
    """Values of an attribute in the order to show them: numbers by size, others as the experiment's table has them."""
    have = set(values[attribute])
    if attribute == "subject":
        return [one.label for one in series if one.label in have]
    if pd.api.types.is_numeric_dtype(values[attribute]):
        return sorted(have)
    return [one for one in dict.fromkeys(view.problems[attribute]) if one in have]


def _rows(
    view: View, names: Sequence[str], values: pd.DataFrame, series: Sequence[Selector]
) -> list[tuple[Hashable, ...]]:
    """Combinations of attributes that have a value, in order."""
    places = [{one: at for at, one in enumerate(order_of(view, name, values, series))} for name in names]
    found = set(values[list(names)].itertuples(index=False, name=None))
    return sorted(found, key=lambda key: [place[one] for place, one in zip(places, key, strict=True)])


def shown(value: object) -> str:
    """A value of an attribute as text."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def head_of(attribute: str, value: object) -> str:
    """The same above a column, with what it is of where a number alone would not say it."""
    words = {"n": "1 column" if value == 1 else "{} columns", "level": "{} % zeros", "batch": "batch {}"}
    return words.get(attribute, "{}").format(shown(value))


@markdown_of.register
def _crossings(element: Crossings, view: View) -> str:
    found = crossings(view, element)
    found = found[found["policy"] == view.policy]
    if found.empty:
        return ""
    heads = sorted(set(found["column"]), key=lambda one: (isinstance(one, str), one))
    cells = {(*row.key, row.column): row.text for row in each(found)}
    return _lines(element, dict.fromkeys(found["key"]), heads, cells)


def crossings(view: View, element: Crossings) -> pd.DataFrame:
    """Per policy, attributes of the rows (`key`) and `column`: `at` (a share; infinite beyond the records), text."""
    by = tuple(dict.fromkeys((*element.rows, element.columns, "level")))
    facts = view.compare(Comparison((element.subject,), (element.baseline,), (element.group,), by))
    facts = _attributed(facts)
    out = []
    for (policy, *values), curve in facts.groupby(["policy", *element.rows, element.columns], sort=False):
        levels = curve["level"] / 100
        at = crossover(zip(levels, curve["ratio"], strict=True))
        words = crossing_text(at, levels.min(), levels.max())
        out.append({"policy": policy, "key": tuple(values[:-1]), "column": values[-1], "at": at, "text": words})
    return pd.DataFrame(out, columns=["policy", "key", "column", "at", "text"])


@markdown_of.register
def _made(element: Made, view: View) -> str:
    table = pd.DataFrame(element.make(view))
    return "" if table.empty else frame_text(table)


def frame_text(table: pd.DataFrame) -> str:
    """A frame as Markdown: texts left, numbers right, with two digits where they are not whole."""
    rows = [[_cell(value) for value in row] for row in table.itertuples(index=False, name=None)]
    left = next((at for at, name in enumerate(table) if pd.api.types.is_numeric_dtype(table[name])), len(table.columns))
    return markdown([str(name) for name in table], rows, left=max(left, 1))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return GAP if math.isnan(value) else f"{value:g}" if value == int(value) else number(value)
    return GAP if value is None else str(value)


ENERGY = (
    "Energy of a launch over rotated weights, by the board's counter (`nnzbench energy`, "
    "[how](../../../docs/energy.md#energy)): times as fast / times less energy than the baseline in the same windows"
)
PAIR = ("energy-time", "energy")


def energy_table(asked: Comparison, view: View) -> str:
    """Joules beside times, as Markdown; empty where no window is ok. Its ratios are asked of the view, for facts.csv.

    A row per problem and candidate, by the first side that it stands for: ratios over each baseline, then microseconds,
    watts and millijoules of a launch, and how far windows of it, and counter and integrated power, are apart.
    """
    data = energy.data_of(view.results)
    if data is None:
        return ""
    sides = tuple(dict.fromkeys((*asked.subjects, *asked.baselines)))
    facts = view.compare(replace(asked, subjects=sides, groups=(ALL,), by=("stem",)), data)
    ratios = {(row.stem, row.subject, row.baseline, row.policy): ratio_text(row) for row in each(facts)}
    for group in asked.groups:
        facts = view.compare(replace(asked, groups=(group,), by=("label",) if group.baseline_cases else ()), data)
        if group.baseline_cases:  # whose baseline has another stem
            stems = data.of(group)[["label", "stem"]].merge(facts, on="label")
            ratios |= {(row.stem, row.subject, row.baseline, row.policy): ratio_text(row) for row in each(stems)}
    cells = data.cells(sides)
    shown = cells[cells["policy"] == PAIR[0]].drop_duplicates(["problem", "kernel", "variant", "math"])
    rows = []
    for row in each(shown):
        over = [
            " / ".join(ratios.get((row.stem, row.subject, one.label, policy), GAP) for policy in PAIR)
            for one in asked.baselines
        ]
        sizes = [row.label, f"{row.level:g}", str(row.n)]
        amounts = [number(row.us), number(row.watts, 0), number(1e3 * row.joules)]
        doubts = [f"{100 * row.apart:.1f} %", f"{100 * row.differ:.1f} %", f"{row.windows:g}"]
        doubts[-1] += f" ({row.refused:g} refused)" * (row.refused > 0)
        rows.append([*sizes, row.subject, *over, *amounts, *doubts])
    heads = [f"over {one.label}, time / energy" for one in asked.baselines]
    header = ["problem", "zeros (%)", "columns", "kernel", *heads, "µs", "watts", "mJ"]
    return markdown([*header, "windows apart", "counter against power", "windows"], rows, left=1)
