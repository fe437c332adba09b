"""16-bit storage of operands: fp16 as NumPy has it, bf16 as the upper half of fp32."""

from __future__ import annotations

import numpy as np

from nnzbench.plans.plan import Array


def stored(array: Array) -> Array:
    """fp16 as it is, fp32 that is rounded to bf16 as its upper half."""
    if array.dtype == np.float16:
        return array
    return (np.ascontiguousarray(array, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_bf16(halves: Array) -> Array:
    """The fp32 numbers whose upper halves are given."""
    return (halves.astype(np.uint32) << 16).view(np.float32)
