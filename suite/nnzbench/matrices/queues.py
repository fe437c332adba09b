"""How evenly interleaved processing elements work: EIE's and ESE's queues before each element, simulated.

EIE (ISCA 2016, section III-B) and ESE (FPGA 2017, section 4) give row i to element i mod n. One nonzero input after
another is handed to all elements at once; an element takes a clock for each entry that it has in the input's column.
A queue before each element lets the others go ahead of one that has more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.encodings import CODEBOOK, Coded, slices
from nnzbench.matrices.formats import CSR

DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Of EIE's figure 8."""


def entries_by_element(matrix: CSR, elements: int) -> NDArray[np.int64]:
    """(k, elements): entries of each column that each element holds, those that only break a run of zeros included."""
    coded = Coded(matrix.transposed(), np.ones(matrix.nnz, np.uint8), np.zeros(CODEBOOK, np.float32))
    entries: NDArray[np.int64] = slices(coded, elements, -(-matrix.m // elements) * elements).lengths[0]
    return entries


def utilisation(entries: NDArray[np.int64], depths: Sequence[int]) -> list[float]:
    """Share of all elements' clocks in which they work, by depth of their queues; `entries` as (inputs, elements).

    An input is handed over, one a clock, when every queue has room: `depth` inputs back, all elements have finished.
    Depth 1 is no queue. An element without entries in a column takes a clock to find that out, and is idle in it.
    """
    inputs, elements = entries.shape
    if not entries.sum():
        return [0.0 for _ in depths]
    back = np.asarray(depths)
    finished = np.zeros((inputs + 1, len(depths), elements), np.int64)  # row 0: before the first
    slowest = np.zeros((inputs + 1, len(depths)), np.int64)
    handed = np.full(len(depths), -1)
    clocks = np.maximum(entries, 1)
    which = np.arange(len(depths))
    for number in range(1, inputs + 1):
        handed = np.maximum(handed + 1, slowest[np.maximum(number - back, 0), which])
        finished[number] = np.maximum(handed[:, None], finished[number - 1]) + clocks[number - 1]
        slowest[number] = finished[number].max(axis=1)
    return [float(entries.sum() / (elements * last)) for last in slowest[-1]]
