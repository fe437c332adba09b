"""Theoretical occupancy: how many blocks of a kernel fit on one SM, from what the compiler says it uses.

The rule for registers is that of the occupancy calculator that ships with CUDA (cuda_occupancy.h).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nnzbench.plans.architectures import Architecture, architecture

WARP = 32
MAX_THREADS_PER_BLOCK = 1024

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
    # A block's warps are spread evenly over the partitions, and all of it must fit at once.
    if per_warp * -(-warps // partitions) * partitions > limits.registers:
        return 0
    return limits.registers // partitions // per_warp * partitions // warps


def _by_shared(limits: Architecture, shared_bytes: int) -> int:
    if shared_bytes > limits.block_shared_bytes:
        return 0
    used = -(-(shared_bytes + limits.reserved_bytes) // limits.shared_unit) * limits.shared_unit
    return limits.shared_bytes // used if used else limits.blocks
