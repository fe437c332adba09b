"""Kernel `delta_spmv`: sparse matrix times one vector in 16-bit types, from a format of 22 bits a nonzero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnzbench.kernels.registry import kernel
from nnzbench.kernels.roles import About
from nnzbench.kernels.rows import power_of_two_at_least
from nnzbench.kernels.tensor.delta import CHUNK, MOST_COLUMNS, Chunks, pack
from nnzbench.kernels.tensor.halves import from_bf16, stored
from nnzbench.plans.architectures import architecture, block_shared_bytes, sm_count
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.plans.shared_work import SharedWork
from nnzbench.plans.tiles import TileConfiguration
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

_WARPS = 16
_BLOCKS = (2, 3)
"""Per multiprocessor: registers for loads against warps that wait for them."""


@dataclass(frozen=True)
class Tiling(TileConfiguration):
    """Lanes of a row, a power of two up to 32, and blocks per multiprocessor."""

    DEFINES: ClassVar = {"lanes": "", "warps": ""}
    lanes: int
    blocks: int
    warps: int = _WARPS

    @property
    def name(self) -> str:
        return f"l{self.lanes}_b{self.blocks}"


def make_plan(
    problem: Problem, operands: Operands, arch: str, lanes: int, blocks: int, shared: SharedWork | None = None
) -> Plan:
    """The plan of `Tiling(lanes, blocks)`; `operands.dense["b"]` is (k, 1), in fp16, or in fp32 rounded to bf16.

    Raises `Unsupported` where x does not fit in shared memory.
    """
    shared = shared or SharedWork()
    elapsed = shared.timer()
    bytes_of_x = -(-2 * (problem.k + CHUNK) // 16) * 16
    if bytes_of_x > block_shared_bytes(arch):
        raise Unsupported(f"a vector of {problem.k} does not fit in the shared memory of {arch}")
    bf16 = problem.dtype == "bf16"
    sparse = operands.sparse
    packed: Chunks = shared.once_for(sparse, "delta_spmv", lambda: pack(sparse.with_values(stored(sparse.values))))
    resident = min(blocks, block_shared_bytes(arch) // bytes_of_x)
    needed = -(-problem.m // (_WARPS * 32 // lanes))
    x = stored(operands.dense["b"])
    return Tiling(lanes, blocks).plan(
        "delta_spmv",
        (min(resident * sm_count(arch), needed), 1, 1),
        (problem.m, problem.k, lanes),
        {**vars(packed), "x": x, "y": np.empty((problem.m, 1), dtype=x.dtype)},
        defines={"BF16": int(bf16)},
        shared_bytes=bytes_of_x,
        generate_ms=elapsed(),
        unpermute=from_bf16 if bf16 else None,
    )


def structure_bytes(problem: Problem, nnz: int) -> int:
    """12 bytes for 16 nonzeros and 4 a row, without the zeros that stand between or fill up."""
    return 12 * -(-nnz // CHUNK) + 4 * (problem.m + 1)


@kernel("nnzbench", "spmm spmv", "f16 bf16", About("own", rank=137, structure_bytes=structure_bytes))
def delta_spmv(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Own product of a sparse matrix and one vector: plans by lanes for a row and blocks per multiprocessor.

    Raises `Unsupported` for more than one column of B, for empty outputs, and for long rows.
    """
    if problem.n != 1:
        raise Unsupported(f"one column of B alone, not {problem.n}")
    if problem.m == 0:
        raise Unsupported("the output is empty")
    if problem.k > MOST_COLUMNS:
        raise Unsupported(f"columns are kept in 16 bits, and {problem.k} are more than {MOST_COLUMNS}")
    shared = SharedWork()
    chunks = max(1, operands.sparse.nnz // (CHUNK * problem.m))
    most = min(32, power_of_two_at_least(chunks))
    for blocks in _BLOCKS:
        if blocks * _WARPS > architecture(arch).warps:
            continue
        for lanes in dict.fromkeys((most, max(1, most // 2))):
            yield make_plan(problem, operands, arch, lanes, blocks, shared)
