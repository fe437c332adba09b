"""Theoretical occupancy: how many blocks of a kernel fit on one SM, from what the compiler says it uses.

Limits are those of the CUDA Programming Guide ("Technical Specifications per Compute Capability"); allocation units
and the rule for registers are those of the occupancy calculator that ships with CUDA (cuda_occupancy.h).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nnzbench.arches import block_shared_bytes
from nnzbench.kernel import Unsupported

WARP = 32
MAX_THREADS_PER_BLOCK = 1024
REGISTERS_PER_SM = 64 * 1024
REGISTERS_PER_THREAD = 255
_REGISTER_UNIT = 256  # registers are handed out to warps in these steps
_PARTITIONS = 4  # an SM's registers and warps are split evenly over its schedulers

Limiter = Literal["blocks", "warps", "registers", "shared memory"]


@dataclass(frozen=True)
class SmLimits:
    """What one SM holds."""

    blocks: int
    warps: int
    shared_bytes: int
    """Per SM, all blocks together."""
    shared_unit: int
    reserved_bytes: int
    """Shared memory that the system takes in every block."""


_KIB = 1024
SM_LIMITS = {
    "sm_70": SmLimits(32, 64, 96 * _KIB, 256, 0),
    "sm_75": SmLimits(16, 32, 64 * _KIB, 256, 0),
    "sm_80": SmLimits(32, 64, 164 * _KIB, 128, _KIB),
    "sm_86": SmLimits(16, 48, 100 * _KIB, 128, _KIB),
    "sm_89": SmLimits(24, 48, 100 * _KIB, 128, _KIB),
    "sm_90": SmLimits(32, 64, 228 * _KIB, 128, _KIB),
}


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
    Raises `Unsupported` for an architecture without a table and ValueError for a block that no GPU takes.
    """
    limits = SM_LIMITS.get(arch.rstrip("af"))
    if limits is None:
        raise Unsupported(f"there is no occupancy table for {arch}: one of {', '.join(SM_LIMITS)}")
    if not 1 <= threads <= MAX_THREADS_PER_BLOCK:
        raise ValueError(f"a block has 1 to {MAX_THREADS_PER_BLOCK} threads, not {threads}")
    if not 0 <= registers <= REGISTERS_PER_THREAD or shared_bytes < 0:
        raise ValueError(f"{registers} registers per thread and {shared_bytes} bytes of shared memory make no kernel")
    warps = -(-threads // WARP)
    fits: dict[Limiter, int] = {
        "blocks": limits.blocks,
        "warps": limits.warps // warps,
        "registers": _by_registers(registers, warps),
        "shared memory": _by_shared(arch, limits, shared_bytes),
    }
    limiter = min(fits, key=lambda name: fits[name])
    blocks = fits[limiter]
    return Occupancy(blocks, blocks * warps, blocks * warps / limits.warps, limiter)


def _by_registers(registers: int, warps: int) -> int:
    per_warp = max(1, -(-registers * WARP // _REGISTER_UNIT)) * _REGISTER_UNIT
    # A block's warps are spread evenly over the partitions, and all of it must fit at once.
    if per_warp * -(-warps // _PARTITIONS) * _PARTITIONS > REGISTERS_PER_SM:
        return 0
    return REGISTERS_PER_SM // _PARTITIONS // per_warp * _PARTITIONS // warps


def _by_shared(arch: str, limits: SmLimits, shared_bytes: int) -> int:
    if shared_bytes > block_shared_bytes(arch):
        return 0
    used = -(-(shared_bytes + limits.reserved_bytes) // limits.shared_unit) * limits.shared_unit
    return limits.shared_bytes // used if used else limits.blocks
