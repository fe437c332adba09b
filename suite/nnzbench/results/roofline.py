"""Useful work of a problem and the roofline of a row: the least time this GPU could take for it.

Roofline = launch overhead + max(compute, memory), with every rate measured in the same run as the kernels
(`nnzbench.bench.peaks`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnzbench.core.gpus import Peaks
from nnzbench.data.problems import networks
from nnzbench.data.problems.decoder import Case
from nnzbench.data.problems.experiment import WARM
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ITEM_BYTES, NETWORKS, Problem
from nnzbench.kernels.registry import about

INDEX_BYTES = 4
LEAST_OF_LIMIT = 0.25
"""Shortest time as a part of the row's limit: caches and fast algorithms beat it, but never threefold on record."""
WINOGRAD_TILE = 4
"""Outputs along a side of the largest tile of Winograd's convolution that libraries offer, F(4x4, 3x3)."""
_RESULT_BYTES = {**ITEM_BYTES, "i8": 4, "f8": 2}


@dataclass(frozen=True)
class Work:
    """What must be done at least: floating-point operations and bytes moved once."""

    flops: float
    bytes: float


def useful_work(problem: Problem, operands: Operands, structure: int | None = None, operand: int | None = None) -> Work:
    """Two operations per nonzero per output column; CSR, dense operands and output moved once.

    Rows of a product's dense operand beyond the number of nonzeros are not read.

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
    if problem.op == "decoder":
        return Work(
            *Case.of(problem).work(matrix.nnz, structure + element * matrix.nnz if operand is None else operand)
        )
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
    weights = structure + element * matrix.nnz if operand is None else operand
    return product_work(problem, matrix.nnz, weights, dense if problem.conv else dense * _met(matrix.k, matrix.nnz))


def dense_work(problem: Problem, operands: Operands) -> Work:
    """The same problem with every weight multiplied: 2*m*k*n operations, three dense arrays moved once.

    Attention takes every key up to a query's last one, as a dense kernel that knows of causality may stop there.
    """
    element = ITEM_BYTES[problem.dtype]
    dense = sum(array.size for array in operands.dense.values())
    if problem.op == "decoder":
        case = Case.of(problem)
        return Work(*case.work(case.net.weights, element * case.net.weights))
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
    weights = operands.sparse.m * operands.sparse.k
    return product_work(problem, weights, element * weights, element * dense)


def product_work(problem: Problem, stored: int, weights: float, dense: float) -> Work:
    """Of a product or convolution: two operations per stored weight and output column; the bytes of the weights, those
    read of the dense operand, and the output moved once."""
    columns = _output_columns(problem)
    return Work(2.0 * stored * columns, float(weights + dense + _RESULT_BYTES[problem.dtype] * problem.m * columns))


def _met(k: int, nnz: int) -> float:
    """Share of the dense operand's rows that the nonzeros of a product meet at most."""
    return min(1.0, nnz / k) if k else 0.0


def winograd_saving(variant: str, shape: str) -> float:
    """By how much Winograd's algorithm multiplies less at most: 4 with a 3x3 filter, 1 where there is none.

    Engines of cuDNN in fp32 need not say that they multiply less; on tensor cores `winograd` is in the names of those.
    """
    size = re.search(r"_r(\d+)_s(\d+)", shape)
    if size is None or not ("winograd" in variant or variant.startswith("f32_")):
        return 1.0
    return math.prod(WINOGRAD_TILE * one / (WINOGRAD_TILE + one - 1) for one in map(int, size.groups()))


def _output_columns(problem: Problem) -> int:
    if problem.conv is None:
        return problem.n
    return problem.conv.batch * problem.conv.out_height * problem.conv.out_width


