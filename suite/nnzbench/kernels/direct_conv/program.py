"""A generated convolution bound to its weights: what both emitters walk, and the launch they share."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nnzbench.kernels.codegen.schedule import Body, Schedule, Tiling, assign_rows, make_schedule
from nnzbench.kernels.direct_conv.tile import ConvTile, ConvTiling
from nnzbench.matrices.formats import CSR
from nnzbench.plans.architectures import block_shared_bytes
from nnzbench.plans.plan import Launch, Unsupported
from nnzbench.problems.problem import ConvShape

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
        """Elements of one channel of the output."""

    def buffers(self, x: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Everything to upload; `x` is NCHW, and so is the output `y`."""
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
        if t.ahead < 1:
            raise Unsupported(f"{t.name}: {t.stages} stages, at least 2")
        if t.threads > 1024:
            raise Unsupported(f"{t.name}: {t.threads} threads a block, at most 1024")
        if t.rows_per_lane + reserved_registers(tile) > t.registers:
            raise Unsupported(f"{t.name}: {t.rows_per_lane} sums do not fit {t.registers} registers")
        limit = block_shared_bytes(arch)
        if tile.shared_bytes > limit:
            raise Unsupported(f"{t.name}: {tile.shared_bytes} bytes of shared memory, at most {limit}")
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
