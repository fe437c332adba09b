"""Softmax over the nonzeros of every row, the middle step of sparse attention (`kernels_cu/sparse_softmax.cu`).

Gale, Zaharia, Young, Elsen: "Sparse GPU Kernels for Deep Learning", SC 2020, section VII-C.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import About
from nnzbench.kernels.rows import row_records
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Array, Launch, Plan, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

SOURCE = "sparse_softmax.cu"


def softmax_plan(matrix: CSR, width: int = 32, rows: int = 4, items: int = 8) -> Plan:
    """The plan of one configuration: `width` threads per row, `rows` rows per block, `items` entries kept per thread.

    Raises `Unsupported` where the matrix has no nonzeros.
    """
    if matrix.nnz == 0:
        raise Unsupported("the matrix has no nonzeros")
    half = matrix.values.dtype == np.float16
    buffers: dict[str, Array] = {
        "rows": row_records(matrix),
        "x": np.ascontiguousarray(matrix.values),
        "y": np.zeros(matrix.nnz, matrix.values.dtype),
    }
    launch = Launch("sparse_softmax", (-(-matrix.m // rows), 1, 1), (width, rows, 1), (matrix.m, "rows", "x", "y"))
    return Plan(
        variant=f"w{width}_y{rows}_i{items}",
        language="cuda",
        source=SOURCE,
        defines={"BLOCK_WIDTH": width, "BLOCK_ROWS": rows, "ITEMS": items, "F16": int(half)},
        buffers=buffers,
        output="y",
        launches=(launch,),
        math="f16" if half else "f32",
    )


@dataclass(frozen=True)
class SparseSoftmax:
    """Row-wise softmax of the stored entries."""

    name: str = "sparse_softmax"
    paper: str = "Gale, Zaharia, Young, Elsen: Sparse GPU Kernels for Deep Learning, SC 2020, section VII-C"
    ops: frozenset[str] = frozenset({"sparse_softmax"})
    dtypes: frozenset[str] = frozenset({"f32", "f16"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """Narrow subwarps for short rows, whole warps with many entries per thread for long ones."""
        for width, rows, items in ((32, 4, 8), (32, 4, 32), (32, 1, 32), (16, 8, 8), (8, 16, 8)):
            yield softmax_plan(operands.sparse, width, rows, items)


register(SparseSoftmax(), About("paper", rank=30))
