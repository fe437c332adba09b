"""Which row stands for its kernel: the fastest correct one per problem, dtype, arithmetic class and policy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace

import pandas as pd

from nnzbench.kernels.registry import about, kernels
from nnzbench.problems.check import TOLERANCE
from nnzbench.records.record import Record, frame_of

CONTEST = ["experiment", "problem", "kernel", "dtype", "math", "policy"]
"""Rows that agree in these compete (`math` is `maths_of` them); one of them is selected."""


def math_class(record: Record) -> str:
    """Arithmetic class of a row."""
    return class_of(record.kernel, record.variant, record.dtype)


def class_of(kernel: str, variant: str, dtype: str) -> str:
    """Arithmetic class: the first word of the variant where that is one (`tf32_...`), else the dtype.

    Vendor variants start with their math mode; kernels of this suite compute in their dtype, but for those that say of
    themselves that they have one class alone, which is another.
    """
    first = variant.partition("_")[0]
    return first if first in TOLERANCE else _only_class(kernel) or dtype


@functools.cache
def _only_class(kernel: str) -> str:
    """The one arithmetic class of a kernel whose inputs have another type, such as TF32 of fp32; else empty."""
    one = kernels().get(kernel)
    maths = about(kernel).maths
    return next(iter(maths)) if one is not None and len(maths) == 1 and not maths & one.dtypes else ""


def maths_of(frame: pd.DataFrame) -> pd.Series[str]:
    """The arithmetic class of each row."""
    return each_once(frame, ["kernel", "variant", "dtype"], class_of)


def each_once(frame: pd.DataFrame, columns: list[str], of: Callable[..., str]) -> pd.Series[str]:
    """`of` each row's values of the columns, called once for rows that agree in them."""
    found = frame[columns].drop_duplicates()
    values = [of(*cells) for cells in found.itertuples(index=False)]
    joined = frame[columns].merge(found.assign(value=pd.Series(values, found.index, dtype=str)), how="left")
    return pd.Series(joined["value"].to_numpy(), frame.index, dtype=str)


def fastest(frame: pd.DataFrame) -> pd.Series[bool]:
    """Of each row (with its `math`), whether it is the fastest timed one of its contest; the first of equals."""
    timed = frame.loc[(frame["status"] == "ok") & frame["median_us"].notna(), [*CONTEST, "median_us"]]
    best = timed.sort_values("median_us", kind="stable").drop_duplicates(CONTEST)
    return pd.Series(frame.index.isin(best.index), frame.index)


def select(records: Iterable[Record]) -> list[Record]:
    """The same rows in the same order with `selected` true on the fastest alone."""
    rows = list(records)
    frame = frame_of(rows)
    flags = fastest(frame.assign(math=maths_of(frame)))
    return [
        row if row.selected == flag else replace(row, selected=bool(flag))
        for row, flag in zip(rows, flags, strict=True)
    ]
