"""Rows of a CSV file in a results folder, and the error of one that is not as it should be."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from nnzbench.core import paths


class RecordError(ValueError):
    """A records file breaks the schema; the message names file, line and column in one sentence."""


def append_rows(path: Path, header: Iterable[str], rows: Iterable[Sequence[object]]) -> None:
    """Appends rows to a CSV file whose folder is there, the header first in a new one; on an error none of them."""
    with paths.appending(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(header)
        writer.writerows(rows)
