"""Kernel `spinfer`: SpInfer's SpMM (EuroSys 2025), whose lanes expand bitmaps straight into tensor cores' fragments."""

from __future__ import annotations

from collections.abc import Iterator

from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import About
from nnzbench.kernels.tensor.bitmap import TILE, pack
from nnzbench.kernels.tensor.split_k import TILE_K, block_columns, make_plan, parts_to_try, samples
from nnzbench.plans.architectures import block_shared_bytes
from nnzbench.plans.plan import Array, Plan, Unsupported
from nnzbench.plans.shared_work import SharedWork
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


class SpInfer:
    """SpInfer's kernel for 8, 16, 32, 64 and multiples of 128 columns, K in 1 to 9 parts."""

    name = "spinfer"
    paper = "Fan et al.: SpInfer, EuroSys 2025"
    ops = frozenset({"spmm"})
    dtypes = frozenset({"f16"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """One plan per number of parts of K, the likeliest first.

        Raises `Unsupported` for sizes that are no multiples of its tiles.
        """
        columns = min(block_columns(problem, arch), _MOST_COLUMNS)
        if problem.m % TILE:
            raise Unsupported(f"{problem.m} rows of A are no multiple of {TILE}")
        shared = SharedWork()
        tiles, blocks = problem.k // TILE_K, problem.m // TILE * (problem.n // columns)
        for parts in parts_to_try(tiles, blocks, arch, _resident(columns, arch)):
            elapsed = shared.timer()
            packed = shared.once_for(operands.sparse, self.name, lambda: pack(operands.sparse))
            buffers: dict[str, Array] = {
                "offsets": packed.offsets,
                "strips": packed.strips,
                "maps": packed.maps,
                "values": packed.values,
            }
            yield make_plan(
                problem,
                operands,
                shared,
                source="spinfer.cu",
                defines={"COLUMNS": columns},
                rows=TILE,
                columns=columns,
                parts=parts,
                packed=buffers,
                scalars=(value_bytes(packed.most_values),),
                shared_bytes=shared_bytes(columns, packed.most_values),
                generate_ms=elapsed(),
            )


def _resident(columns: int, arch: str) -> int:
    """Blocks that a multiprocessor holds at half zeros, by their shared memory, and at most 4 by their registers."""
    return max(1, min(4, block_shared_bytes(arch) // shared_bytes(columns, TILE * TILE // 2)))


register(
    SpInfer(),
    About(
        "paper",
        label="SpInfer",
        rank=132,
        structure_bytes=structure_bytes,
        samples=tuple(samples((64, 128, 8), (64, 128, 16), (64, 128, 32), (64, 128, 64))),
    ),
)
