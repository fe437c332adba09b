"""A generated convolution: where a block has its outputs and its part of the input, and what both emitters walk.

A block computes whole rows of a few images where it can, one output position per lane. The input it needs is staged a
few channels at a time: rows of `pitch` elements with room for the padding, which stays zero, so that a filter tap is
one constant offset for every lane.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnzbench.kernels.codegen.schedule import Body, Schedule, Tiling, assign_rows, make_schedule, refuse
from nnzbench.kernels.rows import vector_width
from nnzbench.matrices.formats import CSR
from nnzbench.plans.architectures import block_shared_bytes
from nnzbench.plans.plan import Launch, Unsupported
from nnzbench.problems.problem import ConvShape

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
class Run:
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
            [Run(body, a, b) for a, b in itertools.pairwise(np.searchsorted(body.columns, edges).tolist())]
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
