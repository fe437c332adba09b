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
from nnzbench.plans.architectures import block_shared_bytes, sm_count
from nnzbench.plans.chain import SharedWork
from nnzbench.plans.plan import Array, Launch, Plan, Unsupported, plans_that_fit
from nnzbench.plans.tiles import TileConfiguration
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

CANDIDATES = 8
_ADDERS = 128
"""Threads of a block of `add_parts`."""
_MOST_PARTS = 64
_SLICES = (64, 128, 256, 512, 1024)


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


def tilings(m: int, k: int, arch: str) -> list[Tiling]:
    """Those whose blocks come nearest to two for each multiprocessor, of each slice the nearest two."""

    def far(one: Tiling) -> tuple[float, str]:
        parts = -(-k // one.columns)
        blocks = -(-m // one.slice) * parts
        return abs(math.log(blocks / (2 * sm_count(arch)))) + 10 * (parts > _MOST_PARTS), one.name

    found: list[Tiling] = []
    for rows in _SLICES:
        of_slice = [Tiling(rows, warps, groups) for warps in (4, 8, 16) for groups in (1, 2, 4)]
        fitting = [one for one in of_slice if one.shared_bytes <= block_shared_bytes(arch) // 2]
        found += sorted(fitting, key=far)[:2]
    return found


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
        "y": np.zeros((matrix.m, 1), x.dtype),
    }
    add = Launch("add_parts", (-(-matrix.m // _ADDERS), 1, 1), (_ADDERS, 1, 1), (matrix.m, parts, "partial", "y"))
    plan = tiling.plan(
        "eie_columns",
        (len(starts), parts, 1),
        (matrix.m, matrix.k, "entries", "starts", "codebook", "x", "partial"),
        buffers,
        defines={"F16": int(x.dtype == np.float16)},
        then=(add,),
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
    choices = sorted(tilings(problem.m, problem.k, arch), key=lambda one: abs(one.slice - 256))[:CANDIDATES]
    yield from plans_that_fit(choices, lambda one: make_plan(coded, operands.dense["b"], one, shared), "no tiling fits")
