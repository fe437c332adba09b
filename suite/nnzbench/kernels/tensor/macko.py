"""Kernel `macko`: MACKO's product of a sparse matrix and one vector (arXiv 2511.13061), from 20 bits an entry.

Its format: values of 16 bits, steps of 4 bits between columns, and entries of value 0 where a step does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.plan import Array, Int64s, Launch, Plan, SharedWork, Unsupported
from nnzbench.data.matrices.formats import CSR, prefix_sums
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.tensor.spmv import entries, over_rows

_LONGEST = 16
"""Columns from an entry to the next one."""
_TOGETHER = 8
_WARPS = 32


def pack(matrix: CSR) -> dict[str, Array]:
    """Packs a matrix of fp16 values; entries of 0.0 and -0.0 count as absent.

    The buffers of `macko.cu`, whose header explains them. Raises `Unsupported` where there are too many entries for
    32-bit offsets.
    """
    counts, values, steps = map(np.concatenate, zip(*over_rows(matrix, _rows), strict=True))
    offsets = prefix_sums(counts)
    if offsets[-1] >= 1 << 31:
        raise Unsupported(f"{offsets[-1]} entries, zeros included, are too many for 32-bit offsets")
    values, steps = (np.pad(one, (0, -one.size % _TOGETHER)) for one in (values, steps))
    words = (steps[::2] | steps[1::2] << 4).view("<u4")
    return {"offsets": offsets.astype(np.int32), "values": values.reshape(-1, _TOGETHER), "steps": words}


def _rows(matrix: CSR, first: int, last: int) -> tuple[Int64s, NDArray[np.uint16], NDArray[np.uint8]]:
    """Of rows `first` to `last - 1` how many entries each has, and of each entry its value and its step."""
    row, column, values = entries(matrix, first, last)
    begins = np.diff(row, prepend=-1) != 0
    gap = np.where(begins, column, np.diff(column, prepend=-1) - 1)
    between = gap // _LONGEST  # zeros that stand before the entry
    place = np.arange(row.size) + np.cumsum(between)
    counts = np.bincount(row, weights=between + 1, minlength=last - first).astype(np.int64)
    value, step = np.zeros(counts.sum(), np.uint16), np.full(counts.sum(), _LONGEST - 1, np.uint8)
    value[place], step[place] = values, gap % _LONGEST
    return counts, value, step


def structure_bytes(problem: Problem, nnz: int) -> int:
    """Half a byte a nonzero and 4 bytes a row, without the zeros that stand between."""
    return -(-nnz // 2) + 4 * (problem.m + 1)


@kernel(
    "Macko, Boža: MACKO, arXiv 2511.13061",
    "spmm spmv",
    "f16",
    About("paper", label="MACKO", rank=138, structure_bytes=structure_bytes, nothing_to_tune=True),
)
def macko(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """MACKO's kernel, a warp for each row.

    Raises `Unsupported` for more than one column of B, and for empty outputs.
    """
    if problem.n != 1:
        raise Unsupported(f"one column of B alone, not {problem.n}")
    if problem.m == 0:
        raise Unsupported("the output is empty")
    elapsed = SharedWork().timer()
    buffers = {
        **pack(operands.sparse),
        "x": np.ascontiguousarray(operands.dense["b"]),
        "y": np.empty((problem.m, 1), np.float16),
    }
    launch = Launch("macko", (-(-problem.m // _WARPS), 1, 1), (32 * _WARPS, 1, 1), (problem.m, *buffers))
    yield Plan("rows", "cuda", "macko.cu", {}, buffers, "y", (launch,), math="f16", generate_ms=elapsed())
