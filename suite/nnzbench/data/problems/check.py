"""The correctness gate: largest error against float64, measured by the products that were summed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.data.problems.parts import Part, over_parts
from nnzbench.data.problems.reference import Reference

TOLERANCE = {
    "f32": 1e-5,
    "winograd": 4e-5,
    "tf32": 2e-3,
    "f16": 2e-3,
    "f16_sums": 4e-3,
    "bf16": 1.6e-2,
    "i8": 0.0,
    "f8": 2e-3,
    "i4": 1.6e-2,
    "f8_network": 4e-2,
}
"""Largest allowed error per arithmetic class, as a fraction of sum |a||b| of the element.

Inputs are already rounded to their class, so f32 errors come from the order of fp32 sums alone; `winograd` is fp32
whose transforms of tiles magnify that rounding; tf32 rounds each operand to 11 bits; f16 and bf16 round the stored
result; `f16_sums` also each sum of a run of 16 products, half a bit, which is 8e-3 if all went one way; `i4` are
weights that 4-bit codes stand for, times bf16; sums of i8 products are exact; f8 products are exact, their sums lose
bits in tensor cores and are stored as fp16; through tens of blocks of random weights (`f8_network`) that rounding comes
to a fifth of the result, a seventh of what other weights make of it.
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


class Wrong(Exception):
    """A candidate does not compute what it is given; the message is one sentence, `error` its relative error."""

    def __init__(self, sentence: str, error: float | None = None) -> None:
        super().__init__(sentence)
        self.error = error


def held(result: NDArray[Any], reference: Reference, math: str, where: str = "") -> float:
    """The error of a result. Raises `Wrong`, in words behind `where`, if it is not within its class's tolerance."""
    error = relative_error(result, reference)
    if not passes(error, math):
        raise Wrong(f"{where}{why(result, reference, error, math)}", error)
    return error


def why(result: NDArray[Any], reference: Reference, error: float, math: str) -> str:
    """What is wrong with a result whose error does not pass, in words that tell where to look.

    Looked for only here: an infinite error alone may be a shape, an element that no thread wrote, or an empty row.
    """
    wanted = "int32" if math == "i8" else "float16" if math in ("f16", "f8") else "float32"
    fits = result.dtype.itemsize <= 4 and (result.dtype.kind == "f" or math == "i8")
    kind = "" if fits else f"the output is {result.dtype}, not {wanted}: "
    return kind + (_what(result, reference) or f"relative error {error:.3g} is outside the {math} tolerance")


def _what(result: NDArray[Any], reference: Reference) -> str:
    """The wrong shape, the elements that are no numbers, or one that must be 0; empty where it is none of these."""
    sample = reference.sample
    shape = reference.value.shape if sample is None else (sample.batch, *reference.value.shape[1:])
    if result.shape != shape:
        return f"the output is {_sizes(result.shape)}, not {_sizes(shape)}"
    largest = np.iinfo(result.dtype).max if result.dtype.kind in "iu" else None  # what integers are filled with
    count, at = _find(np.isnan(result) if largest is None else result == largest)
    if count:
        told = f"{_of(count, result.size)} {largest or 'NaN'}, first at {_place(at)}"
        return f"{told}: never written, or computed so"
    count, at = _find(np.isinf(result))
    if count:
        return f"{_of(count, result.size)} infinite, first at {_place(at)}"
    checked = result if sample is None else sample.of(result)
    count, at = _find((checked != 0) & (reference.scale <= 0))
    if not count:
        return ""
    if sample is not None:  # of the images, the first that is not 0 there
        of_all: tuple[Any, ...] = (slice(None), *at[1:])
        at = (int((result[of_all] != 0).argmax()), *at[1:])
    elif result.ndim == 2 and not reference.scale[at[0]].any():
        return f"row {at[0]} is empty and must be 0, and has {result[at]:.3g} at {_place(at)}"
    return f"nothing is summed at {_place(at)}, which must be 0 and is {result[at]:.3g}"


def _find(wrong: NDArray[np.bool_]) -> tuple[int, tuple[int, ...]]:
    """How many elements are wrong, and the index of the first in row-major order."""
    count = int(np.count_nonzero(wrong))
    return count, tuple(map(int, np.unravel_index(int(wrong.argmax()), wrong.shape))) if count else ()


def _of(count: int, size: int) -> str:
    return f"all {size:,} elements are" if count == size else f"{count:,} of {size:,} elements are"


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"


def _place(at: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, at))})"
