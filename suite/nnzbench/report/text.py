"""Text of pages: numbers and tables as Markdown, templates, names of GPUs and policies, counts of what was right."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jinja2
import pandas as pd

from nnzbench.results.crossover import GAP as GAP
from nnzbench.results.records.record import is_fault


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


def share(value: float, form: str = ".0f") -> str:
    """A share as percent, or a dash for what is missing."""
    return GAP if math.isnan(value) else f"{100 * value:{form}} %"


def document(*parts: str) -> str:
    """A page of these blocks of Markdown, without those that are empty."""
    return "\n\n".join(filter(None, parts)) + "\n"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table; the first `left` columns are aligned left, the others right."""
    rule = [":--" if i < left else "--:" for i in range(len(header))]
    lines = [header, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


@functools.cache
def environment(autoescape: bool = False) -> jinja2.Environment:
    """The package's templates, with `folded` as a filter; `autoescape` for HTML, not for Markdown."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("nnzbench.report"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        autoescape=autoescape,
    )
    made.filters["folded"] = folded
    return made


CHECKED = {
    "kernel": "kernel", "op": "op", "inputs": "inputs", "problems": "problems", "right": "candidates right",
    "failed": "wrong or failed", "unsupported": "unsupported", "largest_error": "largest error",
}  # fmt: skip
"""Columns of `checks`, and what they are called on a page."""


def checks(rows: Iterable[Any]) -> pd.DataFrame:
    """What computed the right thing, whatever the times are: `CHECKED` per kernel, op and input type of `rows`.

    Rows are records, or a frame's. `problems` are those with a right candidate; the largest error is relative, NaN
    where nothing was right.
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
    return pd.DataFrame(lines, columns=list(CHECKED))


def checks_table(rows: Iterable[Any]) -> pd.DataFrame:
    """The same as a page has it."""
    found = checks(rows)
    errors = [GAP if math.isnan(error) else f"{error:.2g}" for error in found["largest_error"]]
    return found.assign(largest_error=errors).set_axis([*CHECKED.values()], axis=1)


POLICIES = {
    "hot": "launches back to back in one CUDA graph, operands as the last launch left them",
    "cold": "L2 overwritten before each launch, one launch between two events",
    "stream": "launches back to back in one CUDA graph, each over another copy of the weights, all copies together at "
    "least four times what L2 holds: what a layer of a model sees",
    "loop": "25 launches enqueued one by one, then 100 between two events, operands as the last launch left them: as "
    "many benchmarks time",
}


def gpu_name(slug: str, environment: dict[str, Any]) -> str:
    """The driver's name of the GPU where the environment has it, else the slug's words in capitals."""
    gpu = environment.get("gpu")
    name = gpu.get("name") if isinstance(gpu, dict) else None
    if isinstance(name, str) and name:
        return name
    vendor, _, model = slug.partition("-")
    return f"{vendor} {model.replace('-', ' ')}".upper().strip()


def commit(environment: dict[str, Any]) -> str:
    """Abbreviated commit that measured, or a word saying that it is not known."""
    source = environment.get("source")
    named = source.get("commit") if isinstance(source, dict) else None
    if not isinstance(named, str):
        return "an unnamed version"
    return f"commit {named[:12]}" + (" with changes" if source and source.get("dirty") else "")


def recorded_on(environment: dict[str, Any]) -> str:
    """Date of the environment's snapshot (YYYY-MM-DD), empty where it has none."""
    for name in ("recorded_at", "created_at", "timestamp", "time", "date", "utc"):
        if isinstance(environment.get(name), str):
            return str(environment[name])[:10]
    return ""
