"""Rows of a CSV file in a results folder, and the error of one that is not as it should be."""

from __future__ import annotations

import csv
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from nnzbench.core import paths

MOST_BYTES, SNAPSHOT_BYTES = 1 << 30, 1 << 20
"""Longer than any file of a result set, and than any snapshot of a machine in it."""


class RecordError(ValueError):
    """A records file breaks the schema; the message names file, line and column in one sentence."""


def plain(path: Path, most: int = MOST_BYTES) -> None:
    """Raises `RecordError` for what is no plain file (a pipe is waited for, a device has no end) or is too long."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise RecordError(f"{path} is not a plain file")
    if state.st_size > most:
        raise RecordError(f"{path} is longer than {most} bytes")


def append_rows(path: Path, header: Iterable[str], rows: Iterable[Sequence[object]]) -> None:
    """Appends rows to a CSV file whose folder is there, the header first in a new one; on an error none of them."""
    with paths.appending(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(header)
        writer.writerows(rows)
