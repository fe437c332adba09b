"""Where a block of the generated convolution has its outputs, and how its part of the input lies in shared memory.

A block computes whole rows of a few images where it can, one output position per lane. The input it needs is staged a
few channels at a time: rows of `pitch` elements with room for the padding, which stays zero, so that a filter tap is
one constant offset for every lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

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
        """Output positions of a tile."""
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
        """Registers a thread may use."""
        return min(255, 65536 // (self.blocks * self.allotted_threads) // 8 * 8)

    @property
    def name(self) -> str:
        """Variant name, such as `staged_r43_1x28x28_c6_b1`."""
        place = f"{self.images}x{self.height}x{self.width}"
        stages = "" if self.stages == 3 else f"_s{self.stages}"
        order = "_grouped" if self.grouped else ""
        launches = "" if self.launches == 1 else f"_l{self.launches}"
        return f"staged_r{self.rows_per_lane}_{place}_c{self.chunk}_b{self.blocks}{stages}{order}{launches}"

    @property
    def ahead(self) -> int:
        """Chunks on their way while one is worked on."""
        return self.stages - 1


@dataclass(frozen=True)
class ConvTile:
    """The staged input of one tiling. Columns, pitches and offsets count elements."""

    shape: ConvShape
    tiling: ConvTiling
    element: Literal[2, 4]

    @property
    def across(self) -> int:
        """Tiles side by side in an output row."""
        return -(-self.shape.out_width // self.tiling.width)

    @property
    def down(self) -> int:
        """Tiles one below the other in an output plane."""
        return -(-self.shape.out_height // self.tiling.height)

    @property
    def deep(self) -> int:
        """Groups of images."""
        return -(-self.shape.batch // self.tiling.images)

    @property
    def tiles(self) -> int:
        """Tiles of the whole output."""
        return self.across * self.down * self.deep

    @property
    def rows(self) -> int:
        """Input rows under a tile, those of the padding included."""
        return (self.tiling.height - 1) * self.shape.stride + self.shape.r

    @cached_property
    def piece(self) -> int:
        """Elements of one copy: the widest up to 16 bytes that keeps rows of the image aligned."""
        piece = 16 // self.element
        while self.shape.width % piece or (self.across > 1 and self.tiling.width * self.shape.stride % piece):
            piece //= 2
        return piece

    @property
    def left(self) -> int:
        """Staged columns before the tile's first input column that is no padding."""
        return -(-self.shape.pad_w // self.piece) * self.piece

    @property
    def skew(self) -> int:
        """Staged column of the first lane's first tap."""
        return self.left - self.shape.pad_w

    @property
    def columns(self) -> int:
        """Staged columns a row needs."""
        needed = (self.tiling.width - 1) * self.shape.stride + self.shape.s + self.skew
        return -(-needed // self.piece) * self.piece

    @cached_property
    def pitch(self) -> int:
        """Columns from row to row: equal to the tile's width modulo the banks, so that a warp that runs over the end
        of a row still reads 32 different banks; as few as possible where that would cost the alignment."""
        if not self._spread:
            return self.columns
        return self.columns + (self.tiling.width - self.columns) % _BANKS

    @property
    def _spread(self) -> bool:
        t = self.tiling
        rows, width = t.height * t.images, t.width
        return self.shape.stride == 1 and self.element == 4 and rows > 1 and width % self.piece == 0

    @cached_property
    def image_pitch(self) -> int:
        """Elements from image to image of a channel, chosen like `pitch`."""
        size = self.rows * self.pitch
        outputs = self.tiling.height * self.tiling.width
        return size + (outputs - size) % _BANKS if self._spread and self.tiling.images > 1 else size

    @cached_property
    def channel_pitch(self) -> int:
        """Elements from channel to channel."""
        return self.tiling.images * self.image_pitch

    @cached_property
    def stage_bytes(self) -> int:
        """Of one chunk, a multiple of 16."""
        return -(-self.tiling.chunk * self.channel_pitch * self.element // 16) * 16

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return self.tiling.stages * self.stage_bytes

    @property
    def first_column(self) -> int:
        """Staged column where copying starts: the padding of a whole row is never copied."""
        return self.left if self.across == 1 else 0

    @cached_property
    def pieces_per_row(self) -> int:
        """Copies per staged row."""
        end = min(self.columns, self.left + self.shape.width) if self.across == 1 else self.columns
        return max(1, (end - self.first_column) // self.piece)

    @property
    def pieces(self) -> int:
        """Copies per channel."""
        return self.tiling.images * self.rows * self.pieces_per_row

    @cached_property
    def channels_at_once(self) -> int:
        """Channels whose copies the block's threads share out, one copy each; a divisor of the chunk."""
        most = max(1, self.tiling.threads // self.pieces)
        return max(k for k in range(1, self.tiling.chunk + 1) if self.tiling.chunk % k == 0 and k <= most)

    @property
    def pieces_per_thread(self) -> int:
        """Copies of one channel that a thread makes; more than one only where the threads do not suffice."""
        return -(-self.pieces // self.tiling.threads)

    @property
    def chunks(self) -> int:
        """Chunks of input channels."""
        return -(-self.shape.channels // self.tiling.chunk)

    @property
    def plane(self) -> int:
        """Elements of one channel of the image."""
        return self.shape.height * self.shape.width

    @property
    def wavefronts(self) -> int:
        """Passes a warp's load from shared memory takes."""
        t = self.tiling
        if self.element == 4 and not self._spread and t.height * t.images > 1:
            return 2
        return self.shape.stride if self.element == 4 else max(1, self.shape.stride // 2)

    def offset(self, column: Columns) -> tuple[Columns, Columns]:
        """Chunk and byte offset within its stage of column (channel, r, s), or of many, of the weights."""
        channel, tap = divmod(column, self.shape.r * self.shape.s)
        r, s = divmod(tap, self.shape.s)
        chunk, within = divmod(channel, self.tiling.chunk)
        return chunk, (within * self.channel_pitch + r * self.pitch + s) * self.element
