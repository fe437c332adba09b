"""Slices of K of a packed matrix: what a warp of `tensor_spmm.cu` starts from in its strip's slice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnzbench.kernels.tensor.strips import Strips


def slice_starts(packed: Strips, slices: int) -> NDArray[np.int32]:
    """What a warp looks up first, (strips, slices, 12): see `SliceStart` in `tensor_spmm_copies.cuh`."""
    panels = packed.panels
    first = panels * np.arange(slices, dtype=np.int64) // slices
    behind = panels * np.arange(1, slices + 1, dtype=np.int64) // slices
    strip = panels * np.arange(packed.strips, dtype=np.int64)[:, None]
    chunk, last = packed.panel_chunks[strip + first], packed.panel_chunks[strip + behind]
    following = packed.panel_chunks[strip + np.minimum(first + 1, behind)]
    places = packed.offsets[np.minimum(chunk[..., None] + np.arange(8), last[..., None])]
    return np.concatenate([np.stack([chunk, last, following, last], axis=-1), places], axis=-1)


def first_chunks(packed: Strips, slices: int) -> NDArray[np.uint32]:
    """The first chunk of each strip's slices once more, (strips, slices, slot_bytes / 16, 4).

    So a warp knows where it is without looking it up. As long as the largest chunk: behind a shorter one comes what
    follows it in the stream.
    """
    units = packed.slot_bytes // 16
    if not packed.stream.size:
        return np.zeros((packed.strips, slices, units, 4), dtype=np.uint32)
    starts = slice_starts(packed, slices)[..., 4]
    units_of_each = np.minimum(starts[..., None] + np.arange(units), len(packed.stream) - 1)
    heads: NDArray[np.uint32] = packed.stream[units_of_each]
    return heads
