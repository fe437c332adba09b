"""SparseRT: SpMM and convolution by code generated for one sparse matrix, whose values are constants in instructions.

Wang, "SparseRT: Accelerating Unstructured Sparsity on GPUs for Deep Learning Inference", PACT 2020. This is a generator
of our own over the same idea (sections 3.3 to 3.5); `sparsert_paper` has the paper's own tilings.
A convolution is the product with the virtual im2col matrix of the image (section 3.6).

A cost model of code fetch, B traffic and sums ranks tilings; measuring decides. Its constants were fitted to 186 SpMM
and 61 convolution programs on an H200 (132 SMs, 1.98 GHz). There a program waits above all for its instructions, which
arrive at 20 bytes per clock and SM while the kernel's code is small, and the more slowly the larger the code of a block
and of the whole kernel is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

from nnzbench.core.architectures import architecture, sm_count
from nnzbench.core.plan import Array, Int32s, Plan, Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ITEM_BYTES, Problem
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.rows import convolved, first_of_each
from nnzbench.kernels.sparsert import PAPER
from nnzbench.kernels.sparsert.emit import emit_cpp, emit_ptx
from nnzbench.kernels.sparsert.program import Addressing, ImagePixels, MatrixColumns, Program
from nnzbench.kernels.sparsert.schedule import (
    Tiling,
    assign_rows,
    make_schedule,
    recall,
    search_name,
    share_columns,
    tile_costs,
    tile_count,
)

INSTRUCTION_BYTES = 16
MAX_CODE_BYTES = 5 << 19
"""2.5 MB: beyond, instruction fetch from L2 alone takes longer than streaming the matrix as data."""
MAX_NONZEROS = 114_688
"""Of a matrix product. Beyond, the assembler takes a minute or more per candidate."""
MAX_CONVOLUTION_NONZEROS = 1 << 18
"""Of a convolution: 3x3 filters on 512 channels have 213k to 236k at 90 % (SparseRT, table 3, problem 4)."""
CANDIDATES = ((2_048, 12), (16_384, 10), (32_768, 8), (65_536, 5), (MAX_NONZEROS, 4), (MAX_CONVOLUTION_NONZEROS, 2))
"""(nonzeros, candidates up to there): what a candidate costs is its assembly, which grows with the nonzeros."""
BEHIND = 1.5
"""A tiling so much slower than the best, by the model, has never been the fastest."""
LAUNCH = 2000.0
"""Clocks of an empty launch, one after another."""
SMALL_KERNEL, SMALL_CODE = 1 << 18, 1 << 15
"""Bytes of code of a kernel and of an SM up to which instructions arrive at full rate."""


@dataclass
class RowTiles:
    """Tiles of one row count, made once and shared by all tilings that use them."""

    tiles: list[Int32s]
    nonzeros: int
    """Of the busiest tile."""
    loads: int
    """Distinct columns of the busiest tile."""


def check(matrix: CSR, addressing: Addressing, element: int) -> None:
    """The viability rule: raises `Unsupported` where instruction fetch or the assembler would dominate, or where no
    offset of an instruction reaches all operands."""
    nnz, m, last = matrix.nnz, matrix.m, max(0, matrix.k - 1)
    reach = max(addressing.row_stride * m, *(addressing.locate(k)[1] for k in (0, last)))
    if max(reach, addressing.columns) * element >= 2**31:
        raise Unsupported("offsets beyond 2 GB do not fit an instruction")
    if addressing.pointers > 1:
        if nnz > MAX_CONVOLUTION_NONZEROS:
            raise Unsupported(f"{nnz} nonzeros: filters are written into code up to {MAX_CONVOLUTION_NONZEROS}")
        return
    if nnz > MAX_NONZEROS or nnz * INSTRUCTION_BYTES > MAX_CODE_BYTES:
        raise Unsupported(
            f"{nnz} nonzeros would make at least {nnz * INSTRUCTION_BYTES / 2**20:.1f} MB of straight-line code, "
            f"which a GPU fetches more slowly than the matrix itself (limit: {MAX_NONZEROS} nonzeros); "
            "the kernels 'row_stream' and 'ring' read such a matrix as data"
        )


class Planner:
    """Ranks the tilings of one matrix on one architecture."""

    def __init__(self, matrix: CSR, addressing: Addressing, arch: str, element: Literal[2, 4] = 4) -> None:
        self.matrix = matrix
        self.addressing = addressing
        self.target, self.sms = architecture(arch), sm_count(arch)
        self.element = element
        self._tiles: dict[tuple[int, int], RowTiles] = {}

    def rows(self, tiling: Tiling) -> RowTiles:
        key = (tiling.rows, tile_count(self.matrix, tiling.rows, tiling.row_tiles))
        if key not in self._tiles:
            tiles = share_columns(self.matrix, assign_rows(self.matrix, tiling.rows, tiling.row_tiles))
            costs = tile_costs(self.matrix, tiles)
            worst = int(costs.sum(axis=1).argmax())
            self._tiles[key] = RowTiles(tiles, int(costs[worst, 0]), int(costs[worst, 1]))
        return self._tiles[key]

    def cycles(self, tiling: Tiling) -> float:
        t, rows = tiling, self.rows(tiling)
        v, wide = t.columns_per_thread, t.tile_columns * t.column_tiles
        across = -(-self.addressing.columns // (wide * t.loop))
        down = len(rows.tiles) // t.row_tiles
        per_sm = -(-down * across // self.sms)
        turns = per_sm * t.loop
        instructions = rows.nonzeros * v + rows.loads  # of one row tile

        block_code = INSTRUCTION_BYTES * instructions * t.row_tiles
        sm_code = block_code * min(per_sm, down)
        slowdown = max(1.0, block_code * down / SMALL_KERNEL) * max(1.0, sm_code / SMALL_CODE)
        fetch = t.loop * sm_code / 20.0 * math.sqrt(slowdown)
        warp_fetch = t.loop * INSTRUCTION_BYTES * instructions / t.parts / 8.0
        issue = turns * t.column_tiles * t.row_tiles * instructions / 4

        reached = float(self.matrix.k if t.staged else min(self.matrix.k, rows.loads * t.row_tiles))
        if self.addressing.pointers > 1:  # the taps of a channel re-read nearly the same lines
            reached = min(reached, 3.5 * self.matrix.k / self.addressing.pointers)
        traffic = turns * reached * wide * self.element / 100.0
        if t.staged:  # nothing runs meanwhile
            waiting = per_sm * self.matrix.k * wide * self.element / 40.0
        else:
            waiting = 100.0 * t.loop * rows.loads / t.parts / t.depth
        sums = 200.0 + 2.0 * turns * t.warps * t.rows * v if t.parts > 1 else 0.0
        idle = 500.0 if t.warps * per_sm < 8 else 0.0  # a guess: few of this kind were measured
        return LAUNCH + fetch + warp_fetch + issue + traffic + waiting + sums + idle

    def grid(self) -> list[Tiling]:
        """Every tiling of the search space that this matrix and architecture have room for."""
        m, k, n, run = self.matrix.m, self.matrix.k, self.addressing.columns, self.addressing.run
        found = []
        shapes = product((8, 16, 32, 64), (1, 2, 4, 8, 16), (1, 2, 4), (1, 2, 4, 8), (1, 2), (1, 2, 4), (False, True))
        for rows, parts, across, down, v, loop, staged in shapes:
            depth = 32 if rows <= 32 and v == 1 else 16
            t = Tiling(rows, parts, v, down, across, loop, staged, depth)
            sums = t.warps * rows * t.tile_columns * 4 if parts > 1 else 0
            stage = k * t.tile_columns * across * self.element if staged else 0
            no_room = t.warps < 2 or t.threads > 1024 or (rows * v + depth * v + 24) * t.threads > 65536
            no_room |= sums + stage > min(self.target.block_shared_bytes, 128 * 1024)
            idle = (rows > 8 and rows * down >= 2 * m) or (parts > 1 and k < 4 * parts)
            idle |= max(across, loop) > 1 and n <= t.tile_columns * (max(across, loop) - 1)
            scattered = (v == 2 and (not run or run % 2 or n <= 32)) or (staged and not run)
            useless = (loop > 1 and (across > 1 or staged)) or (staged and down == 1 and parts < 4)
            if not (no_room or idle or scattered or useless):
                found.append(t)
        return found

    def candidates(self) -> list[Tiling]:
        """The tilings worth assembling, best first: of those that have won, then of the rest, one of a family each.

        A small matrix whose columns it divides gets the paper's kind of tiling too, whatever the model says of it.
        Raises `Unsupported` where the matrix is not viable.
        """
        check(self.matrix, self.addressing, self.element)
        count = next(count for most, count in CANDIDATES if self.matrix.nnz <= most)
        ranked = sorted(self.grid(), key=lambda t: (self.cycles(t), t.name))
        ranked = [t for t in ranked if self.cycles(t) <= BEHIND * self.cycles(ranked[0])]
        proven = [t for t in ranked if t in _PROVEN][: count - (count - 3) // 2]
        left = (t for t in ranked if t not in proven)
        others = first_of_each(left, lambda t: (t.rows, t.row_tiles > 1, t.column_tiles, t.staged))
        chosen = proven + others[: count - len(proven)]
        plain = self.matrix.nnz <= CANDIDATES[0][0] and self.addressing.pointers == 1
        if plain and _PAPERS in ranked and self.addressing.columns % (_PAPERS.tile_columns * _PAPERS.column_tiles) == 0:
            chosen = list(dict.fromkeys([*chosen, _PAPERS]))
        return sorted(chosen, key=ranked.index)


_PAPERS = Tiling(16, column_tiles=2, depth=32)
"""16 rows by 64 columns in two warps, K not split: the paper's tiling of this shape was 8 % faster than any of ours on
the first problem of its table 1 (1,478 nonzeros, 3,136 columns), where the model ranks ours 78th."""


_PROVEN = frozenset(
    {
        Tiling(64, parts=8), Tiling(32, parts=8, depth=32), Tiling(32, parts=16, depth=32),
        Tiling(16, parts=16, depth=32), Tiling(8, parts=8, depth=32), Tiling(32, parts=4, column_tiles=2, depth=32),
        Tiling(32, parts=8, column_tiles=2, depth=32), Tiling(32, parts=4, row_tiles=2, column_tiles=2, depth=32),
        Tiling(16, parts=4, column_tiles=2, depth=32), Tiling(16, parts=8, column_tiles=2, depth=32),
        Tiling(16, parts=4, column_tiles=4, depth=32), Tiling(8, parts=8, column_tiles=2, depth=32),
        Tiling(64, column_tiles=4), Tiling(64, row_tiles=2, column_tiles=2, staged=True),
        Tiling(32, row_tiles=4, depth=32, staged=True), Tiling(16, row_tiles=4, depth=32, staged=True),
        Tiling(16, row_tiles=4, column_tiles=2, depth=32, staged=True), Tiling(8, row_tiles=8, depth=32, staged=True),
    }
)  # fmt: skip
"""Fastest, or within 3 % of it, on a problem of the paper's tables on an H200."""


