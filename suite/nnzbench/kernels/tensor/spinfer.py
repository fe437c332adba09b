"""Kernel `spinfer`: SpInfer's SpMM (EuroSys 2025), whose lanes expand bitmaps straight into tensor cores' fragments."""

from __future__ import annotations

from collections.abc import Iterator

from nnzbench.kernels.registry import kernel
from nnzbench.kernels.roles import About
from nnzbench.kernels.tensor.bitmap import TILE, pack
from nnzbench.kernels.tensor.split_k import TILE_K, block_columns, plans, samples
from nnzbench.plans.architectures import block_shared_bytes
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

_MOST_COLUMNS = 64
_VALUES_TOGETHER = 64
"""Room for a tile's values comes in whole rows of B's tile."""


def value_bytes(most_values: int) -> int:
    """Room for the values of the fullest tile."""
    return -(-most_values // _VALUES_TOGETHER) * _VALUES_TOGETHER * 2


def shared_bytes(columns: int, most_values: int) -> int:
    """Bitmaps and values of a tile of A, two stages of B, and later the block's sums in fp32."""
    return max(8 * TILE + value_bytes(most_values) + 2 * max(columns, 16) * TILE_K * 2, columns * (TILE + 4) * 4)


def structure_bytes(problem: Problem, nnz: int) -> int:
    """A bit an element, and 20 bytes a tile for where it and its strips start."""
    return problem.m * problem.k // 8 + 20 * (problem.m // TILE) * (problem.k // TILE)


def _resident(columns: int, arch: str) -> int:
    """Blocks that a multiprocessor holds at half zeros, by their shared memory, and at most 4 by their registers."""
    return max(1, min(4, block_shared_bytes(arch) // shared_bytes(columns, TILE * TILE // 2)))


@kernel(
    "Fan et al.: SpInfer, EuroSys 2025",
    "spmm",
    "f16",
    About(
        "paper",
        label="SpInfer",
        rank=132,
        structure_bytes=structure_bytes,
        samples=samples((64, 128, 8), (64, 128, 16), (64, 128, 32), (64, 128, 64)),
    ),
)
def spinfer(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """SpInfer's kernel for 8, 16, 32, 64 and multiples of 128 columns, K in 1 to 9 parts.

    Raises `Unsupported` for sizes that are no multiples of its tiles.
    """
    columns = min(block_columns(problem, arch), _MOST_COLUMNS)
    if problem.m % TILE:
        raise Unsupported(f"{problem.m} rows of A are no multiple of {TILE}")
    yield from plans(
        "spinfer",
        problem,
        operands,
        arch,
        (TILE, columns, _resident(columns, arch)),
        pack,
        lambda packed: shared_bytes(columns, packed.most_values),
        lambda packed: (value_bytes(packed.most_values),),
    )
