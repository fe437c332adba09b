"""The patterns of real matrices against the published records: the collections' indices hold sizes and counts alone."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nnzbench import paths
from nnzbench.records.files import folders, records_file
from nnzbench.records.record import Record, RecordError, read_frame

REAL = ("dlmc:", "weights:")
"""Sources that are the same file on every machine."""
Matrix = tuple[str, str]
"""Source, and of a convolution its shape."""


def matrix(source: str, op: str, shape: str) -> Matrix:
    """What one pattern belongs to."""
    return source, shape if op.startswith("conv") else ""


def faults(folder: Path, rows: Sequence[Record]) -> Iterator[str]:
    """Where real matrices of the set in `folder` have another pattern than in a set of `reports/`, of whatever GPU.

    A set that lies there itself is compared with the others. Without published records there is nothing to say.
    """
    made = [row for row in rows if row.pattern and row.source.startswith(REAL)]
    mine = {matrix(row.source, row.op, row.shape): row.pattern for row in made}
    other: dict[Matrix, str] = {}
    for name, patterns in _elsewhere(folder) if mine else ():
        for key in patterns.keys() & mine.keys():
            if patterns[key] != mine[key]:
                other.setdefault(key, f"`{key[0]}` is {mine[key]} here and {patterns[key]} in {name}")
    if other:
        count = f"{len(other)} of its {len(mine)} real matrices"
        yield f"the pattern of {count} is not that of published records: {other[min(other)]}"


def _elsewhere(folder: Path) -> Iterator[tuple[str, Mapping[Matrix, str]]]:
    """Every published set but the one in `folder`: its name below `reports/`, and its patterns."""
    reports = paths.reports()
    for other in folders(reports):
        path = records_file(other)
        if not path.is_symlink() and other.resolve() != folder.resolve():
            state = path.stat()
            yield other.relative_to(reports).as_posix(), _patterns(path, state.st_mtime_ns, state.st_size)


@functools.cache
def _patterns(path: Path, _changed: int, _size: int) -> Mapping[Matrix, str]:
    """Of the real matrices of a file; none where it breaks the schema, which is a fault of that set alone."""
    try:
        rows = read_frame(path)
    except (OSError, RecordError):
        return {}
    rows = rows.loc[(rows["pattern"] != "") & rows["source"].str.startswith(REAL), ["source", "op", "shape", "pattern"]]
    found: dict[Matrix, str] = {}
    for source, op, shape, pattern in rows.drop_duplicates().itertuples(index=False):
        found.setdefault(matrix(source, op, shape), pattern)
    return found
