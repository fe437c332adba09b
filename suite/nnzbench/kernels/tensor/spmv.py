"""Kernel `delta_spmv`: sparse matrix times one vector in 16-bit types, from a format of 22 bits a nonzero."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import About
from nnzbench.kernels.rows import power_of_two_at_least
from nnzbench.kernels.tensor.delta import CHUNK, MOST_COLUMNS, Chunks, pack
from nnzbench.kernels.tensor.halves import from_bf16, stored
from nnzbench.plans.architectures import architecture, block_shared_bytes, sm_count
from nnzbench.plans.plan import Array, Launch, Plan, Unsupported
from nnzbench.plans.shared_work import SharedWork
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

_WARPS = 16
_BLOCKS = (2, 3)
"""Per multiprocessor: registers for loads against warps that wait for them."""


def make_plan(
    problem: Problem, operands: Operands, arch: str, lanes: int, blocks: int, shared: SharedWork | None = None
) -> Plan:
    """The plan with so many lanes for a row, a power of two up to 32, and so many blocks per multiprocessor.

    `operands.dense["b"]` is (k, 1), in fp16, or in fp32 rounded to bf16. Raises `Unsupported` where x does not fit in
    shared memory.
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
    buffers: dict[str, Array] = {
        "offsets": packed.offsets,
        "low": packed.low,
        "high": packed.high,
        "near": packed.near,
        "far": packed.far,
        "x": x,
        "y": np.empty((problem.m, 1), dtype=x.dtype),
    }
    grid = (min(resident * sm_count(arch), needed), 1, 1)
    launch = Launch("delta_spmv", grid, (32 * _WARPS, 1, 1), (problem.m, problem.k, lanes, *buffers), bytes_of_x)
    return Plan(
        variant=f"l{lanes}_b{blocks}",
        math="bf16" if bf16 else "f16",
        language="cuda",
        source="delta_spmv.cu",
        defines={"BLOCKS": blocks, "BF16": int(bf16)},
        buffers=buffers,
        output="y",
        launches=(launch,),
        generate_ms=elapsed(),
        unpermute=from_bf16 if bf16 else None,
    )


def structure_bytes(problem: Problem, nnz: int) -> int:
    """12 bytes for 16 nonzeros and 4 a row, without the zeros that stand between or fill up."""
    return 12 * -(-nnz // CHUNK) + 4 * (problem.m + 1)


class DeltaSpmv:
    """Own product of a sparse matrix and one vector."""

    name = "delta_spmv"
    paper = "nnzbench"
    ops = frozenset({"spmm", "spmv"})
    dtypes = frozenset({"f16", "bf16"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """Plans by lanes for a row and blocks per multiprocessor.

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


register(
    DeltaSpmv(),
    About("own", rank=137, structure_bytes=structure_bytes),
)
