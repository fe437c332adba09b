"""The middle step of dense attention: softmax of dense scores over a bit mask (`kernels_cu/masked_softmax.cu`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Array, Plan, Unsupported
from nnzbench.plans.tiles import TileConfiguration

_MOST_ITEMS = 64


@dataclass(frozen=True)
class Row(TileConfiguration):
    """A block to a row, `items` scores to a thread."""

    threads: int
    items: int

    @property
    def name(self) -> str:
        return f"t{self.threads}_i{self.items}"


def mask_bits(mask: CSR) -> NDArray[np.uint32]:
    """The mask's positions as bits, (m, ceil(k / 32)): column j is bit j % 32 of word j / 32."""
    words = -(-mask.k // 32)
    bits = np.zeros((mask.m, words), dtype=np.uint32)
    rows = np.repeat(np.arange(mask.m), mask.row_lengths)
    # a position occurs once, so that adding its bit is setting it
    np.add.at(bits, (rows, mask.indices // 32), np.uint32(1) << (mask.indices % 32).astype(np.uint32))
    return bits


def masked_softmax_plan(mask: CSR, scores: Array) -> Plan:
    """In place over `scores` (m, k) float32. Raises `Unsupported` for rows longer than a block can hold."""
    threads = min(512, max(32, -(-mask.k // 32) * 32))
    items = -(-mask.k // threads)
    if items > _MOST_ITEMS:
        raise Unsupported(f"a row of {mask.k} scores is more than a block holds")
    bits = mask_bits(mask)
    grid, sizes = (mask.m, 1, 1), (mask.k, bits.shape[1])
    return Row(threads, items).plan("masked_softmax", grid, sizes, {"mask": bits, "x": scores})
