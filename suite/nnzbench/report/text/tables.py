"""Numbers and tables as Markdown, and frames as CSV."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from nnzbench import paths
from nnzbench.facts.crossover import GAP as GAP


def number(value: object, digits: int = 2) -> str:
    """Fixed digits, or a dash for what is missing."""
    return GAP if not isinstance(value, float | int) or math.isnan(value) else f"{value:.{digits}f}"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table; the first `left` columns are aligned left, the others right."""
    rule = [":--" if i < left else "--:" for i in range(len(header))]
    lines = [header, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Writes a frame with the same six digits on every machine."""
    with paths.replacing(path) as partial:
        frame.to_csv(partial, index=False, float_format="%.6g", lineterminator="\n")
