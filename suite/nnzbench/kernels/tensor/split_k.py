"""What papers' kernels with dense operands by columns share: buffers, and K in parts that a launch of its own adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnzbench.core.architectures import architecture, sm_count
from nnzbench.core.plan import Array, Dim3, Launch, Plan, SharedWork, Unsupported
from nnzbench.core.tiles import TileConfiguration
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem

TILE_K = 64
COLUMNS = (8, 16, 32, 64, 128)
"""That a block has a tile for."""
MOST_PARTS = 9
"""Of K, in the papers' tables of what they chose for each shape."""
_ALIGN = 128
Packed = dict[str, Array]
"""A matrix in the paper's format: its buffers by name."""


def block_columns(problem: Problem, arch: str) -> int:
    """Columns that the papers' codes give a block for this many, so that both refuse the same.

    Raises `Unsupported` for other numbers than 8, 16, 32, 64 and multiples of 128, for an empty output, for rows or
    columns of A that are no multiples of 64, and for architectures without these tensor cores.
    """
    if not architecture(arch).has("mma_f16_k16") or not architecture(arch).has("cp_async"):
        raise Unsupported(f"{arch} has no mma.m16n8k16 of fp16 or no asynchronous copies")
    if problem.m == 0 or problem.n == 0 or problem.k == 0:
        raise Unsupported("nothing to compute: a size is 0")
    if problem.n not in COLUMNS and problem.n % COLUMNS[-1]:
        raise Unsupported(f"no tile for {problem.n} columns of B, only for 8, 16, 32, 64 and multiples of 128")
    if problem.k % TILE_K:
        raise Unsupported(f"{problem.k} columns of A are no multiple of {TILE_K}")
    return min(problem.n, COLUMNS[-1])


def parts_to_try(tiles: int, blocks: int, arch: str, resident: int) -> list[int]:
    """Into how many parts `tiles` tiles of K can be split with none empty, the likeliest first.

    `blocks` is how many blocks multiply one part, `resident` how many a multiprocessor holds. The papers choose by hand
    for each shape.
    """
    possible = [parts for parts in range(1, MOST_PARTS + 1) if tiles > (parts - 1) * -(-tiles // parts)]
    wave = resident * sm_count(arch)

    def steps(parts: int) -> float:
        """Tiles that a multiprocessor goes through one after another, and what adding the parts costs in such."""
        return -(-blocks * parts // wave) * -(-tiles // parts) + parts / 2

    return sorted(possible, key=steps)


@dataclass(frozen=True)
class SplitKTiling(TileConfiguration):
    """Columns and rows of C that a block computes, and the parts of K."""

    NAME: ClassVar = "n{0.columns}_m{0.rows}_s{0.parts}"
    DEFINES: ClassVar = {"rows": "", "parts": ""}
    columns: int
    rows: int
    parts: int

    @property
    def block(self) -> Dim3:
        return 128, 1, 1


def plans(
    entry: str,
    problem: Problem,
    operands: Operands,
    arch: str,
    block: tuple[int, int, int],
    pack: Callable[[CSR], Packed],
    shared_bytes: Callable[[Packed], int],
    scalars: Callable[[Packed], tuple[int, ...]] = lambda packed: (),
) -> Iterator[Plan]:
    """One plan of the kernel `entry` per number of parts of K, the likeliest first.

    `block` is rows and columns of a block, and how many a multiprocessor holds. The kernel is given m, n, k, parts,
    `scalars`, the buffers of the matrix packed, B (n, k) and C (n, m), or for several parts their sums (parts, n, m),
    which `add_parts` then adds.
    """
    rows, columns, resident = block
    m, n, k = problem.m, problem.n, problem.k
    shared = SharedWork()
    for parts in parts_to_try(k // TILE_K, m // rows * (n // columns), arch, resident):
        elapsed = shared.timer()
        packed = shared.once_for(operands.sparse, entry, lambda: pack(operands.sparse))
        generate_ms = elapsed()
        b = shared.once("b", lambda: np.ascontiguousarray(operands.dense["b"].T))
        buffers = {**packed, "b": b, "c": np.empty((n, m), dtype=np.float16)}
        args, then = [*buffers], []
        if parts > 1:
            args[-1] = "partial"
            buffers["partial"] = np.empty((parts, n, m), dtype=np.float16)
            then = [Launch("add_parts", (m * n // 256, 1, 1), (32, 1, 1), (parts, m * n, "partial", "c"))]
        yield SplitKTiling(columns, rows, parts).plan(
            entry,
            (n // columns, m // rows * parts, 1),
            (m, n, k, parts, *scalars(packed), *args),
            buffers,
            "c",
            shared_bytes=shared_bytes(packed) + _ALIGN,
            then=tuple(then),
            generate_ms=generate_ms,
            unpermute=_by_rows,
        )


def _by_rows(stored: Array) -> Array:
    return np.ascontiguousarray(stored.T)


def samples(*sizes: tuple[int, int, int], source: str = "uniform:0") -> tuple[Problem, ...]:
    """Representative products (m, k, n) of kernels that take no awkward sizes."""
    return tuple(
        Problem("representative", f"spmm {m}x{k}x{n} {source}", "spmm", m, k, n, 0.75, source, "f16")
        for m, k, n in sizes
    )
