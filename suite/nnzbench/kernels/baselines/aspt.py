"""ASpT's SpMM and SDDMM over its tiles: `kernels_cu/aspt_spmm.cu` and `kernels_cu/aspt_sddmm.cu` say who computes what.

Hong et al.: "Adaptive Sparse Tiling for Sparse Matrix Multiplication", PPoPP 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from nnzbench.kernels.baselines.aspt_tiles import Tiling, tile, untiled
from nnzbench.kernels.registry import kernel
from nnzbench.kernels.roles import About
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Array, Launch, Plan, Unsupported
from nnzbench.plans.shared_work import SharedWork
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

PAPER = "Hong et al.: Adaptive Sparse Tiling for Sparse Matrix Multiplication, PPoPP 2019"
SPMM_TILES = {32: 256, 128: 128}
"""Columns of a tile by n: its part of B is 32 KB of shared memory, at 32 and at 64 columns of C a block."""
SDDMM_TILES = {32: 256, 128: 64}
"""Columns of a tile by the length of the dot products."""


def _check(sizes: dict[int, int], n: int, matrix: CSR, rows: int, what: str) -> None:
    """Raises `Unsupported` for what ASpT's kernels are not written for."""
    if n not in sizes:
        raise Unsupported(f"ASpT's kernels are written for 32 or 128 {what}, not {n}")
    if matrix.nnz == 0:
        raise Unsupported("the matrix has no nonzeros")
    if rows * n >= 2**31:
        raise Unsupported(f"offsets are of 32 bits: {rows} rows of {n} have 2^31 numbers or more")


def _tiling(matrix: CSR, columns: int) -> Tiling:
    tiled = tile(matrix, columns)
    return untiled(matrix) if tiled.plain else tiled


def spmm_plan(matrix: CSR, b: Array) -> Plan:
    """The plan of C = A B, `b` (k, n) float32; its variant says which kernels the artifact's rules choose.

    Raises `Unsupported` for n other than 32 and 128, for no nonzeros and for offsets that do not fit.
    """
    n = b.shape[1]
    _check(SPMM_TILES, n, matrix, matrix.k, "columns")
    timed = SharedWork().timer()
    tiling = _tiling(matrix, SPMM_TILES[n])
    lane_columns = 1 if n == 32 else 2
    buffers: dict[str, Array] = {
        **tiling.buffers,
        "values": matrix.values[tiling.order],
        "b": np.ascontiguousarray(b),
        "c": np.zeros((matrix.m, n), np.float32),
    }
    defines = {"TILE": SPMM_TILES[n], "LANE_COLUMNS": lane_columns}
    return _plan("aspt", "aspt_spmm.cu", tiling, n // (32 * lane_columns), (n,), buffers, defines, timed)


def sddmm_plan(pattern: CSR, x: Array, y: Array) -> Plan:
    """The plan of D = X Y^T at `pattern`'s nonzeros, `x` (m, n) and `y` (k, n) float32.

    Raises `Unsupported` for n other than 32 and 128, for no nonzeros and for offsets that do not fit.
    """
    n = x.shape[1]
    _check(SDDMM_TILES, n, pattern, pattern.k, "features")
    timed = SharedWork().timer()
    tiling = _tiling(pattern, SDDMM_TILES[n])
    order = tiling.order
    buffers: dict[str, Array] = {
        **tiling.buffers,
        "values": np.ones(pattern.nnz, np.float32),
        "x": np.ascontiguousarray(x),
        "y": np.ascontiguousarray(y),
        "d": np.zeros(pattern.nnz, np.float32),
    }

    def in_order(stored: Array) -> Array:
        result = np.empty_like(stored)
        result[order] = stored
        return result

    defines = {"TILE": SDDMM_TILES[n], "LANE_FEATURES": n // 32}
    plan = _plan("aspt_sddmm", "aspt_sddmm.cu", tiling, 1, (), buffers, defines, timed)
    return replace(plan, unpermute=in_order)


def _plan(
    entry: str,
    source: str,
    tiling: Tiling,
    halves: int,
    n: tuple[int, ...],
    buffers: dict[str, Array],
    defines: Mapping[str, int],
    timed: Callable[[], float],
) -> Plan:
    """The plain kernel, or those over remainder, long rows (of a product, which is told its `n`) and tiles."""
    m, tail = tiling.matrix.m, tuple(buffers)
    by_rows = ((-(-m // 4), 1, halves), (128, 1, 1))
    if tiling.plain:
        name, launches = "plain", [Launch(f"{entry}_plain", *by_rows, (m, *n, *tail))]
    else:
        long = bool(n) and tiling.long_rows
        name, split = f"tiles{len(tiling.tiles)}" + "_long" * long, (int(long),) if n else ()
        launches = [Launch(f"{entry}_remainder", *by_rows, (m, *n, *split, *tail))]
        if long and len(tiling.chunks):
            buffers["chunks"] = chunks = tiling.chunks
            launches.append(Launch(f"{entry}_long", (len(chunks), 1, halves), (256, 1, 1), (*n, "chunks", *tail)))
        if len(tiling.tiles):
            buffers |= {"tiles": tiling.tiles, "slots": tiling.slots}
            grid = (len(tiling.tiles), 1, halves)
            launches.append(Launch(f"{entry}_tiles", grid, (1024, 1, 1), (m, *n, "tiles", "slots", *tail)))
    return Plan(name, "cuda", source, defines, buffers, tail[-1], tuple(launches), generate_ms=timed())


@kernel(PAPER, "spmm", "f32", About("paper", "ASpT", nothing_to_tune=True, rank=42))
def aspt(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """C = A B over dense tiles and a remainder in CSR: the one plan that the artifact's rules give."""
    yield spmm_plan(operands.sparse, operands.dense["b"])


@kernel(PAPER, "sddmm", "f32", About("paper", "ASpT SDDMM", nothing_to_tune=True, rank=43))
def aspt_sddmm(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """D = X Y^T sampled by a pattern, over the same tiles."""
    yield sddmm_plan(operands.sparse, operands.dense["a"], operands.dense["b"])
