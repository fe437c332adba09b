"""Recorded texts as they are shown: characters that mean something to Markdown, HTML, a figure, a terminal or a
spreadsheet become ones that look alike and mean nothing, so that whatever a set holds, no page runs or hides it.

No published row has such a character, and `nnzbench validate` refuses most; pages are drawn of other sets too.
Templates of HTML escape besides, and commands are quoted (`report.text`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from nnzbench.results.records.beside import tunings
from nnzbench.results.records.describe import searched
from nnzbench.results.records.record import read_frame, read_some

LONGEST = 400
"""Characters of a text, such as a reason."""
_ALIKE = str.maketrans({"<": "‹", ">": "›", "`": "'", "[": "(", "]": ")", "|": "¦"})
_FORMULA = ("=", "+", "-", "@")
TABLES = ("gpu", "peaks", "software", "packages", "overrides", "host", "source")
"""What a snapshot has tables of; all else in it is one value."""
DEEPEST = 4
"""Tables and lists inside one another."""


def inert(text: str) -> str:
    """The text, at most `LONGEST` characters of it; what is not printable (bidirectional marks too) as U+FFFD."""
    found = text[: LONGEST + 1].translate(_ALIKE)
    if not found.isprintable():
        found = "".join(one if one.isprintable() else "\ufffd" for one in found)
    found = f"'{found}" if found.startswith(_FORMULA) else found
    return found if len(found) <= LONGEST else f"{found[: LONGEST - 1]}…"


def frame(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with inert texts."""
    for name in rows.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in rows.dtypes]]:
        texts = [one for one in rows[name].unique() if isinstance(one, str)]
        if changed := {one: safe for one in texts if (safe := inert(one)) != one}:
            rows = rows.assign(**{name: rows[name].map(lambda one, changed=changed: changed.get(one, one))})
    return rows


def read(path: Path, some: Sequence[str] | None = None) -> pd.DataFrame:
    """`read_frame` with inert texts; of a journal, whose run may go on, with what its searches came to by now.

    With `some` columns, these alone, and of published records only the rows of `read_some`.
    """
    rows = read_some(path, some) if some and path.suffix != ".csv" else read_frame(path)
    if path.suffix == ".csv":
        rows = rows.assign(**searched(rows, tunings(path.parent)))
    return frame(rows)


def snapshot(found: dict[str, Any]) -> dict[str, Any]:
    """A snapshot with inert texts; left out is what none holds: other kinds of values, and peaks that are no rates."""
    out = {inert(key): _value(value, 0) for key, value in found.items() if isinstance(value, dict) == (key in TABLES)}
    peaks = out.get("peaks", {})
    out |= {"peaks": {key: one for key, one in peaks.items() if _is_number(one) and one > 0}} if peaks else {}
    return {key: value for key, value in out.items() if value is not None}


def _value(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return inert(value)
    if isinstance(value, dict) and depth < DEEPEST:
        return {inert(key): _value(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list) and depth < DEEPEST:
        return [_value(one, depth + 1) for one in value]
    return value if isinstance(value, bool) or _is_number(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18 and math.isfinite(value)
