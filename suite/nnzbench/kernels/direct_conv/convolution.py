"""Direct sparse convolution: the published kernel, and one of our own that reads and writes plain NCHW images.

Ours is generated for a layer's weights. A block computes some output channels of a tile of whole output rows; its input
is staged in shared memory, padding included, so that neither padding nor a change of layout costs a pass of its own.
Tilings are chosen by estimating what an SM, its caches and memory take for them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from nnzbench.core.architectures import block_shared_bytes, sm_count
from nnzbench.core.plan import Plan, Unsupported
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.kernels.direct_conv import paper as direct_conv_paper
from nnzbench.kernels.direct_conv.program import (
    ConvTile,
    ConvTiling,
    emit_cpp,
    emit_ptx,
    make_program,
    reserved_registers,
)
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.rows import convolved

_L2_BYTES = 24.0
"""Bytes a clock per SM from L2, all SMs reading: about 5.5 TB/s on an H200."""
_L2_HOLDS = 24 << 20
"""Bytes of input that one group's blocks leave in L2 for the next's."""
_DRAM_BYTES = 18.0
"""Bytes a clock per SM to and from memory."""
_FETCH_BYTES = 6.5
"""Bytes a clock of instructions that the SM's caches do not hold."""
_CACHED_FETCH_BYTES = 20.0
"""Bytes a clock of instructions that they do hold."""
_CODE_CACHE = 90_000
_SETTLED_GROUPS = (4, 8)
"""Where the blocks of so many groups fill one wave and follow each other by group, one launch after another runs at the
speed of cached code (1.2 to 1.6 times as fast on an H200); with 5 to 7 groups it does not. Why is not established."""
_BLOCK_CYCLES = 1500.0
"""Start, first chunks and last stores of a block."""
_ALIKE = 1.04
"""Estimates of tilings that differ only in how the lanes are filled are no finer than this."""
_REACH = 1.2
"""Tilings estimated this much slower than the best are tried only where others are lacking."""
_TAPS_PER_CHUNK = 72
"""So that a chunk's work outweighs its barrier."""
_FEWEST_SUMS = 12
_STAGES = 3
_NONZEROS_PER_LAUNCH = 65_536
"""Programs of more take the assembler over twenty seconds."""


