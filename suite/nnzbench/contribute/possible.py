"""What a row can't say by itself: times below its own limit, sizes and counts that the indices contradict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from nnzbench.contribute.published import Matrix, matrix
from nnzbench.matrices import index
from nnzbench.measure.roofline import LEAST_OF_LIMIT, impossible
from nnzbench.plans.plan import one_line
from nnzbench.problems.problem import NETWORKS, Op, Problem, parse
from nnzbench.problems.sources import load_sparse
from nnzbench.records.record import Record

_CLOSE = 1e-4
"""Relative: cells have six digits."""
_REGENERATED = 1 << 20
"""Most elements of a generated pattern that is made again to be compared."""
_MOST_REGENERATED = 24
_MADE = frozenset({"uniform", "equal_rows", "cov", "banded", "balanced", "nm", "block"})


def numbers(row: Record) -> Iterator[str]:
    """Sizes, work and times that contradict one another."""
    if row.pattern:
        for column in ("m", "k", "n"):
            if getattr(row, column) < 1:
                yield f"`{column}` is {getattr(row, column)}"
        elements = row.m * (row.n if row.op == "sddmm" else row.k)
        if row.nnz > elements:
            yield f"{row.nnz} nonzeros do not fit a matrix of {elements} elements"
        flops = _flops(row)
        if flops is not None and abs(row.flops - flops) > _CLOSE * flops:
            yield f"`flops` is {row.flops:g} where {row.nnz} nonzeros make {flops:g}"
    if row.median_us is None:
        return
    lacking = [name for name in ("q1_us", "q3_us", "samples", "floor_us") if getattr(row, name) is None]
    if lacking:
        yield f"there is a median, and no `{'`, `'.join(lacking)}`"
    if row.q1_us is not None and row.q3_us is not None and not row.q1_us <= row.median_us <= row.q3_us:
        yield f"the median {row.median_us:g} us is not between its quartiles {row.q1_us:g} and {row.q3_us:g}"
    if row.floor_us is not None and row.median_us < row.floor_us:
        yield f"the median {row.median_us:g} us is below the time of an empty kernel, {row.floor_us:g} us"
    if row.limit_us is not None:
        if row.floor_us is not None and row.limit_us < row.floor_us:
            yield f"the limit {row.limit_us:g} us is below the time of an empty kernel, {row.floor_us:g} us"
        if row.median_us < LEAST_OF_LIMIT * row.limit_us:
            yield impossible(row.median_us, row.limit_us)


def _flops(row: Record) -> float | None:
    """Useful operations as `records.md` defines them; None for a network or a step of one."""
    if row.op == "sparse_softmax":
        return 4.0 * row.nnz
    network = any(word in row.shape for word in ("attention", "bias_relu", *NETWORKS))
    if network or row.op == "gemm":
        return None
    return 2.0 * row.nnz * (row.k if row.op == "sddmm" else row.n)


def sources(rows: Sequence[Record]) -> Iterator[str]:
    """Patterns against the indices of the collections, and against what generates them."""
    made = [row for row in rows if row.pattern]
    seen: dict[Matrix, str] = {}
    told: set[str] = set()
    again = 0
    for row in {(row.problem, row.source, row.pattern, row.nnz): row for row in made}.values():
        kind, _, name = row.source.partition(":")
        if kind in ("dlmc", "weights"):
            key = matrix(row.source, row.op, row.shape)
            if seen.setdefault(key, row.pattern) != row.pattern and row.source not in told:
                told.add(row.source)
                yield f"{row.source} has two patterns, {seen[key]} and {row.pattern}"
            yield from _indexed(row, kind, name)
        elif kind in _MADE and again < _MOST_REGENERATED and row.m * max(row.k, 1) <= _REGENERATED:
            again += 1
            yield from _generated(row)


def _indexed(row: Record, kind: str, name: str) -> Iterator[str]:
    entry: Any = index.dlmc().get(name) if kind == "dlmc" else index.weights().get(name)
    if entry is None:
        yield f"{row.source} is not in the index of that collection"
        return
    sizes = (row.m, row.n if row.op == "sddmm" else row.k)
    if sizes != (entry.rows, entry.cols):
        yield f"{row.source} is {entry.rows} x {entry.cols}, and {row.problem} has {sizes[0]} x {sizes[1]}"
    elif row.nnz != entry.nnz:
        yield f"{row.source} has {entry.nnz} nonzeros, and {row.problem} has {row.nnz}"


def _generated(row: Record) -> Iterator[str]:
    """What the source and the level in the problem's name make, made again."""
    parts = parse(row.problem)
    if parts is None or row.op not in get_args(Op):
        return
    op: Op = "sddmm" if row.op == "sddmm" else "spmm"
    level = float(parts.level) / 100
    try:
        matrix = load_sparse(Problem(row.experiment, row.problem, op, row.m, row.k, row.n, level, row.source))
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:  # numbers that fit no generator
        yield f"{row.source} can't be made for {row.problem} ({one_line(error)})"
        return
    if matrix.nnz != row.nnz:
        yield f"{row.source} makes {matrix.nnz} nonzeros for {row.problem}, and its rows have {row.nnz}"
    elif matrix.pattern_hash() != row.pattern:
        yield f"{row.source} makes the pattern {matrix.pattern_hash()} for {row.problem}, its rows have {row.pattern}"
