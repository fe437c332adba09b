"""Joules beside times, on the page of an experiment that has energy.csv."""

from __future__ import annotations

from dataclasses import replace

from nnzbench.facts import energy
from nnzbench.facts.results import each
from nnzbench.facts.table import Comparison
from nnzbench.report.pages.elements import ratio_text
from nnzbench.report.pages.view import View
from nnzbench.report.text.tables import GAP, markdown, number

TITLE = (
    "Energy of a launch over rotated weights, by the board's counter (`nnzbench energy`, "
    "[how](../../../docs/energy.md#energy)): times as fast / times less energy than the baseline in the same windows"
)
PAIR = ("energy-time", "energy")


def markdown_of(asked: Comparison, view: View) -> str:
    """The table as Markdown; empty where no window is ok. Its ratios are asked of the view, so that facts.csv has them.

    A row per problem and candidate, by the first side that it stands for: ratios over each baseline, then microseconds,
    watts and millijoules of a launch, and how far windows of it, and counter and integrated power, are apart.
    """
    data = energy.data_of(view.results)
    if data is None:
        return ""
    sides = tuple(dict.fromkeys((*asked.subjects, *asked.baselines)))
    facts = view.compare(replace(asked, subjects=sides, groups=asked.groups[:1], by=("stem",)), data)
    for group in asked.groups:
        view.compare(replace(asked, groups=(group,)), data)
    ratios = {(row.stem, row.subject, row.baseline, row.policy): ratio_text(row) for row in each(facts)}
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