MAX_TAPS = 25
"""Each tap takes a 64-bit pointer per thread."""


def make_plan(
    planner: Planner,
    tiling: Tiling,
    dense: Array,
    arch: str,
    shape: tuple[int, ...],
    values: Literal["code", "buffer"] = "code",
) -> Plan:
    """Generates the program of one tiling. `dense` is B (k, n) or the image; the output has `shape`.

    Raises `Unsupported` where the tiling does not fit the architecture.
    """
    start = time.perf_counter()
    schedule = make_schedule(planner.matrix, tiling, planner.rows(tiling).tiles)
    program = Program(schedule, planner.addressing, planner.element, values)
    source = emit_ptx(program, arch)
    return Plan(
        variant=tiling.name + ("_pattern" if values == "buffer" else ""),
        language="ptx",
        source=source,
        defines={},
        buffers=program.buffers(dense, shape),
        output="c",
        launches=(program.launch(),),
        math="f16" if planner.element == 2 else "f32",
        generate_ms=(time.perf_counter() - start) * 1e3,
        cpu_source=emit_cpp(program),
    )


def planned(problem: Problem, operands: Operands, arch: str) -> tuple[Planner, Array, tuple[int, ...]]:
    """The planner of a product or convolution, its dense operand, and the output's shape.

    Raises `Unsupported` for an unknown architecture or too large a matrix.
    """
    c = problem.conv
    addressing = MatrixColumns(problem.n) if c is None else ImagePixels(c)
    planner = Planner(operands.sparse, addressing, arch, 2 if problem.dtype == "f16" else 4)
    check(planner.matrix, addressing, planner.element)
    return planner, operands.dense["b" if c is None else "x"], (problem.m, problem.n) if c is None else c.output


