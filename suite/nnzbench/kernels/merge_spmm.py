"""MergeSpMM: SpMM by rows or by nonzeros, and the mean row length that chooses between them.

Yang, Buluc, Owens: "Design Principles for Sparse Matrix Multiplication on the GPU", Euro-Par 2018.
`kernels_cu/merge_spmm_rows.cu` and `kernels_cu/merge_spmm.cu` say who computes what.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnzbench.core.plan import Array, Launch, Plan, Unsupported
from nnzbench.core.tiles import MOST_GRID_Y
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import About, kernel

LONG_ROWS = 9.35
"""Mean nonzeros per row from which rows are split (the paper's section 5)."""
PITCHES = (32, 64, 128)
"""Columns for which the row-split kernel knows the pitch of B at compile time.

The authors' has 64 alone: the paper's times are of that case. The others are the sizes of Sputnik's figure 10.
"""
_TILE = 128


def merge_based(matrix: CSR) -> bool:
    """The paper's choice: by nonzeros where rows are short, else by rows."""
    return matrix.nnz < LONG_ROWS * matrix.m


def _buffers(matrix: CSR, b: Array) -> dict[str, Array]:
    """What both kernels take. Raises `Unsupported` for what neither can address."""
    n = b.shape[1]
    if matrix.m == 0 or n == 0:
        raise Unsupported("the output is empty")
    if max(matrix.k, matrix.m) * n >= 2**31:
        raise Unsupported(f"offsets are of 32 bits: {max(matrix.k, matrix.m)} rows of {n} columns have 2^31 or more")
    if -(-n // 32) > MOST_GRID_Y:
        raise Unsupported(f"{n} columns are more slabs of 32 than a grid holds")
    return {
        "offsets": matrix.offsets.astype(np.int32, copy=False),
        "indices": matrix.indices.astype(np.int32, copy=False),
        "values": np.ascontiguousarray(matrix.values),
        "b": np.ascontiguousarray(b),
        "c": np.zeros((matrix.m, n), np.float32),
    }


def row_split_plan(matrix: CSR, b: Array, label: str = "", fixed: bool = False) -> Plan:
    """The plan by rows, of any `b` (k, n); `fixed` for the kernel that knows n, one of `PITCHES`, at compile time.

    Raises `Unsupported` where the output is empty or offsets do not fit.
    """
    buffers = _buffers(matrix, b)
    n = b.shape[1]
    arguments = (matrix.m, n, "offsets", "indices", "values", "b", "c")
    launch = Launch("merge_spmm_rows", (-(-matrix.m // 4), -(-n // 32), 1), (128, 1, 1), arguments)
    name = "_".join(filter(None, (label, "row_split", f"n{n}" if fixed else "")))
    defines: dict[str, int | str] = {"PITCH": n if fixed else 0}
    return Plan(name, "cuda", "merge_spmm_rows.cu", defines, buffers, "c", (launch,))


def merge_plan(matrix: CSR, b: Array, label: str = "") -> Plan:
    """The plan by nonzeros, of any `b` (k, n); `cleared` in its name where empty rows need a launch that clears C.

    Raises `Unsupported` where the output is empty, the matrix has no nonzeros, or offsets do not fit.
    """
    buffers = _buffers(matrix, b)
    if not 0 < matrix.nnz <= 2**31 - _TILE:
        raise Unsupported(f"the merge-based kernel has no tiles for a matrix of {matrix.nnz} nonzeros")
    n, slabs, tiles = b.shape[1], -(-b.shape[1] // 32), -(-matrix.nnz // _TILE)
    buffers |= {"limits": np.zeros(tiles + 1, np.int32), "carry": np.zeros((tiles, n), np.float32)}
    split = (matrix.m, matrix.nnz, tiles, "offsets", "limits")
    product = (n, matrix.nnz, "offsets", "indices", "values", "limits", "b", "c", "carry")
    launches = [
        Launch("merge_partition", (-(-(tiles + 1) // 64), 1, 1), (64, 1, 1), split),
        Launch("merge_product", (tiles, slabs, 1), (_TILE, 1, 1), product),
    ]
    if tiles > 1:
        fix_up = (n, tiles, "limits", "carry", "c")
        launches.append(Launch("merge_fix_up", (-(-(tiles - 1) // 4), slabs, 1), (128, 1, 1), fix_up))
    empty = bool((matrix.row_lengths == 0).any())
    if empty:
        size = matrix.m * n
        launches.insert(0, Launch("merge_clear", (-(-size // 256), 1, 1), (256, 1, 1), (size, "c")))
    name = "_".join(filter(None, (label, "merge", "cleared" if empty else "")))
    return Plan(name, "cuda", "merge_spmm.cu", {}, buffers, "c", tuple(launches))


@kernel(
    "Yang, Buluc, Owens: Design Principles for Sparse Matrix Multiplication on the GPU, Euro-Par 2018",
    "spmm",
    "f32",
    About("paper", "MergeSpMM", rank=41),
)
def merge_spmm(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """C = A B by rows or by nonzeros: what the mean row length chooses (`heuristic_...`), then the others.

    Rows with the pitch known beforehand where it can be.
    """
    a, b = operands.sparse, operands.dense["b"]
    by_nonzeros = merge_based(a) and a.nnz > 0
    if by_nonzeros:
        yield merge_plan(a, b, "heuristic")
    fixed = b.shape[1] in PITCHES
    yield row_split_plan(a, b, "" if by_nonzeros else "heuristic", fixed)
    if fixed:
        yield row_split_plan(a, b)
    if a.nnz > 0 and not by_nonzeros:
        yield merge_plan(a, b)
