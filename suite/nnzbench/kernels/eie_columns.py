"""Kernel `eie_columns`: a sparse matrix of few values times a sparse vector, whose zeros are skipped as EIE does.

Han et al.: "EIE: Efficient Inference Engine on Compressed Deep Neural Network", ISCA 2016: columns of W, and a queue of
nonzero inputs (sections III and IV). `eie` has the same values and reads all of W; `eie_columns.cu` has the mapping.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nnzbench.kernels.eie import operand_bytes
from nnzbench.kernels.registry import kernel
from nnzbench.kernels.roles import About
from nnzbench.matrices.encodings import Coded
from nnzbench.matrices.formats import MatrixError
from nnzbench.plans.architectures import architecture, block_shared_bytes, sm_count
from nnzbench.plans.chain import SharedWork
from nnzbench.plans.plan import Array, Plan, Unsupported, plans_that_fit
from nnzbench.plans.tiles import TileConfiguration
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

CANDIDATES = 8
_NONZERO = 1 / 3
"""Of the inputs, as after a ReLU: tilings are chosen before inputs are known."""


@dataclass(frozen=True)
class Tiling(TileConfiguration):
    """Rows of a slice, warps that share it, and groups of 32 columns for each."""

    slice: int
    warps: int
    groups: int

    @property
    def name(self) -> str:
        return f"s{self.slice}_w{self.warps}_g{self.groups}"

    @property
    def shared_bytes(self) -> int:
        return 4 * self.slice * self.warps

    @property
    def columns(self) -> int:
        """Of a block."""
        return 32 * self.warps * self.groups


def columns_of(coded: Coded, rows: int) -> tuple[Array, Array]:
    """Two-byte entries by slice of `rows` rows and column, rows ascending, and `starts` (slices, k + 1)."""
    matrix = coded.pattern
    slices = -(-matrix.m // rows)
    row = np.repeat(np.arange(matrix.m), matrix.row_lengths)
    cell = row // rows * matrix.k + matrix.indices
    order = np.argsort(cell, kind="stable")
    entries = (row % rows << 4 | coded.codes)[order].astype(np.uint16)
    ends = np.bincount(cell, minlength=slices * matrix.k).cumsum().reshape(slices, matrix.k)
    first = np.concatenate([[0], ends[:-1, -1]])[:, None]
    return (entries if entries.size else np.zeros(1, np.uint16)), np.hstack([first, ends]).astype(np.int32)


def cycles(m: int, k: int, nnz: int, tiling: Tiling, arch: str) -> float:
    """Clocks of a launch by a rough count of what a warp does one after another."""
    entries = nnz / (m * k) * tiling.slice
    column = 25 + 40 * math.ceil(entries / 32)
    parts = -(-k // tiling.columns)
    blocks = -(-m // tiling.slice) * parts
    limits = architecture(arch)
    resident = min(limits.warps // tiling.warps, limits.shared_bytes // (tiling.shared_bytes + 1024))
    waves = -(-blocks // (sm_count(arch) * max(1, resident)))
    crowd = max(1.0, min(resident, blocks / sm_count(arch)) * tiling.warps / 16)
    walk = tiling.groups * (700 + 32 * _NONZERO * column * crowd)
    add = tiling.slice / (32 * tiling.warps) * (25 * tiling.warps + 40 * parts)
    return waves * (walk + add)


def tilings(m: int, k: int, nnz: int, arch: str) -> list[Tiling]:
    """The `CANDIDATES` most promising, of which no two have the same slice and groups."""
    grid = [
        Tiling(rows, warps, groups)
        for rows in (64, 128, 256, 512, 1024, 2048)
        for warps in (4, 8, 16)
        for groups in (1, 2, 4)
        if 4 * rows * warps <= block_shared_bytes(arch)
    ]
    best: dict[tuple[int, int], Tiling] = {}
    for one in sorted(grid, key=lambda one: (cycles(m, k, nnz, one, arch), one.name)):
        best.setdefault((one.slice, one.groups), one)
    return list(best.values())[:CANDIDATES]


def make_plan(coded: Coded, x: Array, tiling: Tiling, shared: SharedWork | None = None) -> Plan:
    """The plan of one tiling; `x` is (k, 1), float32 or float16."""
    matrix, shared = coded.pattern, shared or SharedWork()
    elapsed = shared.timer()
    entries, starts = shared.once(tiling.slice, lambda: columns_of(coded, tiling.slice))
    parts = -(-matrix.k // tiling.columns)
    buffers = {
        "entries": entries,
        "starts": starts,
        "codebook": coded.codebook,
        "x": np.ascontiguousarray(x),
        "partial": np.zeros((parts, matrix.m), np.float32),
        "arrived": np.zeros(len(starts), np.int32),
        "y": np.zeros((matrix.m, 1), x.dtype),
    }
    plan = tiling.plan(
        "eie_columns",
        (len(starts), parts, 1),
        (matrix.m, matrix.k, *buffers),
        buffers,
        defines={"F16": int(x.dtype == np.float16)},
    )
    return replace(plan, generate_ms=elapsed())


@kernel(
    "Han et al.: EIE: Efficient Inference Engine on Compressed Deep Neural Network, ISCA 2016",
    "spmv",
    "f32 f16",
    About("own", "EIE's columns", operand_bytes=operand_bytes, rank=156),
)
def eie_columns(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """y = W x for a W of at most 15 different values, reading the columns of nonzero inputs alone.

    Raises `Unsupported` for more values than a codebook holds, or an empty product.
    """
    if problem.m == 0 or problem.k == 0:
        raise Unsupported("the product is empty")
    try:
        coded = Coded.of(operands.sparse)
    except MatrixError as error:
        raise Unsupported(str(error)) from error
    shared = SharedWork()
    choices = tilings(problem.m, problem.k, operands.sparse.nnz, arch)
    yield from plans_that_fit(choices, lambda one: make_plan(coded, operands.dense["b"], one, shared), "no tiling fits")