@dataclass(frozen=True)
class ConvModel:
    """Estimates for one layer: its sizes, stored nonzeros and element size."""

    shape: ConvShape
    nonzeros: int
    element: Literal[2, 4]
    arch: str

    def cycles(self, tiling: ConvTiling) -> float:
        """Clocks of the whole launch by the slowest of issue, shared memory, instruction fetch, L2 and memory."""
        s, tile, sms = self.shape, ConvTile(self.shape, tiling, self.element), sm_count(self.arch)
        groups = -(-s.filters // tiling.rows_per_lane)
        inputs = s.channels * s.r * s.s
        density = self.nonzeros / max(1, s.filters * inputs)
        rows = min(tiling.rows_per_lane, s.filters)
        multiplies = self.nonzeros / groups
        loads = inputs * (1 - (1 - density) ** rows)
        warps = tiling.threads // 32
        slowest = -(-warps * tiling.blocks // 4) / tiling.blocks  # warps per block of the busiest of four schedulers
        copies = tile.pieces * s.channels / tiling.threads * 1.5 + tile.chunks * 12
        issue = (multiplies + loads * (1 if self.element == 4 else 2) + copies + 1.5 * rows) * slowest
        port = loads * tile.wavefronts * warps + tile.pieces * s.channels * tile.piece * self.element / 128
        resident = tiling.blocks
        busy = max(issue, port) * resident / min(1.0, warps * resident / 14)
        code = 16 * max(1.0, multiplies + loads)
        launches = min(tiling.launches, groups)
        kept = code * (1 if tiling.grouped else groups) <= _CODE_CACHE  # from the block before on the same SM
        fetch = code / _FETCH_BYTES * resident
        blocks = groups * tile.tiles
        waves = sum(
            -(-(groups * (i + 1) // launches - groups * i // launches) * tile.tiles // (sms * resident))
            for i in range(launches)
        )
        settled = tiling.grouped and groups in _SETTLED_GROUPS and 0.7 * sms <= blocks <= sms
        changes = 0 if settled else min(groups, waves) if tiling.grouped else 1
        new = changes if kept else waves  # blocks whose code must be fetched
        fetched = new * fetch + (waves - new) * code / _CACHED_FETCH_BYTES
        compute = waves * (busy + _BLOCK_CYCLES / resident) + fetched
        staged = tile.rows * min(tile.columns, s.width) * tiling.images * s.channels * self.element
        l2 = blocks * staged / (_L2_BYTES * sms)
        held = s.batch * s.channels * tile.plane * self.element <= _L2_HOLDS
        sweeps = 1 if held else groups if tiling.grouped else launches  # over the input, from memory
        image = s.batch * (sweeps * s.channels * tile.plane + s.filters * s.out_height * s.out_width)
        return max(compute, l2, image * self.element / (_DRAM_BYTES * sms)) + 0.2 * (compute + l2)

    def candidates(self, count: int) -> list[ConvTiling]:
        """The most promising tilings, best first, that differ in warps, channels per lane, or whether rows are whole.

        Half of them have another order of blocks than the rest where both promise much, because what the order costs is
        the hardest to foresee. Raises `Unsupported` where none fits the architecture.
        """
        cycles = {tiling: self.cycles(tiling) for tiling in self.grid()}
        alike: dict[tuple[int, int, bool, bool], list[ConvTiling]] = {}
        for tiling in sorted(cycles, key=cycles.__getitem__):
            whole = tiling.width == self.shape.out_width
            key = (tiling.allotted_threads, tiling.rows_per_lane, whole, tiling.grouped)
            first = alike.setdefault(key, [tiling])[0]
            if tiling is not first and cycles[tiling] <= _ALIKE * cycles[first]:
                alike[key].append(tiling)
        if not alike:
            raise Unsupported(f"no tile of {self.shape} fits the shared memory of {self.arch}")
        ranked = [next(iter(alike.values()))[0]]
        for tilings in alike.values():  # fewer blocks fetch less code at once: a twentieth fewer has measured better
            fewer = 0.95 * self._tiles(tilings[0])
            fuller = next((tiling for tiling in tilings if self._tiles(tiling) <= fewer), tilings[0])
            if fuller not in ranked:
                ranked.append(fuller)
        near = [tiling for tiling in ranked if cycles[tiling] <= _REACH * cycles[ranked[0]]]
        orders: Counter[bool] = Counter()
        chosen: list[ConvTiling] = []
        for tilings, most in ((near, -(-count // 2)), (ranked, count)):
            for tiling in tilings:
                if len(chosen) < count and tiling not in chosen and orders[tiling.grouped] < most:
                    chosen.append(tiling)
                    orders[tiling.grouped] += 1
        return sorted(chosen, key=cycles.__getitem__)

    def grid(self) -> Iterator[ConvTiling]:
        row_counts = self._row_counts()
        for place in sorted(self._places()):
            for blocks in (1, 2, 3, 4):
                for rows in row_counts:
                    for grouped in (False, True):
                        tiling = self._staged(ConvTiling(rows, *place, 1, _STAGES, blocks, grouped=grouped))
                        if tiling is not None:
                            yield tiling

    def _tiles(self, tiling: ConvTiling) -> int:
        return ConvTile(self.shape, tiling, self.element).tiles

    def _row_counts(self) -> list[int]:
        """Channels per lane that divide the filters evenly."""
        filters = self.shape.filters
        counts = {-(-filters // groups) for groups in range(1, filters + 1)}
        return sorted(c for c in counts if c <= 112 and (c >= _FEWEST_SUMS or c == filters))

    def _places(self) -> set[tuple[int, int, int]]:
        """Images, height and width of tiles that fill at least four of five lanes, or of all where none does."""
        s = self.shape
        narrowest = -(-s.out_width // 1024)
        places = set()
        for across in range(narrowest, max(9, narrowest + 2)):
            width = s.out_width if across == 1 else -(-s.out_width // (across * 8)) * 8
            if across > 1 and not 32 <= width < s.out_width:
                continue
            for height in _shares(s.out_height):
                for images in _shares(s.batch):
                    if images * height * width <= 1024:
                        places.add((images, height, width))
        full = {place for place in places if self._filled(place) >= 0.8}
        return full or places

    def _filled(self, place: tuple[int, int, int]) -> float:
        """Part of the allotted lanes that computes an output, edges of the image included."""
        tiling = ConvTiling(1, *place, chunk=1)
        tile, s = ConvTile(self.shape, tiling, self.element), self.shape
        return s.batch * s.out_height * s.out_width / (tile.tiles * tiling.allotted_threads)

    def _staged(self, tiling: ConvTiling) -> ConvTiling | None:
        """`tiling` with as many channels per chunk as are useful and fit, None where it has no room.

        A register's worth of slack is kept: the assembler spills where it has none.
        """
        s = self.shape
        tile = ConvTile(s, tiling, self.element)
        if tiling.grouped and tiling.rows_per_lane >= s.filters:
            return None
        spare = tiling.registers - tiling.rows_per_lane - reserved_registers(tile) - 1
        if spare < 3 or tiling.threads > 1024:
            return None
        budget = block_shared_bytes(self.arch) // tiling.blocks - 1024
        room = budget // (tiling.stages * (tile.channel_pitch * self.element + 16))
        wanted = min(s.channels, max(2, _TAPS_PER_CHUNK // (s.r * s.s)), room)
        if wanted < 1:
            return None
        together = max(1, tiling.threads // tile.pieces)  # channels that one copy per thread can cover
        chunk = wanted // together * together if wanted > together else wanted
        even = -(-s.channels // -(-s.channels // chunk))
        chunk = min(chunk, -(-even // together) * together)
        launches = -(-self.nonzeros // _NONZEROS_PER_LAUNCH) or 1
        return replace(tiling, chunk=chunk, depth=min(8, spare), launches=launches)


def _shares(size: int) -> set[int]:
    """Sizes of the largest part when `size` is cut into 1, 2, 3... near-equal parts."""
    return {-(-size // parts) for parts in range(1, size + 1)}


CANDIDATES = 6
"""Tilings tried."""


def make_plan(problem: Problem, operands: Operands, tiling: ConvTiling, arch: str) -> Plan:
    """Generates the program of one tiling. Raises `Unsupported` where it does not fit the architecture."""
    start = time.perf_counter()
    assert problem.conv is not None
    program = make_program(operands.sparse, problem.conv, tiling, _element(problem))
    sources = [emit_ptx(program, arch, part) for part in range(len(program.parts))]
    elapsed = (time.perf_counter() - start) * 1e3
    return Plan(
        variant=tiling.name,
        language="ptx",
        source=sources[0],
        defines={},
        buffers=program.buffers(operands.dense["x"]),
        output="y",
        launches=program.launches(sources),
        math=problem.dtype,
        generate_ms=elapsed,
        cpu_source=emit_cpp(program),
    )


def _element(problem: Problem) -> Literal[2, 4]:
    return 2 if problem.dtype == "f16" else 4


@kernel(
    "Pietroń, Żurek: direct sparse convolution, 2021",
    "conv2d conv1d",
    "f32 f16",
    About("own", paper_variants="paper_", weights_in_code=True, rank=160),
)
def direct_conv(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Sparse filters of any size, padding and stride; fp32, or fp16 summed in fp32.

    Our most promising tiling, the published variants, then our others: generating each takes its time.
    """
    shape = convolved(problem)
    found = iter(ConvModel(shape, operands.sparse.nnz, _element(problem), arch).candidates(CANDIDATES))
    for tiling in islice(found, 1):
        yield make_plan(problem, operands, tiling, arch)
    refusal = None
    try:
        yield from direct_conv_paper.plans(problem, operands)
    except Unsupported as error:
        refusal = error
    for tiling in found:
        yield make_plan(problem, operands, tiling, arch)
    if refusal is not None:
        raise refusal
