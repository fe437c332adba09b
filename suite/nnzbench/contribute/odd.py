"""What is odd about a set's times beside those of recorded sets: for its readers, no fault.

A time on another GPU is expected to be the recorded one with what it has above the cost of a launch in proportion to
what the roofline has above it, on both. The same GPU and kernels repeat to a few per cent; from one GPU to another
efficiencies differ, but seldom those of one kernel alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import median, quantiles

from nnzbench import paths
from nnzbench.records.files import folders, records_file
from nnzbench.records.record import Record, RecordError, read_records
from nnzbench.records.selection import math_class

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
        (row.problem, row.dtype, row.kernel, row.policy, math_class(row)): row
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


@cache
def _read(folder: Path, _changed: int) -> dict[Key, Record]:
    try:
        return _selected(read_records(records_file(folder)))
    except (OSError, RecordError):
        return {}
