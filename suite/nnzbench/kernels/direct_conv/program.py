"""A generated convolution: where a block has its outputs and its part of the input, and its text as PTX and as C++.

A block computes whole rows of a few images where it can, one output position per lane. The input it needs is staged a
few channels at a time: rows of `pitch` elements with room for the padding, which stays zero, so that a filter tap is
one constant offset for every lane.

The PTX is a jump to the code of the block's output channels, then chunk after chunk of channels. Before the code of a
chunk stands the copying of a later one, so that shared memory is a ring that one barrier per chunk keeps in step; the
barrier also keeps the warps together, which share every instruction they fetch. The C++ reads the schedule as tables,
with the same launch, buffers and order of multiply-adds, without staging: the cpu device runs it in place of PTX.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.architectures import Architecture, architecture, block_shared_bytes
from nnzbench.core.plan import Launch, Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.problem import ConvShape
from nnzbench.kernels.rows import vector_width
from nnzbench.kernels.sparsert.emit import immediates, load_parameters, loads_ahead, prologue, row_tables, vector
from nnzbench.kernels.sparsert.program import divide, divmod_ptx
from nnzbench.kernels.sparsert.schedule import Body, Schedule, Tiling, assign_rows, make_schedule, refuse, tables

Columns = TypeVar("Columns", int, NDArray[np.integer[Any]])
_BANKS = 32


@dataclass(frozen=True)
class ConvTiling:
    """Shape of the work of a block: output positions, output channels per lane, and staging."""

    rows_per_lane: int
    """Output channels that a lane sums at once; all of a block's warps run the code of the same channels."""
    images: int
    height: int
    width: int
    """A tile is `images` x `height` x `width` output positions."""
    chunk: int
    """Input channels staged at a time."""
    stages: int = 3
    """Chunks in shared memory: one in use, the others on their way."""
    blocks: int = 1
    """Blocks that one SM shall have room for."""
    depth: int = 6
    """Loads issued ahead of their use."""
    grouped: bool = False
    """Whether neighbouring blocks have the same channels, so that an SM keeps their code; else the same tile."""
    launches: int = 1
    """Launches that share out the groups of channels, at most: each has a program of its own, assembled beside the
    others, as the assembler's time grows with the length of one program."""

    @property
    def outputs(self) -> int:
        return self.images * self.height * self.width

    @property
    def threads(self) -> int:
        """Threads per block: whole warps."""
        return -(-self.outputs // 32) * 32

    @property
    def allotted_threads(self) -> int:
        """Threads whose registers a block takes: hardware hands them out four warps at a time."""
        return -(-self.threads // 128) * 128

    @property
    def registers(self) -> int:
        return min(255, 65536 // (self.blocks * self.allotted_threads) // 8 * 8)

    @property
    def name(self) -> str:
        place = f"{self.images}x{self.height}x{self.width}"
        stages = "" if self.stages == 3 else f"_s{self.stages}"
        order = "_grouped" if self.grouped else ""
        launches = "" if self.launches == 1 else f"_l{self.launches}"
        return f"staged_r{self.rows_per_lane}_{place}_c{self.chunk}_b{self.blocks}{stages}{order}{launches}"

    @property
    def ahead(self) -> int:
        """Chunks on their way while one is worked on."""
        return self.stages - 1


class ConvTile:
    """The staged input of one tiling, of elements of 2 or 4 bytes. Columns, pitches and offsets count elements."""

    def __init__(self, shape: ConvShape, tiling: ConvTiling, element: Literal[2, 4]) -> None:
        s, t = shape, tiling
        self.shape, self.tiling, self.element = shape, tiling, element
        self.across, self.down = -(-s.out_width // t.width), -(-s.out_height // t.height)
        """Tiles side by side in an output row, and one below the other in an output plane."""
        self.tiles = self.across * self.down * -(-s.batch // t.images)
        self.chunks = -(-s.channels // t.chunk)
        self.plane = s.height * s.width
        self.rows = (t.height - 1) * s.stride + s.r
        """Input rows under a tile, those of the padding included."""
        self.piece = piece = vector_width(math.gcd(s.width, t.width * s.stride * (self.across > 1)), element)
        """Elements of one copy: the widest up to 16 bytes that keeps rows of the image aligned."""
        self.left = -(-s.pad_w // piece) * piece
        """Staged columns before the tile's first input column that is no padding."""
        self.skew = self.left - s.pad_w
        """Staged column of the first lane's first tap."""
        self.columns = -(-((t.width - 1) * s.stride + s.s + self.skew) // piece) * piece
        """Staged columns a row needs."""
        several = t.height * t.images > 1
        spread = s.stride == 1 and element == 4 and several and t.width % piece == 0
        self.pitch = self.columns + (t.width - self.columns) % _BANKS * spread
        """Columns from row to row: equal to the tile's width modulo the banks, so that a warp that runs over the end
        of a row still reads 32 different banks; as few as possible where that would cost the alignment."""
        size = self.rows * self.pitch
        self.image_pitch = size + (t.height * t.width - size) % _BANKS * (spread and t.images > 1)
        """Elements from image to image of a channel, chosen like `pitch`."""
        self.channel_pitch = t.images * self.image_pitch
        self.stage_bytes = -(-t.chunk * self.channel_pitch * element // 16) * 16
        """Of one chunk, a multiple of 16."""
        self.shared_bytes = t.stages * self.stage_bytes
        self.first_column = self.left if self.across == 1 else 0
        """Staged column where copying starts: the padding of a whole row is never copied."""
        end = min(self.columns, self.left + s.width) if self.across == 1 else self.columns
        self.pieces_per_row = max(1, (end - self.first_column) // piece)
        self.pieces = t.images * self.rows * self.pieces_per_row
        self.pieces_per_thread = -(-self.pieces // t.threads)
        """Copies of one channel that a thread makes; more than one only where the threads do not suffice."""
        most = max(1, t.threads // self.pieces)
        self.channels_at_once = max(k for k in range(1, t.chunk + 1) if t.chunk % k == 0 and k <= most)
        """Channels whose copies the block's threads share out, one copy each; a divisor of the chunk."""
        strided = s.stride if element == 4 else max(1, s.stride // 2)
        self.wavefronts = 2 if element == 4 and not spread and several else strided
        """Passes a warp's load from shared memory takes."""

    def offset(self, column: Columns) -> tuple[Columns, Columns]:
        """Chunk and byte offset within its stage of column (channel, r, s), or of many, of the weights."""
        channel, tap = divmod(column, self.shape.r * self.shape.s)
        r, s = divmod(tap, self.shape.s)
        chunk, within = divmod(channel, self.tiling.chunk)
        return chunk, (within * self.channel_pitch + r * self.pitch + s) * self.element


ENTRY = "direct_conv"
MAX_INSTRUCTIONS = 400_000
"""Longer programs take the assembler minutes."""


@dataclass(frozen=True)
class ChunkRun:
    """Part of a body: the columns `[first, last)` whose input lies in one chunk."""

    body: Body
    first: int
    last: int


class ConvProgram:
    """One kernel: which output channels each group sums, and where a tile's input lies."""

    def __init__(self, schedule: Schedule, tile: ConvTile) -> None:
        self.schedule, self.tile, self.element = schedule, tile, tile.element
        edges = np.arange(tile.chunks + 1) * tile.tiling.chunk * tile.shape.r * tile.shape.s
        self.runs = [
            [ChunkRun(body, a, b) for a, b in itertools.pairwise(np.searchsorted(body.columns, edges).tolist())]
            for body in schedule.bodies
        ]
        """By group and chunk."""
        groups, count = schedule.tiles, min(tile.tiling.launches, schedule.tiles)
        cuts = [groups * i // count for i in range(count + 1)]
        self.parts = [range(a, b) for a, b in itertools.pairwise(cuts)]
        """The groups of output channels of each launch, as equal in number as can be."""
        self.out_plane = tile.shape.out_height * tile.shape.out_width

    def buffers(self, x: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {"x": np.ascontiguousarray(x), "y": np.zeros(self.tile.shape.output, x.dtype)}

    def launches(self, sources: Sequence[str]) -> tuple[Launch, ...]:
        """One launch for each of `parts`, whose programs `sources` are; the first is the plan's own.

        Neighbouring blocks have the same tile, so that they meet their input in L2, or under `grouped` the same group.
        """
        t = self.tile
        return tuple(
            Launch(
                ENTRY,
                (len(part) * t.tiles, 1, 1),
                (t.tiling.threads, 1, 1),
                ("x", "y", part.start, len(part)),
                t.shared_bytes,
                source if number else "",
            )
            for number, (part, source) in enumerate(zip(self.parts, sources, strict=True))
        )

    def check(self, arch: str) -> None:
        """Raises `Unsupported` with the reason where hardware or encoding has no room."""
        tile, t = self.tile, self.tile.tiling
        instructions = max(sum(self.schedule.bodies[group].instructions for group in part) for part in self.parts)
        if instructions > MAX_INSTRUCTIONS:
            raise Unsupported(f"{instructions} instructions: programs are assembled up to {MAX_INSTRUCTIONS}")
        limit = block_shared_bytes(arch)
        wrong = {
            f"{t.stages} stages, at least 2": t.ahead < 1,
            f"{t.threads} threads a block, at most 1024": t.threads > 1024,
            f"{t.rows_per_lane} sums do not fit {t.registers} registers": t.rows_per_lane + reserved_registers(tile)
            > t.registers,
            f"{tile.shared_bytes} bytes of shared memory, at most {limit}": tile.shared_bytes > limit,
        }
        refuse(t.name, wrong)
        s = tile.shape
        most = max(s.batch * s.channels * tile.plane, s.batch * s.filters * self.out_plane)
        if most >= 2**31 or max(t.chunk * tile.plane, s.filters * self.out_plane) * self.element >= 2**31:
            raise Unsupported("images beyond 2**31 elements do not fit the generated offsets")


def reserved_registers(tile: ConvTile) -> int:
    """Registers of a thread beside its sums and the loads on their way."""
    return 9 + 3 * tile.pieces_per_thread


def make_program(matrix: CSR, shape: ConvShape, tiling: ConvTiling, element: Literal[2, 4]) -> ConvProgram:
    """Deals output channels to groups with near-equal nonzeros and orders each group's by (channel, r, s)."""
    rows = assign_rows(matrix, tiling.rows_per_lane)
    return ConvProgram(make_schedule(matrix, Tiling(tiling.rows_per_lane), rows), ConvTile(shape, tiling, element))


def emit_ptx(program: ConvProgram, arch: str, part: int = 0) -> str:
    """The PTX module of one of the program's launches. Raises `Unsupported` where the program does not fit `arch`."""
    target = architecture(arch)
    program.check(arch)
    return "\n".join([*target.ptx_header(), *_ConvEmitter(program, target, part).kernel(), ""])


class _ConvEmitter:
    def __init__(self, program: ConvProgram, target: Architecture, part: int) -> None:
        self.p = program
        self.groups = program.parts[part]
        self.tile = program.tile
        self.t = program.tile.tiling
        self.shape = program.tile.shape
        self.element = program.element
        self.bytes = self.tile.piece * self.element
        self.asynchronous = target.has("cp_async") and self.bytes >= 4

    def kernel(self) -> list[str]:
        own = self.tile.pieces_per_thread
        return [
            ".extern .shared .align 16 .b8 shared[];",
            f".visible .entry {ENTRY}(",
            "  .param .u64 p_x,",
            "  .param .u64 p_y,",
            "  .param .u32 first,",  # which groups these are: the equivalent C++ has all of them and must be told
            "  .param .u32 count",
            ")",
            f".maxntid {self.t.allotted_threads}, 1, 1",
            f".minnctapersm {self.t.blocks}",
            "{",
            f".reg .f32 %a<{self.t.rows_per_lane}>, %b<{self.t.depth}>, %zero;",
            f".reg .b16 %h<{self.t.depth}>, %g0;",
            ".reg .u32 %thread, %group, %tile, %image, %y, %x, %lane, %base, %at, %turn;",
            ".reg .s32 %t0, %t1, %t2, %t3, %t4;",
            f".reg .u32 %dst<{own}>, %w<4>;",
            f".reg .b64 %in, %out, %wide, %to, %src<{own}>;",
            f".reg .pred %pv, %pl, %pn, %pc<{own}>;",
            *load_parameters({"x": "%in", "y": "%out"}),
            "mov.u32 %thread, %tid.x;",
            *self._clear(),
            *self._tile_origin(),
            *self._output(),
            *self._pieces(),
            *[f"mov.f32 %a{i}, 0f00000000;" for i in range(self.t.rows_per_lane)],
            "bar.sync 0;",
            *[line for chunk in range(self.t.ahead) for line in self._copy(chunk)],
            *self._jump(),
            *[line for group in self.groups for line in self._group(group)],
            "END:",
            "ret;",
            "}",
        ]

    def _clear(self) -> list[str]:
        """Zeros in all of shared memory: the padding is never copied. What no lane with an output reads may be left."""
        lines = ["mov.f32 %zero, 0f00000000;", "mov.u32 %base, shared;", "mad.lo.u32 %at, %thread, 16, %base;"]
        words = self.tile.shared_bytes // 16 if self.shape.pad_h or self.shape.pad_w else 0
        for i in range(0, words, self.t.threads):
            guard = ""
            if i + self.t.threads > words:
                lines.append(f"setp.lt.u32 %pl, %thread, {words - i};")
                guard = "@%pl "
            lines.append(f"{guard}st.shared.v4.f32 [%at+{i * 16}], {{%zero, %zero, %zero, %zero}};")
        return lines

    def _tile_origin(self) -> list[str]:
        """`%image`, `%y` and `%x` become the first output position of the block's tile."""
        return [
            "mov.u32 %t0, %ctaid.x;",
            *(
                divmod_ptx("%group", "%tile", "%t0", self.tile.tiles)
                if self.t.grouped
                else divmod_ptx("%tile", "%group", "%t0", len(self.groups))
            ),
            *divmod_ptx("%t1", "%x", "%tile", self.tile.across),
            *divmod_ptx("%image", "%y", "%t1", self.tile.down),
            f"mul.lo.u32 %image, %image, {self.t.images};",
            f"mul.lo.u32 %y, %y, {self.t.height};",
            f"mul.lo.u32 %x, %x, {self.t.width};",
        ]

    def _output(self) -> list[str]:
        """`%lane`: shared address of this lane's first tap; `%at`: its output element; `%pv`: whether it has one."""
        s, t, tile = self.shape, self.t, self.tile
        return [
            f"setp.lt.u32 %pv, %thread, {t.outputs};",
            f"min.u32 %t0, %thread, {t.outputs - 1};",
            *divmod_ptx("%t1", "%t2", "%t0", t.height * t.width),
            *divmod_ptx("%t3", "%t4", "%t2", t.width),
            f"mad.lo.u32 %lane, %t1, {tile.image_pitch}, {tile.skew};",
            f"mad.lo.u32 %lane, %t3, {tile.pitch * s.stride}, %lane;",
            f"mad.lo.u32 %lane, %t4, {s.stride}, %lane;",
            f"mad.lo.u32 %lane, %lane, {self.element}, %base;",
            "add.u32 %t1, %t1, %image;",
            "add.u32 %t3, %t3, %y;",
            "add.u32 %t4, %t4, %x;",
            f"setp.lt.and.u32 %pv, %t1, {s.batch}, %pv;",
            f"setp.lt.and.u32 %pv, %t3, {s.out_height}, %pv;",
            f"setp.lt.and.u32 %pv, %t4, {s.out_width}, %pv;",
            f"mul.lo.u32 %at, %t1, {s.filters * self.p.out_plane};",
            f"mad.lo.u32 %at, %t3, {s.out_width}, %at;",
            "add.u32 %at, %at, %t4;",
        ]

    def _pieces(self) -> list[str]:
        """Source, destination and predicate of what this thread copies of every channel (or every few channels)."""
        s, t, tile = self.shape, self.t, self.tile
        lines = [
            f"mul.lo.u32 %y, %y, {s.stride};",
            f"mul.lo.u32 %x, %x, {s.stride};",
            *divide("%turn", "%thread", tile.pieces),
        ]
        for i in range(tile.pieces_per_thread):
            if tile.pieces_per_thread == 1:
                lines += [
                    f"mul.lo.u32 %t0, %turn, {tile.pieces};",
                    "sub.u32 %t0, %thread, %t0;",
                    f"setp.lt.u32 %pc{i}, %turn, {tile.channels_at_once};",
                ]
            else:
                lines += [f"add.u32 %t0, %thread, {i * t.threads};", f"setp.lt.u32 %pc{i}, %t0, {tile.pieces};"]
            lines += [
                *divmod_ptx("%t1", "%t2", "%t0", tile.pieces_per_row),
                *divmod_ptx("%t3", "%t4", "%t1", tile.rows),
                f"mul.lo.u32 %t2, %t2, {tile.piece};",
                f"add.u32 %t2, %t2, {tile.first_column};",
                f"mad.lo.u32 %dst{i}, %t3, {tile.image_pitch}, %t2;",
                f"mad.lo.u32 %dst{i}, %t4, {tile.pitch}, %dst{i};",
            ]
            if tile.pieces_per_thread == 1:
                lines.append(f"mad.lo.u32 %dst{i}, %turn, {tile.channel_pitch}, %dst{i};")
            lines += [
                f"mad.lo.u32 %dst{i}, %dst{i}, {self.element}, %base;",
                "add.u32 %t3, %t3, %image;",
                "add.s32 %t4, %t4, %y;",
                f"add.s32 %t4, %t4, {-s.pad_h};",
                "add.s32 %t2, %t2, %x;",
                f"add.s32 %t2, %t2, {-tile.left};",
                f"setp.lt.and.u32 %pc{i}, %t3, {s.batch}, %pc{i};",
                f"setp.lt.and.u32 %pc{i}, %t4, {s.height}, %pc{i};",
                f"setp.lt.and.u32 %pc{i}, %t2, {s.width}, %pc{i};",
                f"mul.lo.s32 %t3, %t3, {s.channels * tile.plane};",
                f"mad.lo.s32 %t3, %t4, {s.width}, %t3;",
                "add.s32 %t3, %t3, %t2;",
            ]
            if tile.pieces_per_thread == 1:
                lines.append(f"mad.lo.s32 %t3, %turn, {tile.plane}, %t3;")
            lines.append(f"mad.wide.s32 %src{i}, %t3, {self.element}, %in;")
        return lines

    def _wait(self) -> list[str]:
        """Until the next chunk has landed and all warps are done with what the next copy overwrites."""
        landed = [f"cp.async.wait_group {self.t.ahead - 1};"] if self.asynchronous else []
        return [*landed, "bar.sync 0;"]

    def _copy(self, chunk: int) -> list[str]:
        """Starts copying a chunk into its stage; also past the last one, so that groups of copies count chunks."""
        tile, together = self.tile, self.tile.channels_at_once
        lines: list[str] = []
        left = self.shape.channels - chunk * self.t.chunk
        stage = chunk % self.t.stages * tile.stage_bytes
        for first in range(0, min(left, self.t.chunk), together):
            target, source = stage + first * tile.channel_pitch * self.element, first * tile.plane * self.element
            if first + together > left:
                lines.append(f"setp.lt.and.u32 %pl, %turn, {left - first}, %pc0;")
            for i in range(tile.pieces_per_thread):
                guard = "%pl" if first + together > left else f"%pc{i}"
                lines += self._move(i, guard, target, source)
        if left > self.t.chunk:
            step = self.t.chunk * tile.plane * self.element
            lines += [f"add.u64 %src{i}, %src{i}, {step};" for i in range(tile.pieces_per_thread)]
        return [*lines, "cp.async.commit_group;"] if self.asynchronous else lines

    def _move(self, i: int, guard: str, target: int, source: int) -> list[str]:
        """The copy of piece `i`, both places beyond those of its registers."""
        if self.asynchronous:
            way = "cg" if self.bytes == 16 else "ca"  # only 16-byte copies may skip L1
            return [f"@{guard} cp.async.{way}.shared.global [%dst{i}+{target}], [%src{i}+{source}], {self.bytes};"]
        kind, words = ("b16", ["%g0"]) if self.bytes == 2 else ("u32", [f"%w{j}" for j in range(self.bytes // 4)])
        return [
            f"@{guard} " + vector("ld.global.nc", kind, words, f"%src{i}", source),
            f"@{guard} " + vector("st.shared", kind, words, f"%dst{i}", target),
        ]

    def _jump(self) -> list[str]:
        if len(self.groups) == 1:
            return []
        labels = ", ".join(f"G{i}" for i in self.groups)
        return [f"TABLE: .branchtargets {labels};", "brx.idx.uni %group, TABLE;"]

    def _group(self, group: int) -> list[str]:
        lines = [f"G{group}:"]
        for chunk, run in enumerate(self.p.runs[group]):
            lines += self._wait()
            lines += self._copy(chunk + self.t.ahead)
            lines += self._run(run, chunk % self.t.stages * self.tile.stage_bytes)
        return [*lines, *self._store(group), "bra.uni END;"]

    def _run(self, run: ChunkRun, stage: int) -> list[str]:
        """The multiply-adds of one chunk; loads run `depth` columns ahead of them."""
        body = run.body
        columns = body.columns[run.first : run.last]
        offsets = (stage + self.tile.offset(columns)[1]).tolist()
        first = body.first[run.first : run.last + 1].tolist()
        rows = body.rows[first[0] : first[-1]].tolist() if offsets else []
        values = immediates(body.values[first[0] : first[-1]]) if offsets else []

        def load(i: int, slot: int) -> str:
            kind, register = ("f32", f"%b{slot}") if self.element == 4 else ("b16", f"%h{slot}")
            return vector("ld.shared", kind, [register], "%lane", offsets[i])

        def multiply(i: int, slot: int) -> list[str]:
            lines = [f"cvt.f32.f16 %b{slot}, %h{slot};"] if self.element == 2 else []
            for j in range(first[i] - first[0], first[i + 1] - first[0]):
                lines.append(f"fma.rn.f32 %a{rows[j]}, %b{slot}, {values[j]}, %a{rows[j]};")
            return lines

        return loads_ahead(len(offsets), self.t.depth, load, multiply)

    def _store(self, group: int) -> list[str]:
        """Each lane's sums, and the zeros of channels without nonzeros. Written to leave the caches to the input."""
        lines = [f"mad.wide.u32 %to, %at, {self.element}, %out;"]
        sums = [(row, f"%a{i}") for i, row in enumerate(self.p.schedule.slots[group].tolist()) if row >= 0]
        sums += [(row, "%zero") for row in self.p.schedule.empty[group].tolist()]
        for row, register in sums:
            offset = row * self.p.out_plane * self.element
            if self.element == 4:
                lines.append(f"@%pv st.global.cs.f32 [%to+{offset}], {register};")
            else:
                lines += [f"cvt.rn.f16.f32 %g0, {register};", f"@%pv st.global.cs.b16 [%to+{offset}], %g0;"]
        return lines


def emit_cpp(program: ConvProgram) -> str:
    """The CUDA C++ text."""
    p, tile, t, s = program, program.tile, program.tile.tiling, program.tile.shape
    lines = [
        *prologue(p.element, {**tables(p.schedule.bodies), **row_tables(p.schedule)}),
        f'extern "C" __global__ void __launch_bounds__({t.threads})',
        f"{ENTRY}(const element* in, element* out, int first, int count) {{",
        "  const int thread = threadIdx.x;",
        f"  const int group = first + blockIdx.x {f'/ {tile.tiles}' if t.grouped else '% count'};",
        f"  const int tile = blockIdx.x {f'% {tile.tiles}' if t.grouped else '/ count'};",
        f"  const int image = tile / {tile.across * tile.down} * {t.images} + thread / {t.height * t.width};",
        f"  const int y = tile / {tile.across} % {tile.down} * {t.height} + thread / {t.width} % {t.height};",
        f"  const int x = tile % {tile.across} * {t.width} + thread % {t.width};",
        f"  if (thread >= {t.outputs} || image >= {s.batch} || y >= {s.out_height} || x >= {s.out_width}) return;",
        f"  float a[{t.rows_per_lane}] = {{}};",
        "  for (int c = k_body_start[group]; c < k_body_start[group + 1]; ++c) {",
        f"    const int channel = k_columns[c] / {s.r * s.s}, tap = k_columns[c] % {s.r * s.s};",
        f"    const int iy = y * {s.stride} + tap / {s.s} - {s.pad_h}, ix = x * {s.stride} + tap % {s.s} - {s.pad_w};",
        f"    const bool inside = iy >= 0 && iy < {s.height} && ix >= 0 && ix < {s.width};",
        f"    const long long from = ((long long)image * {s.channels} + channel) * {tile.plane} + iy * {s.width} + ix;",
        "    const float value = inside ? widen(in[from]) : 0.0f;",
        "    for (int m = k_first[c]; m < k_first[c + 1]; ++m)",
        "      a[k_rows[m]] = nnz::fma_rn(value, k_values[m], a[k_rows[m]]);",
        "  }",
        f"  element* const to = out + (long long)image * {s.filters * p.out_plane} + y * {s.out_width} + x;",
        f"  for (int r = 0; r < {t.rows_per_lane}; ++r) {{",
        f"    const int row = k_slots[group * {t.rows_per_lane} + r];",
        f"    if (row >= 0) to[(long long)row * {p.out_plane}] = element(a[r]);",
        "  }",
        "  for (int e = k_empty_start[group]; e < k_empty_start[group + 1]; ++e)",
        f"    to[(long long)k_empty[e] * {p.out_plane}] = element(0.0f);",
        "}",
    ]
    return "\n".join(lines) + "\n"
