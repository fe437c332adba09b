"""Kernel `venom`: VENOM's SpMM (SC 2023), which multiplies V:2:M patterns as 2:4 ones by gathered rows of B.

Its format: for V rows the columns chosen of every M, and of each row two weights of four in the order of `mma.sp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from nnzbench.core.architectures import architecture, block_shared_bytes, sm_count
from nnzbench.core.plan import Array, Dim3, Plan, SharedWork, Unsupported
from nnzbench.core.tiles import TileConfiguration
from nnzbench.data.matrices.formats import CSR, ranks
from nnzbench.data.matrices.prune import CHOSEN
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.rows import vector_width
from nnzbench.kernels.tensor.split_k import samples
from nnzbench.kernels.tensor.spmv import entries

_ROWS = (32, 64, 128)
_KEPT = 2
_ROW_BYTES = 36
"""Of a row's values and their places in a step."""
_GROUPS = 8
"""Of M columns in a step."""
_USUAL = ((128, 16), (128, 10), (128, 8), (64, 16), (64, 10), (64, 8))
"""V and M that are looked for where the source of a matrix names none."""


def pack(matrix: CSR, v: int, group: int) -> dict[str, Array]:
    """Packs a v:2:group matrix of fp16 values; entries of 0.0 and -0.0 count as absent.

    The buffers of `venom.cu`, whose header explains them. Raises `Unsupported` for a matrix of another pattern.
    """
    row, column, values = entries(matrix, 0, matrix.m)
    blocks, groups = -(-matrix.m // v), -(-matrix.k // (group * _GROUPS)) * _GROUPS
    used = np.zeros((blocks, groups * group), bool)
    used[row // v, column] = True
    grouped = used.reshape(blocks, groups, group)
    place = np.cumsum(grouped, axis=2, dtype=np.int8).reshape(used.shape) - 1
    if place.max(initial=0) >= CHOSEN:
        raise Unsupported(f"of {group} columns more than {CHOSEN} have weights in {v} rows: it is not {v}:2:{group}")
    block, at = np.nonzero(used)
    chosen = np.full((blocks, groups * CHOSEN), -1, np.int32)
    chosen[block, at // group * CHOSEN + place[block, at]] = at

    of_group = row * groups + column // group
    begins = np.flatnonzero(np.diff(of_group, prepend=-1))
    nth = ranks(np.diff(begins, append=row.size))
    if nth.max(initial=0) >= _KEPT:
        raise Unsupported(f"a row has more than {_KEPT} weights in {group} columns: it is not {v}:2:{group}")
    # places of two ascend: where there is one weight, a zero comes before or behind it
    where = place[row // v, column]
    half = nth | (where == CHOSEN - 1)
    kept = np.zeros((blocks * v * groups, _KEPT), np.uint16)
    places = np.tile(np.array([0, CHOSEN - 1], np.uint32), (blocks * v * groups, 1))
    kept[of_group, half], places[of_group, half] = values, where

    # 32 rows: tile, lower, row of 8; groups of a step: right, group of 4
    parts = blocks, v // 32, 2, 2, 8, groups // _GROUPS, 2, 4
    registers = kept.view(np.uint32).reshape(parts).transpose(0, 5, 1, 2, 4, 7, 6, 3)
    bits = (places[:, 0] | places[:, 1] << 2).reshape(parts) << np.arange(0, 16, 4, dtype=np.uint32)
    bits[:, :, :, 1] <<= 16
    selected = np.bitwise_or.reduce(bits.transpose(0, 5, 1, 4, 2, 6, 3, 7), axis=(6, 7))
    by_rows = blocks, groups // _GROUPS, v // 32, -1
    weights = np.concatenate([registers.reshape(by_rows), selected.reshape(by_rows)], axis=3)
    return {"chosen": chosen.reshape(blocks, -1, _GROUPS * CHOSEN), "weights": weights}


@dataclass(frozen=True)
class VenomTiling(TileConfiguration):
    """Rows and columns of a block and of a warp, and the stages in shared memory."""

    NAME: ClassVar = "v{0.rows}_n{0.columns}_w{0.warp_rows}x{0.warp_columns}.{0.stages}"
    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    stages: int

    @property
    def block(self) -> Dim3:
        return 32 * (self.rows // self.warp_rows) * (self.columns // self.warp_columns), 1, 1

    @property
    def shared_bytes(self) -> int:
        """Stages of A, B and numbers of rows, later the block's result; and room to align them."""
        stage = self.rows * _ROW_BYTES + 64 * self.columns + 128
        return max(self.stages * stage, self.rows * (self.columns + 8) * 2) + 128

    @property
    def step_bytes(self) -> int:
        """What a step writes to shared memory and its warps read of it."""
        across, down = self.columns // self.warp_columns, self.rows // self.warp_rows
        return (1 + across) * self.rows * _ROW_BYTES + (1 + down) * 64 * self.columns


# columns of a block, rows and columns of a warp
_SHAPES = (
    (256, 64, 64),
    (128, 64, 64),
    (128, 32, 64),
    (64, 32, 64),
    (64, 32, 32),
    (32, 32, 32),
    (16, 32, 16),
    (8, 32, 8),
)
_STAGES = (4, 3)
_MOST = 5
"""Shapes to try."""


def tilings(rows: int, m: int, n: int, arch: str) -> list[VenomTiling]:
    """Those that fit, by what goes through a multiprocessor's shared memory, the least first."""
    shapes = [shape for shape in _SHAPES if shape[0] < 2 * max(n, 8) and shape[1] <= rows]

    def bytes_of(one: VenomTiling) -> int:
        return -(-(-(-m // rows) * -(-n // one.columns)) // sm_count(arch)) * one.step_bytes

    first = sorted((VenomTiling(rows, *shape, _STAGES[0]) for shape in shapes), key=bytes_of)[:_MOST]
    every = [replace(one, stages=stages) for stages in _STAGES for one in first]
    return [one for one in every if one.shared_bytes <= block_shared_bytes(arch)]


def make_plan(
    problem: Problem, operands: Operands, group: int, tiling: VenomTiling, shared: SharedWork | None = None
) -> Plan:
    """The plan of one tiling; raises `Unsupported` for a matrix of another pattern."""
    shared = shared or SharedWork()
    m, n, rows = problem.m, problem.n, tiling.rows
    elapsed = shared.timer()
    packed = _packed(operands.sparse, rows, group, shared)
    buffers = {**packed, "b": operands.dense["b"], "c": np.empty((m, n), np.float16)}
    grid = -(-n // tiling.columns), -(-m // rows), 1
    arguments = m, n, packed["chosen"].shape[1]
    return tiling.plan("venom", grid, arguments, buffers, defines={"FILL": vector_width(n, 2)}, generate_ms=elapsed())


def format_of(source: str) -> tuple[int, int] | None:
    """V and M of a source that names them with two weights (`vnm:64:2:8:0`)."""
    kind, *words = source.split(":")
    return (int(words[0]), int(words[2])) if kind == "vnm" and words[1] == str(_KEPT) else None


def structure_bytes(problem: Problem, nnz: int) -> int:
    """Two bits a nonzero, and four bytes for each of the four columns chosen of M for V rows."""
    rows, _ = format_of(problem.source) or (64, 8)
    return nnz // 4 + 8 * nnz // rows


@kernel(
    "Castro et al.: VENOM, SC 2023",
    "spmm",
    "f16",
    About(
        "paper",
        label="VENOM",
        rank=133,
        pattern="V:N:M",
        structure_bytes=structure_bytes,
        samples=samples((128, 256, 8), (128, 256, 64), (128, 256, 256), source="vnm:64:2:8:0"),
    ),
)
def venom(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """VENOM's kernel for V:2:M patterns, V 32, 64 or 128: of the source's V and M, or the first usual ones that fit.

    Raises `Unsupported` for other patterns and for architectures without these tensor cores.
    """
    if not architecture(arch).has("mma_sparse"):
        raise Unsupported(f"tensor cores of {arch} do not multiply 2:4 tiles")
    if problem.m == 0 or problem.n == 0 or problem.k == 0:
        raise Unsupported("nothing to compute: a size is 0")
    shared, known = SharedWork(), format_of(problem.source)
    if known and known[0] not in _ROWS:
        raise Unsupported(f"V is 32, 64 or 128, not {known[0]}")
    rows, group = known or _found(operands.sparse, shared)
    for tiling in tilings(rows, problem.m, problem.n, arch):
        yield make_plan(problem, operands, group, tiling, shared)


def _packed(matrix: CSR, rows: int, group: int, shared: SharedWork) -> dict[str, Array]:
    return shared.once_for(matrix, ("venom", rows, group), lambda: pack(matrix, rows, group))


def _found(matrix: CSR, shared: SharedWork) -> tuple[int, int]:
    for rows, group in _USUAL:
        try:
            _packed(matrix, rows, group, shared)
        except Unsupported:
            continue
        return rows, group
    raise Unsupported("it has no pattern such as 64:2:8")
