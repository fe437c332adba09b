"""Kernel `tensor_spmm_tf32`: `tensor_spmm` for fp32 matrices, multiplied in the arithmetic of TF32."""

from __future__ import annotations

from collections.abc import Iterator

from nnzbench.kernels.registry import kernel
from nnzbench.kernels.roles import About
from nnzbench.kernels.tensor.spmm import Shape, plans, tilings
from nnzbench.kernels.tensor.strips import STRIP_ROWS
from nnzbench.plans.architectures import architecture
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

# as in `spmm.py`
_SHAPES = {
    8: (Shape(8, 8, 4, 512, 2, 2, early=True), Shape(8, 4, 2, 256, 2, 1)),
    16: (Shape(16, 8, 4, 256, 2, 2, early=True), Shape(16, 4, 2, 128, 2, 1)),
    32: (Shape(32, 8, 4, 128, 2, 2, early=True), Shape(32, 16, 4, 256, 2, 1, early=True), Shape(32, 4, 2, 128, 2, 1)),
    64: (Shape(64, 8, 4, 128, 2, 1, early=True), Shape(64, 4, 1, 64, 2, 1)),
}


def structure_bytes(problem: Problem, nnz: int) -> int:
    """A bit an element, and of 32 x 128 elements 64 bytes where lanes' values start and 4 where the chunk does."""
    return problem.m * problem.k // 8 + 68 * -(-problem.m // STRIP_ROWS) * -(-problem.k // 128)


@kernel(
    "nnzbench",
    "spmm",
    "f32",
    About("own", maths=frozenset({"tf32"}), structure_bytes=structure_bytes, rank=136),
)
def tensor_spmm_tf32(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Own SpMM on tensor cores for fp32 matrices without structure; its rows are of class `tf32`.

    Raises `Unsupported` before sm_80, whose tensor cores have no TF32, and where no tiling's rings fit.
    """
    if not architecture(arch).has("mma_tf32"):
        raise Unsupported(f"tensor cores of {arch} do not multiply in TF32")
    yield from plans(problem, operands, arch, tilings(problem, operands.sparse, arch, _SHAPES, "tf32"))
