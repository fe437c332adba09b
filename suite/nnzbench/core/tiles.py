"""Tile configurations, from which a kernel's program, launch and name follow, and the occupancy that one leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import numpy as np

from nnzbench.core.architectures import Architecture, architecture
from nnzbench.core.plan import Arg, Array, Dim3, Launch, Plan, Unsupported

WARP = 32
MAX_THREADS_PER_BLOCK = 1024
MOST_GRID_Y = 65535
"""Blocks of a grid in y, and in z."""

Limiter = Literal["blocks", "warps", "registers", "shared memory"]


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps resident on one SM; all zero where a single block does not fit."""

    blocks: int
    warps: int
    fraction: float
    """Resident warps over the most the SM can hold."""
    limiter: Limiter
    """What runs out first; of equals, the first in the order blocks, warps, registers, shared memory."""


def occupancy(arch: str, registers: int, shared_bytes: int, threads: int) -> Occupancy:
    """Theoretical occupancy on `arch` (`sm_90`, `sm_90a`).

    `registers` are per thread, `shared_bytes` static plus dynamic per block, `threads` per block.
    Raises `Unsupported` for an architecture that is not listed and ValueError for a block that no GPU takes.
    """
    limits = architecture(arch)
    if not 1 <= threads <= MAX_THREADS_PER_BLOCK:
        raise ValueError(f"a block has 1 to {MAX_THREADS_PER_BLOCK} threads, not {threads}")
    if not 0 <= registers <= limits.thread_registers or shared_bytes < 0:
        raise ValueError(f"{registers} registers per thread and {shared_bytes} bytes of shared memory make no kernel")
    warps = -(-threads // WARP)
    fits: dict[Limiter, int] = {
        "blocks": limits.blocks,
        "warps": limits.warps // warps,
        "registers": _by_registers(limits, registers, warps),
        "shared memory": _by_shared(limits, shared_bytes),
    }
    limiter = min(fits, key=lambda name: fits[name])
    blocks = fits[limiter]
    return Occupancy(blocks, blocks * warps, blocks * warps / limits.warps, limiter)


def _by_registers(limits: Architecture, registers: int, warps: int) -> int:
    unit, partitions = limits.register_unit, limits.partitions
    per_warp = max(1, -(-registers * WARP // unit)) * unit
    return limits.registers // partitions // per_warp * partitions // warps


def _by_shared(limits: Architecture, shared_bytes: int) -> int:
    if shared_bytes > limits.block_shared_bytes:
        return 0
    used = -(-(shared_bytes + limits.reserved_bytes) // limits.shared_unit) * limits.shared_unit
    return limits.shared_bytes // used if used else limits.blocks


_MATHS = {"float16": "f16", "uint16": "bf16"}
"""Arithmetic class of a kernel by the type of its result; others are `f32` unless they say so."""


@dataclass(frozen=True)
class TileConfiguration:
    """One choice of a kernel's compile-time sizes; each field is the define of its name in capitals."""

    DEFINES: ClassVar[Mapping[str, str]] = {}
    """The defines of fields that have another name; an empty one where the program is not told."""

    NAME: ClassVar[str]
    """Format of `name`, of the configuration's fields and properties: `m{0.block_m}_w{0.warps}`."""

    @property
    def name(self) -> str:
        """What a variant is called by: recorded rows are found by it."""
        return self.NAME.format(self)

    @property
    def block(self) -> Dim3:
        """Threads of a block: the configuration's `threads`, or 32 of each of its `warps`."""
        return getattr(self, "threads", None) or 32 * vars(self)["warps"], 1, 1

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block, where it follows from the configuration alone."""
        return 0

    @property
    def defines(self) -> dict[str, int | str]:
        """What the program is told of the configuration."""
        names = {field.name: self.DEFINES.get(field.name, field.name.upper()) for field in fields(self)}
        return {define: int(getattr(self, name)) for name, define in names.items() if define}

    def plan(
        self,
        entry: str,
        grid: Dim3,
        args: tuple[Arg, ...],
        buffers: Mapping[str, Array],
        output: str = "",
        *,
        defines: Mapping[str, int | str] | None = None,
        label: str = "",
        marks: tuple[str, ...] = (),
        shared_bytes: int | None = None,
        then: tuple[Launch, ...] = (),
        math: str = "",
        generate_ms: float = 0.0,
        features: str = "",
        unpermute: Callable[[Array], Array] | None = None,
    ) -> Plan:
        """The plan that launches `entry` of `kernels_cu/<entry>.cu`, and `then` what comes after it.

        `args` are followed by all `buffers` where they name none; the last buffer is the output unless it is named.
        `defines` and `shared_bytes` are what the problem adds to the configuration's own. `label` goes before its name
        in the variant and `marks` behind, those that are not empty. Raises `Unsupported` for a grid that no GPU takes.
        """
        if max(grid[1:]) > MOST_GRID_Y:
            raise Unsupported(f"{entry} would need a grid of {grid} blocks, at most {MOST_GRID_Y} in y and z")
        if not any(isinstance(arg, str) for arg in args):
            args = (*args, *buffers)
        output = output or next(reversed(list(buffers)))
        shared = self.shared_bytes if shared_bytes is None else shared_bytes
        return Plan(
            variant="_".join(filter(None, (label, self.name, *marks))),
            language="cuda",
            source=f"{entry}.cu",
            defines={**self.defines, **(defines or {})},
            buffers=buffers,
            output=output,
            launches=(Launch(entry, grid, self.block, args, shared), *then),
            math=math or _MATHS.get(np.dtype(buffers[output].dtype).name, "f32"),
            generate_ms=generate_ms,
            features=features,
            unpermute=unpermute,
        )

    def __str__(self) -> str:
        return self.name
