"""Kernel `flash_llm`: Flash-LLM's SpMM (VLDB 2024), which loads A sparse and computes as with a dense tile."""

from __future__ import annotations

from collections.abc import Iterator

from nnzbench.kernels.registry import kernel
from nnzbench.kernels.roles import About
from nnzbench.kernels.tensor.split_k import TILE_K, block_columns, plans, samples
from nnzbench.kernels.tensor.tiled_csl import TILE_COLUMNS, TILE_ROWS, pack
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

_RESIDENT = 2
"""Blocks of a multiprocessor, by their registers and shared memory."""


def block_rows(columns: int) -> int:
    """Rows of a block of that many columns."""
    return 2 * TILE_ROWS if columns <= 32 else TILE_ROWS


def shared_bytes(columns: int) -> int:
    """Two stages of tiles of A and B, and later the block's sums in fp32."""
    rows = block_rows(columns)
    return max(2 * (rows + max(columns, 16)) * TILE_K * 2, columns * (rows + 4) * 4)


def structure_bytes(problem: Problem, nnz: int) -> int:
    """Two bytes a nonzero for its place, four a tile for where it starts."""
    return 2 * nnz + 4 * (problem.m // TILE_ROWS * (problem.k // TILE_COLUMNS) + 2)


@kernel(
    "Xia et al.: Flash-LLM, VLDB 2024",
    "spmm",
    "f16",
    About(
        "paper",
        label="Flash-LLM",
        rank=130,
        structure_bytes=structure_bytes,
        samples=samples((256, 128, 8), (256, 128, 16), (256, 128, 32), (128, 128, 64), (128, 128, 128)),
    ),
)
def flash_llm(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Flash-LLM's kernel for 8, 16, 32, 64 and multiples of 128 columns, K in 1 to 9 parts.

    Raises `Unsupported` for sizes that are no multiples of its tiles, and for tiles with more than half nonzeros, for
    which the published code returns wrong results.
    """
    columns = block_columns(problem, arch)
    rows = block_rows(columns)
    if problem.m % rows:
        raise Unsupported(f"{problem.m} rows of A are no multiple of {rows}, a block's with {columns} columns")
    block = rows, columns, _RESIDENT
    yield from plans("flash_llm", problem, operands, arch, block, pack, lambda packed: shared_bytes(columns))
