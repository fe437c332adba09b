"""Useful work of a problem and the roofline of a row: the least time this GPU could take for it.

Roofline = launch overhead + max(compute, memory), with every rate measured in the same run (`peaks.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnzbench.kernels.registry import about
from nnzbench.measure.peaks import Peaks
from nnzbench.problems import networks
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import ITEM_BYTES, NETWORKS, Problem

INDEX_BYTES = 4
_RESULT_BYTES = {**ITEM_BYTES, "i8": 4, "f8": 2}


@dataclass(frozen=True)
class Work:
    """What must be done at least: floating-point operations and bytes moved once."""

    flops: float
    bytes: float


def useful_work(problem: Problem, operands: Operands, structure: int | None = None, operand: int | None = None) -> Work:
    """Two operations per nonzero per output column; CSR, dense operands and output moved once.

    Values and dense elements take the size of `problem.dtype`, indices and offsets 4 bytes, or `structure` bytes in
    all; with `operand` the sparse operand of a product takes so many bytes in all. A softmax counts four operations per
    nonzero (maximum, exponential, sum, quotient), and attention two products and one softmax.
    """
    element = ITEM_BYTES[problem.dtype]
    matrix = operands.sparse
    if structure is None:
        structure = INDEX_BYTES * (matrix.nnz + matrix.m + 1)
    dense = element * sum(array.size for array in operands.dense.values())
    if problem.op == "gemm":
        return dense_work(problem, operands)
    if problem.op in NETWORKS:
        output = element * networks.outputs(problem)
        return Work(networks.flops(problem, operands.sparse, dense=False), float(structure + dense + output))
    if problem.op == "attention":
        output = element * problem.m * problem.n
        return Work(4.0 * matrix.nnz * (problem.n + 1), float(structure + dense + output))
    if problem.op == "sparse_softmax":
        return Work(4.0 * matrix.nnz, INDEX_BYTES * (matrix.m + 1) + 2.0 * element * matrix.nnz)
    if problem.op == "sddmm":
        return Work(2.0 * matrix.nnz * problem.k, float(structure + dense + element * matrix.nnz))
    output = _output_columns(problem)
    weights = structure + element * matrix.nnz if operand is None else operand
    return Work(2.0 * matrix.nnz * output, float(weights + dense + _RESULT_BYTES[problem.dtype] * matrix.m * output))


def dense_work(problem: Problem, operands: Operands) -> Work:
    """The same problem with every weight multiplied: 2*m*k*n operations, three dense arrays moved once.

    Attention takes every key up to a query's last one, as a dense kernel that knows of causality may stop there.
    """
    element = ITEM_BYTES[problem.dtype]
    dense = sum(array.size for array in operands.dense.values())
    if problem.op in NETWORKS:
        output = element * networks.outputs(problem)
        return Work(networks.flops(problem, operands.sparse, dense=True), float(element * dense + output))
    if problem.op == "sddmm":
        return Work(2.0 * problem.m * problem.n * problem.k, float(element * (dense + problem.m * problem.n)))
    if problem.op == "attention":
        mask = operands.sparse
        last = mask.indices[mask.offsets[1:][mask.row_lengths > 0] - 1]
        seen = float(np.sum(last, dtype=np.int64) + last.size)
        return Work(4.0 * seen * (problem.n + 1), float(element * (dense + problem.m * problem.n)))
    columns, m, k = _output_columns(problem), operands.sparse.m, operands.sparse.k
    return Work(2.0 * m * k * columns, float(element * (m * k + dense) + _RESULT_BYTES[problem.dtype] * m * columns))


def _output_columns(problem: Problem) -> int:
    if problem.conv is None:
        return problem.n
    return problem.conv.batch * problem.conv.out_height * problem.conv.out_width


def row_work(kernel: str, problem: Problem, operands: Operands) -> Work:
    """Work that bounds a kernel's time, as it says itself: the dense product's, or the useful work on its structure."""
    said = about(kernel)
    if said.work == "dense":
        return dense_work(problem, operands)
    nnz = operands.sparse.nnz
    structure = said.structure_bytes(problem, nnz) if said.structure_bytes else None
    return useful_work(problem, operands, structure, said.operand_bytes(problem, nnz) if said.operand_bytes else None)


def roofline_us(work: Work, peaks: Peaks, policy: str, math: str) -> float | None:
    """Least time for `work` in arithmetic class `math`, microseconds; None where a peak was not measured.

    Hot operands that fit in L2 move at L2 bandwidth, all others at the bandwidth of a copy in device memory.
    """
    overhead = peaks.floor_us(policy)
    tflops = {"f32": peaks.fp32_tflops, "tf32": peaks.tf32_tflops, "i8": None, "f8": None}.get(math, peaks.f16_tflops)
    in_l2 = policy == "hot" and peaks.l2_bytes is not None and work.bytes <= peaks.l2_bytes
    gbs = peaks.l2_gbs if in_l2 else peaks.copy_gbs
    if overhead is None or not tflops or not gbs:
        return None
    return overhead + max(work.flops / tflops * 1e-6, work.bytes / gbs * 1e-3)
