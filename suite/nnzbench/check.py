"""The correctness gate: largest error against float64, measured by the products that were summed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.operands import Reference

TOLERANCE = {"f32": 1e-5, "tf32": 2e-3, "f16": 2e-3, "bf16": 1.6e-2}
"""Largest allowed error per arithmetic class, as a fraction of sum |a||b| of the element.

Inputs are already rounded to their class, so f32 errors come from the order of fp32 sums alone; tf32 rounds each
operand to 11 bits; f16 and bf16 round the stored result.
"""


def relative_error(result: NDArray[Any], reference: Reference) -> float:
    """max |result - reference| / sum |a||b| over all elements; infinite for NaN, Inf or a wrong shape.

    Where nothing is summed (an empty row) the result must be exactly zero.
    """
    if result.shape != reference.value.shape:
        return float("inf")
    if result.size == 0:
        return 0.0
    difference = np.abs(result.astype(np.float64) - reference.value)
    scale = reference.scale
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(difference == 0, 0.0, difference / scale)
    worst = float(np.max(error))
    return worst if np.isfinite(worst) else float("inf")


def passes(error: float, math: str) -> bool:
    """Whether an error is within the tolerance of its arithmetic class. NaN never passes."""
    return error <= TOLERANCE[math]
