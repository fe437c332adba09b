"""ASpT's SpMM and SDDMM over its tiles: `kernels_cu/aspt_spmm.cu` and `kernels_cu/aspt_sddmm.cu` say who computes what.

Hong et al.: "Adaptive Sparse Tiling for Sparse Matrix Multiplication", PPoPP 2019.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nnzbench.kernels.registry import register
from nnzbench.kernels.rivals.aspt_tiles import Tiling, tile, untiled
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
    halves = n // (32 * lane_columns)
    buffers: dict[str, Array] = {
        **tiling.buffers,
        "values": matrix.values[tiling.order],
        "b": np.ascontiguousarray(b),
        "c": np.zeros((matrix.m, n), np.float32),
    }
    tail = ("begins", "panels", "indices", "values", "b", "c")
    by_rows = ((-(-matrix.m // 4), 1, halves), (128, 1, 1))
    if tiling.plain:
        name, launches = "plain", [Launch("aspt_plain", *by_rows, (matrix.m, n, *tail))]
    else:
        name, split = f"tiles{len(tiling.tiles)}", int(tiling.long_rows)
        launches = [Launch("aspt_remainder", *by_rows, (matrix.m, n, split, *tail))]
        if tiling.long_rows:
            name += "_long"
            chunks = tiling.chunks
            if len(chunks):
                buffers["chunks"] = chunks
                launches.append(Launch("aspt_long", (len(chunks), 1, halves), (256, 1, 1), (n, "chunks", *tail)))
        if len(tiling.tiles):
            buffers |= {"tiles": tiling.tiles, "slots": tiling.slots}
            arguments = (matrix.m, n, "tiles", "slots", *tail)
            launches.append(Launch("aspt_tiles", (len(tiling.tiles), 1, halves), (1024, 1, 1), arguments))
    defines: dict[str, int | str] = {"TILE": SPMM_TILES[n], "LANE_COLUMNS": lane_columns}
    return Plan(name, "cuda", "aspt_spmm.cu", defines, buffers, "c", tuple(launches), generate_ms=timed())


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
    tail = ("begins", "panels", "indices", "values", "x", "y", "d")
    by_rows = ((-(-pattern.m // 4), 1, 1), (128, 1, 1))
    if tiling.plain:
        name, launches = "plain", [Launch("aspt_sddmm_plain", *by_rows, (pattern.m, *tail))]
    else:
        name = f"tiles{len(tiling.tiles)}"
        launches = [Launch("aspt_sddmm_remainder", *by_rows, (pattern.m, *tail))]
        if len(tiling.tiles):
            buffers |= {"tiles": tiling.tiles, "slots": tiling.slots}
            arguments = (pattern.m, "tiles", "slots", *tail)
            launches.append(Launch("aspt_sddmm_tiles", (len(tiling.tiles), 1, 1), (1024, 1, 1), arguments))

    def in_order(stored: Array) -> Array:
        result = np.empty_like(stored)
        result[order] = stored
        return result

    defines: dict[str, int | str] = {"TILE": SDDMM_TILES[n], "LANE_FEATURES": n // 32}
    return Plan(
        name,
        "cuda",
        "aspt_sddmm.cu",
        defines,
        buffers,
        "d",
        tuple(launches),
        generate_ms=timed(),
        unpermute=in_order,
    )


@dataclass(frozen=True)
class Aspt:
    """C = A B over dense tiles and a remainder in CSR."""

    name: str = "aspt"
    paper: str = PAPER
    ops: frozenset[str] = frozenset({"spmm"})
    dtypes: frozenset[str] = frozenset({"f32"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """The one plan that the artifact's rules give."""
        yield spmm_plan(operands.sparse, operands.dense["b"])


@dataclass(frozen=True)
class AsptSddmm:
    """D = X Y^T sampled by a pattern, over the same tiles."""

    name: str = "aspt_sddmm"
    paper: str = PAPER
    ops: frozenset[str] = frozenset({"sddmm"})
    dtypes: frozenset[str] = frozenset({"f32"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """The one plan that the artifact's rules give."""
        yield sddmm_plan(operands.sparse, operands.dense["a"], operands.dense["b"])


register(Aspt(), About("paper", "ASpT", nothing_to_tune=True, rank=42))
register(AsptSddmm(), About("paper", "ASpT SDDMM", nothing_to_tune=True, rank=43))
