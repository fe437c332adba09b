"""Pages that a reader gets through: what is long in one stands in a file of tables beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from nnzbench import paths

LIMIT = 2_400
"""Words of a page, as `wc -w` counts them: what stands between spaces, the bars of tables too."""
BLOCK = re.compile(r"(?m)^\|.*(?:\n\|.*)*$|^[*-] .*(?:\n(?:[*-] |  ).*)*$")
"""A table, or a list."""
_LEAST = 60
"""Words of the shortest block that is worth moving."""


def words(text: str) -> int:
    """As `wc -w` counts."""
    return len(text.split())


def write(page: Path, text: str, tables: str = "summary.md") -> None:
    """Writes a page, and beside it, where it is too long, its longest tables and lists as the file `tables`."""
    short, moved = fitted(text, tables)
    paths.write_text(page, short)
    beside = page.parent / tables
    if moved:
        title = text.partition("\n")[0].lstrip("# ")
        paths.write_text(beside, "\n\n".join([f"# Tables: {title}", *told(moved)]) + "\n")
    elif beside.is_file():
        beside.unlink()


def told(moved: Iterable[tuple[str, str]]) -> list[str]:
    """Blocks that were moved, below the headings that they stood below, each once."""
    parts = ((heading, *(block for _, block in those)) for heading, those in groupby(moved, key=itemgetter(0)))
    return [part for one in parts for part in one]


def fitted(text: str, tables: str, limit: int = LIMIT) -> tuple[str, list[tuple[str, str]]]:
    """The page with links to `tables` in place of its longest blocks, and those with the heading that each stood below.

    The first screen, before the first heading of the second level, stays as it is.
    """
    after = text.find("\n## ")
    found = [one for one in BLOCK.finditer(text) if one.start() > after >= 0 and words(one[0]) >= _LEAST]
    chosen: list[re.Match[str]] = []
    length = words(text)
    for one in sorted(found, key=lambda one: -words(one[0])):
        if length <= limit:
            break
        chosen.append(one)
        length -= words(one[0]) - words(_link(one[0], tables))
    for one in sorted(chosen, key=lambda one: words(one[0])):  # a long one may have made room for short ones
        cost = words(one[0]) - words(_link(one[0], tables))
        if length + cost <= limit:
            chosen.remove(one)
            length += cost
    if not chosen:
        return text, []
    short, last = "", 0
    moved: list[tuple[str, str]] = []
    for one in sorted(chosen, key=lambda one: one.start()):
        short += text[last : one.start()] + _link(one[0], tables)
        heading = text.rfind("\n## ", 0, one.start())
        moved.append((text[heading + 1 : text.find("\n", heading + 1)], one[0]))
        last = one.end()
    short += text[last:]
    return _anchored(short, tables), moved


def _link(block: str, tables: str) -> str:
    lines = block.count("\n") + 1
    what = f"A table of {lines - 2} lines" if block.startswith("|") else f"A list of {lines} lines"
    return f"{what}: [{tables}]({tables})."


def _anchored(short: str, tables: str) -> str:
    """Links to places that went to the other file lead there."""
    here = set(re.findall(r'<a id="([^"]+)"', short))
    return re.sub(r"\]\(#([^)]+)\)", lambda link: link[0] if link[1] in here else f"]({tables}#{link[1]})", short)
