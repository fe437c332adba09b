"""Kernel `row_stream`: SpMM over rows packed as {index, value} words, for products whose cost is latency."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnzbench.kernel import Launch, Plan, register
from nnzbench.matrices.formats import CSR
from nnzbench.operands import Operands
from nnzbench.problem import Problem

_PAIR = np.dtype([("index", "<i4"), ("value", "<f4")])


@dataclass(frozen=True)
class Tiling:
    """Compile-time shape of `row_spmm.cu`; the names are its defines."""

    lanes: int
    vec: int
    rows: int
    parts: int
    unroll: int

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.lanes * self.rows * self.parts

    def __str__(self) -> str:
        return f"n{self.lanes * self.vec}_v{self.vec}_r{self.rows}_p{self.parts}_u{self.unroll}"


def pack(matrix: CSR, rows_per_block: int) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
    """Rows by falling length: spans (slots, 2), row ids (slots,) and 128-bit words (words, 4) of two pairs each."""
    slots = -(-matrix.m // rows_per_block) * rows_per_block
    order = np.argsort(-matrix.row_lengths, kind="stable")
    lengths = np.zeros(slots, dtype=np.int64)
    lengths[: matrix.m] = matrix.row_lengths[order]
    words = -(-lengths // 4) * 2
    ends = np.cumsum(words)
    pairs = np.zeros(2 * int(ends[-1]) if slots else 0, dtype=_PAIR)
    pairs["index"] = -1
    first = np.empty(matrix.m, dtype=np.int64)
    first[order] = 2 * (ends - words)[: matrix.m]
    rows = np.repeat(np.arange(matrix.m), matrix.row_lengths)
    at = first[rows] + np.arange(matrix.nnz) - matrix.offsets[rows]
    pairs["index"][at] = matrix.indices
    pairs["value"][at] = matrix.values
    row_ids = np.full(slots, -1, dtype=np.int32)
    row_ids[: matrix.m] = order
    spans = np.stack([ends - words, words], axis=1).astype(np.int32)
    return spans, row_ids, pairs.view(np.float32).reshape(-1, 4)


def tilings(n: int, mean_length: float) -> Iterator[Tiling]:
    """Tilings worth trying for n columns and rows of `mean_length` nonzeros."""
    adjacent = 4 if n % 4 == 0 else 2 if n % 2 == 0 else 1
    shapes = [(8, 1), (16, 1)] if n <= 16 else [(32, 1), (32, 2), (32, 4)]
    if adjacent > 1:
        shapes += [(16, adjacent), (8, adjacent)]
    for lanes, vec in shapes:
        if lanes * vec > 8 and lanes * vec >= 2 * n:
            continue
        if lanes < 32:
            for unroll in (4, 8):
                yield Tiling(lanes, vec, 128 // lanes, 1, unroll)
            continue
        for parts in (1, 2, 4, 8):
            if parts > 1 and mean_length < 8 * parts:
                continue
            unroll = 16 if mean_length >= 64 * parts else 8 if mean_length >= 16 * parts else 4
            yield Tiling(lanes, vec, max(1, 4 // parts), parts, unroll)


class RowStream:
    """Own row-split SpMM with packed words and rows split over warps."""

    name = "row_stream"
    paper = "nnzbench"
    ops = frozenset({"spmm"})
    dtypes = frozenset({"f32"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """One plan per tiling; every matrix and n has some."""
        matrix = operands.sparse
        for tiling in tilings(problem.n, matrix.nnz / max(1, matrix.m)):
            yield make_plan(problem, operands, tiling)


def make_plan(problem: Problem, operands: Operands, tiling: Tiling) -> Plan:
    """The plan of one tiling for `problem`; `operands.dense["b"]` is (k, n)."""
    start = time.perf_counter()
    spans, row_ids, words = pack(operands.sparse, tiling.rows)
    block_n = tiling.lanes * tiling.vec
    grid = (row_ids.size // tiling.rows, -(-problem.n // block_n), 1)
    return Plan(
        variant=str(tiling),
        language="cuda",
        source="row_spmm.cu",
        defines={
            "LANES": tiling.lanes,
            "VEC": tiling.vec,
            "ROWS": tiling.rows,
            "PARTS": tiling.parts,
            "UNROLL": tiling.unroll,
            "ADJACENT": int(problem.n % tiling.vec == 0),
        },
        buffers={
            "spans": spans,
            "row_ids": row_ids,
            "words": words,
            "b": operands.dense["b"],
            "c": np.empty((problem.m, problem.n), dtype=np.float32),
        },
        output="c",
        launches=(
            Launch("row_spmm", grid, (tiling.threads, 1, 1), (problem.n, "spans", "row_ids", "words", "b", "c")),
        ),
        generate_ms=1e3 * (time.perf_counter() - start),
    )


register(RowStream())
