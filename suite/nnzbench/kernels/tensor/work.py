"""What `tensor_spmm` moves and decodes, expected of a matrix whose nonzeros lie anywhere: what its time is bound by."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from nnzbench.kernels.tensor.strips import FORMS, FP8_FORMS, STEP_COLUMNS, STRIP_ROWS, Form
from nnzbench.problems.problem import ITEM_BYTES, Problem

_FEWEST_STEPS = 1e-4
_STEP_WEIGHTS = STRIP_ROWS * STEP_COLUMNS
_STEP_BYTES: Mapping[Form, int] = {"words": 32 * (4 + 1), "halves": 32 * (4 + 2), "bitmap": 32 * 4}
"""Of each lane its selection, and a bit per register, or per element of one; or its bitmaps."""
_CHUNK_STEPS = 8
_CHUNK_BYTES = 32 * 2
"""Of each lane where its words start."""


def _rounds(density: float) -> Iterator[tuple[float, float]]:
    """Steps of each round per step of columns as they come, and the share of their elements that are there.

    A group of four keeps two. One column is left over where one will do for all rows of a strip with three: it is in
    each of them, and no row has four; else two are. The next round has each such column of a strip once.
    """
    steps = 1.0
    while steps > _FEWEST_STEPS:
        yield steps, density
        three, four = density**3 * (1 - density), density**4  # of one row, each of four such patterns
        two = 1 - 4 * three - four
        # by how many of the four columns would do for all rows, each alone
        one_does = sum(-math.comb(4, n) * (-1) ** n * (two + (4 - n) * three) ** STRIP_ROWS for n in range(1, 5))
        used = (2 - two**STRIP_ROWS - one_does) / 4
        steps *= used
        density = (three + four / 2) / used if used > 0 else 0.0


def words_per_weight(density: float) -> float:
    """Words of two neighbouring elements that lanes take from their queues, per weight, zeros counted."""
    return sum(steps * (1 - (1 - share) ** 4) / 4 for steps, share in _rounds(density))


def bytes_per_weight(density: float, form: Form, value_bytes: int = 2) -> float:
    """Bytes of the packed matrix per weight, zeros counted: entries, bits, selections, starts, and gathered columns."""
    steps = sum(steps for steps, _ in _rounds(density))
    per_step = _STEP_BYTES[form] + _CHUNK_BYTES / _CHUNK_STEPS
    entries = value_bytes * (2 * words_per_weight(density) if form == "words" else density)
    return entries + (steps * per_step + (steps - 1) * 2 * STEP_COLUMNS) / _STEP_WEIGHTS


def structure_bytes(problem: Problem, nnz: int) -> int:
    """Bytes of the packed matrix beyond its nonzeros' values, in the smallest of its forms."""
    weights = problem.m * problem.k
    if weights == 0:
        return 0
    value_bytes = ITEM_BYTES[problem.dtype]
    forms = FORMS if value_bytes > 1 else FP8_FORMS
    least = min(bytes_per_weight(nnz / weights, form, value_bytes) for form in forms)
    return round(weights * least) - value_bytes * nnz
