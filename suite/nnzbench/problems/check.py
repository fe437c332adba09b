"""The correctness gate: largest error against float64, measured by the products that were summed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.problems.operands import Reference
from nnzbench.problems.parts import Part, over_parts

TOLERANCE = {"f32": 1e-5, "winograd": 4e-5, "tf32": 2e-3, "f16": 2e-3, "bf16": 1.6e-2, "i8": 0.0}
"""Largest allowed error per arithmetic class, as a fraction of sum |a||b| of the element.

Inputs are already rounded to their class, so f32 errors come from the order of fp32 sums alone; `winograd` is fp32
whose transforms of tiles magnify that rounding; tf32 rounds each operand to 11 bits; f16 and bf16 round the stored
result; sums of i8 products are exact.
"""


_SMALLEST_STEP = float(np.finfo(np.float16).smallest_subnormal)


def relative_error(result: NDArray[Any], reference: Reference) -> float:
    """max |result - reference| / sum |a||b| over all elements; infinite for NaN, Inf or a wrong shape.

    Where nothing is summed (an empty row) the result must be exactly zero. Half a step of fp16's subnormals is no
    error of a result stored as fp16: no number is nearer.
    """
    half = result.dtype == np.float16
    if reference.sample is not None:
        if result.shape[:1] != (reference.sample.batch,):
            return float("inf")
        result = reference.sample.of(result)
    if result.shape != reference.value.shape:
        return float("inf")
    if result.size == 0:
        return 0.0
    nearest = _SMALLEST_STEP / 2 if half else 0.0

    def worst(part: Part) -> float:
        return _worst(result[part], reference.value[part], reference.scale[part], nearest)

    return max(over_parts(worst, result.shape))


def _worst(result: NDArray[Any], value: NDArray[Any], scale: NDArray[Any], nearest: float) -> float:
    """The largest error of a part, 0 where all differ by at most `nearest`; never NaN, which `max` would lose."""
    difference = np.subtract(result, value, dtype=np.float64)
    np.abs(difference, out=difference)
    filled: Any = True
    if scale.min() <= 0:
        filled = scale > 0
        if difference[~filled].any():
            return float("inf")
    if nearest:
        difference -= nearest  # NaN and Inf stay what they are
    np.divide(difference, scale, out=difference, where=filled)
    worst = max(float(difference.max()), 0.0)
    return worst if np.isfinite(worst) else float("inf")


def passes(error: float, math: str) -> bool:
    """Whether an error is within the tolerance of its arithmetic class. NaN never passes."""
    return error <= TOLERANCE[math]
