"""Numbers and tables as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from nnzbench.facts.crossover import GAP as GAP


def number(value: object, digits: int = 2) -> str:
    """Fixed digits, or a dash for what is missing."""
    return GAP if not isinstance(value, float | int) or math.isnan(value) else f"{value:.{digits}f}"


LONG = 20
"""Lines of a table above which it opens on a click."""


def folded(text: str, title: str, least: int = LONG) -> str:
    """A table or list of more lines than `least`, to open on a click on its title; a shorter one as it stands."""
    if text.count("\n") < least:
        return text
    return f"<details><summary>{title}</summary>\n\n{text.strip()}\n\n</details>"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table; the first `left` columns are aligned left, the others right."""
    rule = [":--" if i < left else "--:" for i in range(len(header))]
    lines = [header, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
