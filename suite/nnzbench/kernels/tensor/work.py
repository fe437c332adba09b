"""What `tensor_spmm` moves and decodes, expected of a matrix whose nonzeros lie anywhere: what its time is bound by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nnzbench.kernels.tensor.strips import STEP_COLUMNS, STRIP_ROWS, Form
from nnzbench.problems.problem import Problem

VALUE_BYTES = 2
_FEWEST_STEPS = 1e-4
_STEP_WEIGHTS = STRIP_ROWS * STEP_COLUMNS
_STEP_BYTES: Mapping[Form, int] = {"words": 32 * (4 + 1), "halves": 32 * (4 + 2), "bitmap": 32 * 4}
"""Of each lane its selection, and a bit per register, or per element of one; or its bitmaps."""
_CHUNK_STEPS = 8
_CHUNK_BYTES = 32 * 2
"""Of each lane where its words start."""


def _rounds(density: float) -> Iterator[tuple[float, float]]:
    """Steps of each round per step of columns as they come, and the share of their elements that are there.

    A group of four keeps its first two. So its third column is left over where all of the first three are there, its
    fourth where two of them are, and the next round has each such column of a strip once.
    """
    steps = 1.0
    while steps > _FEWEST_STEPS:
        yield steps, density
        third = density**3
        fourth = density * (3 * density**2 * (1 - density) + third)
        used = sum(1 - (1 - left) ** STRIP_ROWS for left in (third, fourth)) / 4
        steps *= used
        density = (third + fourth) / 4 / used if used else 0.0


def words_per_weight(density: float) -> float:
    """Words of two neighbouring elements that lanes take from their queues, per weight, zeros counted."""
    return sum(steps * (1 - (1 - share) ** 4) / 4 for steps, share in _rounds(density))


def bytes_per_weight(density: float, form: Form) -> float:
    """Bytes of the packed matrix per weight, zeros counted: entries, bits, selections, starts, and gathered columns."""
    steps = sum(steps for steps, _ in _rounds(density))
    per_step = _STEP_BYTES[form] + _CHUNK_BYTES / _CHUNK_STEPS
    entries = 4 * words_per_weight(density) if form == "words" else VALUE_BYTES * density
    return entries + (steps * per_step + (steps - 1) * 2 * STEP_COLUMNS) / _STEP_WEIGHTS


def structure_bytes(problem: Problem, nnz: int) -> int:
    """Bytes of the packed matrix beyond its nonzeros' values, in the smallest of its forms."""
    weights = problem.m * problem.k
    if weights == 0:
        return 0
    least = min(bytes_per_weight(nnz / weights, form) for form in _STEP_BYTES)
    return round(weights * least) - VALUE_BYTES * nnz
