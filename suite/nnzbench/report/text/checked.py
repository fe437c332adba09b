"""What computed the right thing, kernel by kernel: counts, whatever the times are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from nnzbench.facts.results import each
from nnzbench.records.record import is_fault
from nnzbench.report.text.tables import GAP, markdown

COLUMNS = ("kernel", "op", "inputs", "problems", "right", "failed", "unsupported", "largest_error")
HEADER = [
    "kernel",
    "op",
    "inputs",
    "problems",
    "candidates right",
    "wrong or failed",
    "unsupported",
    "largest error",
]


def counted(rows: Iterable[Any]) -> pd.DataFrame:
    """A line per kernel, op and input type of `rows` (records, or a frame's): `COLUMNS`.

    `problems` are those with a right candidate; the largest error is relative, NaN where nothing was right.
    """
    groups: dict[tuple[str, str, str], list[Any]] = {}
    for row in rows:
        groups.setdefault((row.kernel, row.op, row.dtype), []).append(row)
    lines = []
    for key, mine in sorted(groups.items()):
        right = [row for row in mine if row.status == "ok"]
        problems = len({(row.experiment, row.problem) for row in right})
        failed = sum(is_fault(row.status, row.kernel) for row in mine)
        refused = sum(row.status == "unsupported" for row in mine)
        errors = pd.Series([row.relative_error for row in right], dtype=float)
        lines.append((*key, problems, len(right), failed, refused, errors.max()))
    return pd.DataFrame(lines, columns=list(COLUMNS))


def table(found: pd.DataFrame) -> str:
    """Markdown of `counted`."""
    lines = []
    for row in each(found):
        counts = [str(count) for count in (row.problems, row.right, row.failed, row.unsupported)]
        error = f"{row.largest_error:.2g}" if row.largest_error == row.largest_error else GAP
        lines.append([row.kernel, row.op, row.inputs, *counts, error])
    return markdown(HEADER, lines, left=3)