def row_work(kernel: str, problem: Problem, operands: Operands, variant: str = "") -> Work:
    """Work that bounds a kernel's time, as it says itself: the dense product's, or the useful work on its structure."""
    said = about(kernel)
    if said.work == "dense":
        work = dense_work(problem, operands)
        return Work(work.flops / winograd_saving(variant, problem.shape), work.bytes)
    nnz = operands.sparse.nnz
    structure = said.structure_bytes(problem, nnz) if said.structure_bytes else None
    return useful_work(problem, operands, structure, said.operand_bytes(problem, nnz) if said.operand_bytes else None)


def roofline_us(work: Work, peaks: Peaks, policy: str, math: str) -> float | None:
    """Least time for `work` in arithmetic class `math`, microseconds; None where a peak was not measured.

    Hot operands move at L2 bandwidth as far as L2 holds them, the rest at the bandwidth of a copy in device memory, and
    so do all where they are cold or streamed: of the latter L2 holds the dense ones, the smaller part.
    """
    overhead = peaks.floor_us(policy)
    tflops = 0.0 if math in ("i8", "f8") else peaks.tflops(math)
    held = min(work.bytes, peaks.l2_bytes or 0) if policy in WARM else 0
    if overhead is None or not tflops > 0 or not peaks.copy_gbs or (held and not peaks.l2_gbs):
        return None
    memory = (work.bytes - held) / peaks.copy_gbs + (held / peaks.l2_gbs if peaks.l2_gbs else 0)
    return overhead + max(work.flops / tflops * 1e-6, memory * 1e-3)


def recorded_us(row: Any, peaks: Peaks) -> float:
    """The roofline of a record with its `math`, µs, by what its algorithm has to do at least; NaN where there is none.

    Of products and convolutions it follows from the row's sizes, and is never above what the row says, which older rows
    set too high: of Winograd's convolution, 2:4 operands, few nonzeros, and operands that L2 holds in part.
    """
    limit = math.nan if row.limit_us is None else float(row.limit_us)
    work = None if math.isnan(limit) else _recorded_work(row)
    least = roofline_us(work, peaks, row.policy, row.math) if work else None
    return limit if least is None else min(limit, least)


def _recorded_work(row: Any) -> Work | None:
    """Of a record; None where its sizes do not tell, as of whole networks."""
    said = about(row.kernel)
    if row.op == "gemm" and not row.shape:
        return Work(row.flops, row.bytes)
    if row.op in ("conv1d", "conv2d") and "bias_relu" not in row.shape and row.shape not in NETWORKS:
        done = row.flops / (1 - row.sparsity) / winograd_saving(row.variant, row.shape) if row.sparsity < 1 else 0.0
        return Work(done if said.work == "dense" else row.flops, row.bytes)
    if row.op not in ("spmm", "spmv") or row.shape:
        return None
    element, weights = ITEM_BYTES[row.dtype], row.m * row.k
    problem = Problem(row.experiment, row.problem, row.op, row.m, row.k, row.n, row.sparsity, row.source, row.dtype)
    if said.work == "dense":
        return product_work(problem, weights, element * weights, element * row.k * row.n)
    structure = INDEX_BYTES * (row.nnz + row.m + 1)
    if said.structure_bytes:
        structure = said.structure_bytes(problem, row.nnz)
    weights = said.operand_bytes(problem, row.nnz) if said.operand_bytes else structure + element * row.nnz
    read = element * row.k * row.n * _met(row.k, row.nnz)
    return Work(row.flops, product_work(problem, row.nnz, weights, read).bytes)


def sol_score(us: Any, limit_us: Any, dense_us: Any) -> Any:
    """0.5 at the time of the best dense product, 1 at the roofline, towards 0 for what is slower: the speed-of-light
    score of SOL-ExecBench. NaN where dense is not above the roofline."""
    left = (dense_us - limit_us).where(dense_us > limit_us)
    return 1 / (1 + (us - limit_us).clip(lower=0) / left)


def impossible(median_us: float, limit_us: float) -> str:
    """The sentence on a median below `LEAST_OF_LIMIT` of the limit."""
    return f"the median {median_us:g} us is below a quarter of what this GPU could take, {limit_us:g} us"
