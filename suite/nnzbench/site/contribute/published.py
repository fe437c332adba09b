"""A set beside the published ones: patterns of real matrices, which must agree, and times, which may be odd.

The collections' indices hold sizes and counts alone; the same matrix has the same pattern on every GPU.

What is odd about a set's times is for its readers, and no fault. A time on another GPU is expected to be the recorded
one with what it has above the cost of a launch in proportion to what the roofline has above it, on both. The same GPU
and kernels repeat to a few per cent; from one GPU to another efficiencies differ, but seldom those of one kernel alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import quantiles

import numpy as np
import pandas as pd

from nnzbench.core import paths
from nnzbench.results.records.folder import folders, records_file
from nnzbench.results.records.record import RecordError, frame_of, read_frame, read_some

REAL = ("dlmc:", "weights:")
"""Sources that are the same file on every machine."""
Matrix = tuple[str, str]
"""Source, and of a convolution its shape."""


def matrix(source: str, op: str, shape: str) -> Matrix:
    """What one pattern belongs to."""
    return source, shape if op.startswith("conv") else ""


def faults(folder: Path, rows: pd.DataFrame) -> Iterator[str]:
    """Where real matrices of the set in `folder` have another pattern than in a set of `reports/`, of whatever GPU.

    A set that lies there itself is compared with the others. Without published records there is nothing to say.
    """
    mine = _real(rows)
    other: dict[Matrix, str] = {}
    for name, patterns in _elsewhere(folder) if mine else ():
        for key in patterns.keys() & mine.keys():
            if patterns[key] != mine[key]:
                other.setdefault(key, f"`{key[0]}` is {mine[key]} here and {patterns[key]} in {name}")
    if other:
        count = f"{len(other)} of its {len(mine)} real matrices"
        yield f"the pattern of {count} is not that of published records: {other[min(other)]}"


def _real(rows: pd.DataFrame) -> dict[Matrix, str]:
    """The patterns of the real matrices."""
    made = rows.loc[(rows["pattern_hash"] != "") & rows["source"].str.startswith(REAL)]
    found: dict[Matrix, str] = {}
    for source, op, shape, pattern in made[["source", "op", "shape", "pattern_hash"]].drop_duplicates().to_numpy():
        found.setdefault(matrix(source, op, shape), pattern)
    return found


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
        return _real(read_some(path, ["source", "op", "shape", "pattern_hash"]))
    except (OSError, RecordError):
        return {}


KEY = ["problem", "dtype", "kernel", "policy", "math"]
LEAST = 8
"""Problems in common from which on a median is told of."""
SAME_GPU, OTHER_GPU = 1.25, 3.0
"""A median over what is expected of it, or under, that is not odd."""
COPIED = 2e-3
"""Of the middle half of such ratios, relative width: two runs of one build differ by more."""


def notes(folder: Path, rows: pd.DataFrame) -> Iterator[str]:
    """Sentences on the set in `folder`; none without a recorded set of its experiment, or with a few rows alone."""
    mine, (experiment, gpu) = _selected(rows), rows[["experiment", "gpu"]].iloc[0]
    for other in _recorded(experiment, gpu):
        if other.resolve() == folder.resolve():
            continue
        name, same = other.relative_to(paths.reports()).as_posix(), other.parent.name == gpu
        both = mine.merge(_read(other, records_file(other).stat().st_mtime_ns), on=KEY, suffixes=("", "_there"))
        expected = both["median_us_there"] if same else _expected(both)
        both = both.assign(off=np.log(both["median_us"] / expected)).dropna(subset="off")
        if len(both) < LEAST:
            continue
        low, middle, high = quantiles(np.log(both["median_us"] / both["median_us_there"]), n=4)
        if high - low < COPIED:
            yield f"half of its times are those of {name} times {math.exp(middle):.4g}, closer than two runs are"
        whole, most = both["off"].median(), math.log(SAME_GPU if same else OTHER_GPU)
        if abs(whole) > most:
            yield f"its times are {math.exp(whole):.2g} of what {name} and the rooflines of both lead to expect"
        for kernel, some in both.groupby("kernel")["off"]:
            if len(some) >= LEAST and abs(off := some.median() - whole) > most:
                yield f"the times of `{kernel}` are {math.exp(off):.2g} of what the other kernels' and {name} say"


def _selected(rows: pd.DataFrame) -> pd.DataFrame:
    """What stands for its kernel, where its roofline is known."""
    return rows.loc[rows["selected"].astype(bool), [*KEY, "median_us", "limit_us", "floor_us"]].dropna()


def _expected(both: pd.DataFrame) -> pd.Series[float]:
    """Of my times; NaN where nothing can be said."""
    mine, theirs = (both[f"limit_us{of}"] - both[f"floor_us{of}"] for of in ("", "_there"))
    above = both["median_us_there"] - both["floor_us_there"]
    return (both["floor_us"] + above * mine / theirs).where((above > 0) & (mine > 0) & (theirs > 0))


def _recorded(experiment: str, gpu: str) -> list[Path]:
    """Published sets of the experiment: of that GPU where there are any, else of all."""
    every = folders(paths.reports(), f"*/{experiment}")
    return [one for one in every if one.parent.name == gpu] or every


@functools.cache
def _read(folder: Path, _changed: int) -> pd.DataFrame:
    try:
        return _selected(read_frame(records_file(folder)))
    except (OSError, RecordError):
        return _selected(frame_of(()))
