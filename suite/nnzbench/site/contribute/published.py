"""A set beside the published ones: patterns of real matrices, which must agree, and times, which may be odd.

The collections' indices hold sizes and counts alone; the same matrix has the same pattern on every GPU.

What is odd about a set's times is for its readers, and no fault. A time on another GPU is expected to be the recorded
one with what it has above the cost of a launch in proportion to what the roofline has above it, on both. The same GPU
and kernels repeat to a few per cent; from one GPU to another efficiencies differ, but seldom those of one kernel alone.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles

from nnzbench.core import paths
from nnzbench.results.records.folder import folders, records_file
from nnzbench.results.records.record import Record, RecordError, read_frame, read_records

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
    made = [row for row in rows if row.pattern_hash and row.source.startswith(REAL)]
    mine = {matrix(row.source, row.op, row.shape): row.pattern_hash for row in made}
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
    rows = rows.loc[
        (rows["pattern_hash"] != "") & rows["source"].str.startswith(REAL), ["source", "op", "shape", "pattern_hash"]
    ]
    found: dict[Matrix, str] = {}
    for source, op, shape, pattern in rows.drop_duplicates().itertuples(index=False):
        found.setdefault(matrix(source, op, shape), pattern)
    return found


Key = tuple[str, str, str, str, str]
LEAST = 8
"""Problems in common from which on a median is told of."""
SAME_GPU, OTHER_GPU = 1.25, 3.0
"""A median over what is expected of it, or under, that is not odd."""
COPIED = 2e-3
"""Of the middle half of such ratios, relative width: two runs of one build differ by more."""


def notes(folder: Path, rows: Sequence[Record]) -> Iterator[str]:
    """Sentences on the set in `folder`; none without a recorded set of its experiment, or with a few rows alone."""
    mine = _selected(rows)
    for other in _recorded(rows[0].experiment, rows[0].gpu):
        if other.resolve() == folder.resolve():
            continue
        theirs = _read(other, records_file(other).stat().st_mtime_ns)
        name = other.relative_to(paths.reports()).as_posix()
        same = other.parent.name == rows[0].gpu
        ratios: dict[str, list[float]] = defaultdict(list)
        plain = []
        for key in mine.keys() & theirs.keys():
            if expected := _expected(mine[key], theirs[key], same):
                ratios[key[2]].append(math.log((mine[key].median_us or 0) / expected))
                plain.append(math.log(mine[key].median_us or 1) - math.log(theirs[key].median_us or 1))
        every = [one for some in ratios.values() for one in some]
        if len(every) < LEAST:
            continue
        low, middle, high = quantiles(plain, n=4)
        if high - low < COPIED:
            yield f"half of its times are those of {name} times {math.exp(middle):.4g}, closer than two runs are"
        whole, most = median(every), math.log(SAME_GPU if same else OTHER_GPU)
        if abs(whole) > most:
            yield f"its times are {math.exp(whole):.2g} of what {name} and the rooflines of both lead to expect"
        for kernel, some in sorted(ratios.items()):
            if len(some) >= LEAST and abs(off := median(some) - whole) > most:
                yield f"the times of `{kernel}` are {math.exp(off):.2g} of what the other kernels' and {name} say"


def _selected(rows: Sequence[Record]) -> dict[Key, Record]:
    return {
        (row.problem, row.dtype, row.kernel, row.policy, row.math): row
        for row in rows
        if row.selected and row.median_us is not None and row.limit_us is not None and row.floor_us is not None
    }


def _expected(mine: Record, theirs: Record, same: bool) -> float:
    """Of my time; 0 where nothing can be said."""
    us, limit, floor = theirs.median_us or 0, theirs.limit_us or 0, theirs.floor_us or 0
    if same:
        return us
    above = (mine.limit_us or 0) - (mine.floor_us or 0)
    return (mine.floor_us or 0) + (us - floor) * above / (limit - floor) if us > floor < limit and above > 0 else 0


def _recorded(experiment: str, gpu: str) -> list[Path]:
    """Published sets of the experiment: of that GPU where there are any, else of all."""
    every = folders(paths.reports(), f"*/{experiment}")
    return [one for one in every if one.parent.name == gpu] or every


@functools.cache
def _read(folder: Path, _changed: int) -> dict[Key, Record]:
    try:
        return _selected(read_records(records_file(folder)))
    except (OSError, RecordError):
        return {}