def _plans(
    problem: Problem, operands: Operands, arch: str, values: Literal["code", "buffer"] = "code"
) -> Iterator[Plan]:
    """The plans of the planner's candidates, led by the winner of an earlier exhaustive search where there was one."""
    if problem.m == 0 or problem.n == 0:
        raise Unsupported("the output is empty")
    planner, dense, shape = planned(problem, operands, arch)
    known = recall(search_name(operands.pattern, problem, arch))
    for tiling in dict.fromkeys([*([known.tiling] if known else []), *planner.candidates()]):
        yield make_plan(planner, tiling, dense, arch, shape, values)


def _refuses(problem: Problem, matrix: CSR) -> None:
    """Raises `Unsupported` without ranking tilings or writing a program, which take seconds."""
    check(matrix, MatrixColumns(problem.n), ITEM_BYTES[problem.dtype])


@kernel(PAPER, "spmm", "f32 f16", About("own", refuses=_refuses, weights_in_code=True, rank=40))
def sparsert(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """SpMM with values in the code: the best tilings by the cost model, best first."""
    yield from _plans(problem, operands, arch)


@kernel(PAPER, "spmm", "f32 f16", About("own", study=True, refuses=_refuses, weights_in_code=True, rank=100))
def sparsert_pattern(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """The same with only the pattern in the code: retraining the values needs no new program."""
    yield from _plans(problem, operands, arch, "buffer")


@kernel(PAPER, "conv2d conv1d", "f32 f16", About("own", weights_in_code=True, rank=50))
def sparsert_conv(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Sparse filters by generated code; any batch, padding and stride, filters of up to 25 taps.

    The best tilings by the cost model, best first.
    """
    c = convolved(problem)
    if c.r * c.s > MAX_TAPS:
        raise Unsupported(f"{c.r}x{c.s} filters need {c.r * c.s} pointers per thread, at most {MAX_TAPS}")
    yield from _plans(problem, operands, arch)
