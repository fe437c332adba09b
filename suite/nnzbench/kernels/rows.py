"""Host-side preparation shared by the row-splitting kernels: records of rows, storage, padding."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from nnzbench.core.plan import Array, Int32s, Int64s, Unsupported
from nnzbench.data.matrices.formats import CSR, ranks
from nnzbench.data.problems.problem import ConvShape, Problem

T = TypeVar("T")


def convolved(problem: Problem) -> ConvShape:
    """The problem's convolution. Raises `Unsupported` where it has none, or an empty output."""
    c = problem.conv
    if c is None or not c.batch * c.filters * c.out_height * c.out_width:
        raise Unsupported("the output is empty")
    return c


@dataclass(frozen=True)
class Storage:
    """How a kernel over `pack.cuh` stores numbers: float32 and 32-bit indices, or float16 and 16-bit ones that fit."""

    half: bool
    short_index: bool

    @staticmethod
    def of(dtype: np.dtype[Any], columns: int) -> Storage:
        """For values of `dtype` in a sparse matrix of `columns` columns."""
        half = dtype == np.float16
        return Storage(half, half and columns <= 65535)

    @property
    def value_bytes(self) -> int:
        return 2 if self.half else 4

    @property
    def pair_bytes(self) -> int:
        return 4 if self.short_index else 8

    @property
    def defines(self) -> dict[str, int | str]:
        return {"F16": int(self.half), "INDEX16": int(self.short_index)}

    def indices(self, indices: Array) -> Array:
        return padded(indices.astype(np.uint16 if self.short_index else np.int32))

    def name(self, columns: str) -> str:
        """Part of a variant's name: the index type, and why it is not the short one; nothing for float32."""
        if not self.half:
            return ""
        return "i16" if self.short_index else f"i32_{columns}_above_65535"


def row_records(matrix: CSR, swizzle: bool = True) -> Int32s:
    """One record (row, first entry, end of entries, 0) per row, shape (m, 4), in processing order.

    With `swizzle`, rows go by falling length (stable), so that heavy blocks start first and neighbours have equal
    work (Sputnik, section V-C); without it, in natural order.
    """
    lengths = matrix.row_lengths
    order = np.argsort(-lengths, kind="stable") if swizzle else np.arange(matrix.m)
    records = order, matrix.offsets[:-1][order], matrix.offsets[1:][order], np.zeros_like(order)
    return np.stack(records, axis=1).astype(np.int32)


def deal_rows(lengths: Int64s, hands: int, cards: int) -> Int64s:
    """Deals rows to `hands` warps of `cards` rows each so that all carry near-equal nonzeros: (hands, cards), -1 empty.

    Rows go out by falling length, each to the warp that carries least and has room.
    """
    dealt = np.full((hands, cards), -1, dtype=np.int64)
    held = [0] * hands
    open_hands = [(0, hand) for hand in range(hands)]
    for row in np.argsort(-lengths, kind="stable").tolist():
        load, hand = open_hands[0]
        dealt[hand, held[hand]] = row
        held[hand] += 1
        if held[hand] < cards:
            heapq.heapreplace(open_hands, (load + int(lengths[row]), hand))
        else:
            heapq.heappop(open_hands)
    return dealt


StripOrder = Literal["rows", "swizzle", "length", "columns"]
"""By row; the longest rows first (Sputnik's row swizzle); the longest strips first; or by groups of neighbouring
columns, in each the longest first."""


def row_strips(matrix: CSR, items: int, order: StripOrder = "length", group: int = 1) -> Int32s:
    """Records (row, first entry, end of entries, 0) of runs of at most `items` consecutive nonzeros of one row.

    Shape (strips, 4); every order is stable, empty rows have no strip. With `columns`, strips go by their first column
    in units of `group`.
    """
    counts = -(-matrix.row_lengths // items)
    ends = np.repeat(matrix.offsets[1:], counts)
    before = np.cumsum(counts) - counts
    first = np.repeat(matrix.offsets[:-1] - items * before, counts) + np.arange(0, items * ends.size, items)
    strips = np.zeros((ends.size, 4), dtype=np.int32)
    strips[:, 0] = np.repeat(np.arange(matrix.m, dtype=np.int32), counts)
    strips[:, 1] = first
    np.minimum(first + items, ends, out=strips[:, 2], casting="same_kind")
    if order == "rows":
        return strips
    if order == "swizzle":
        return strips.take(np.argsort(-matrix.row_lengths[strips[:, 0]], kind="stable"), axis=0)
    key = items - (strips[:, 2] - strips[:, 1])
    last = items
    if order == "columns":
        key = key + matrix.indices[first] // group * np.int64(items + 1)
        last += matrix.k // group * (items + 1)
    # small keys are sorted by radix
    return strips.take(np.argsort(key.astype(np.min_scalar_type(last)), kind="stable"), axis=0)


def entries_of(matrix: CSR, rows: Int32s | Int64s) -> Int64s:
    """Where the entries of some rows lie among the matrix's, row after row."""
    lengths = matrix.row_lengths[rows]
    return np.repeat(matrix.offsets[rows], lengths) + ranks(lengths)


def padded(array: Array, multiple: int = 8) -> Array:
    """A 1-D array filled up with zeros to a positive multiple of `multiple`, so that its last vector can be loaded."""
    size = max(1, -(-array.size // multiple)) * multiple
    return np.pad(array, (0, size - array.size))


def vector_width(n: int, itemsize: int) -> int:
    """Most elements (a power of two, 16 bytes at most) that one access to a row of `n` elements may take."""
    return math.gcd(n, 16 // itemsize)


def first_of_each(ranked: Iterable[T], family: Callable[[T], Hashable]) -> list[T]:
    """The first of each family, in order."""
    best: dict[Hashable, T] = {}
    for one in ranked:
        best.setdefault(family(one), one)
    return list(best.values())


def power_of_two_at_least(n: int) -> int:
    """The smallest power of two not below `n`, for n >= 1."""
    return 1 << (n - 1).bit_length()


def transpose(matrix: CSR) -> tuple[CSR, Int32s]:
    """The k x m transpose's structure with `matrix`'s values left in place, and where each entry's value is.

    Entry i of the result has the value `matrix.values[positions[i]]`; the result's `values` are `matrix.values`
    unpermuted. Structure and positions depend on the pattern alone, so training caches them.
    """
    numbered = matrix.with_values(np.arange(matrix.nnz, dtype=np.int32)).transposed()
    return numbered.with_values(matrix.values), numbered.values
