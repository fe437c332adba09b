"""Which row stands for its kernel: the fastest correct one per problem, dtype, arithmetic class and policy."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace

from nnzbench.kernels.registry import about, kernels
from nnzbench.problems.check import TOLERANCE
from nnzbench.records.record import Record

Contest = tuple[str, ...]


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


def contest(record: Record) -> Contest:
    """Rows of one contest compete; one of them is selected."""
    return (record.experiment, record.problem, record.kernel, record.dtype, math_class(record), record.policy)


def winners(records: Iterable[Record]) -> dict[Contest, Record]:
    """The fastest timed row of each contest; the first recorded of equals."""
    best: dict[Contest, Record] = {}
    for record in records:
        if record.status != "ok" or record.median_us is None:
            continue
        held = best.get(contest(record))
        if held is None or held.median_us is None or record.median_us < held.median_us:
            best[contest(record)] = record
    return best


def select(records: Iterable[Record]) -> list[Record]:
    """The same rows in the same order with `selected` true on the winners alone."""
    rows = list(records)
    best = winners(rows)
    chosen = {id(record) for record in best.values()}
    return [
        record if record.selected == (id(record) in chosen) else replace(record, selected=id(record) in chosen)
        for record in rows
    ]
