"""Plans of `balanced_wide.cu`: balanced W times many columns, panel by panel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.matrices.prune import BalancedMatrix
from nnzbench.plans.architectures import block_shared_bytes, sm_count
from nnzbench.plans.plan import Array, Plan, Unsupported, plans_that_fit
from nnzbench.plans.tiles import TileConfiguration

_PAIR = np.dtype([("offset", "<u4"), ("value", "<f4")])
_PANEL_ROWS = 64
_LARGEST_GRID_Y = 65535


@dataclass(frozen=True)
class Tiling(TileConfiguration):
    """Compile-time shape of `balanced_wide.cu`; what depends on the problem is 0 until it is fitted to one."""

    lanes: int
    vec: int
    warps: int
    row_steps: int
    block_k: int = 0
    """Columns of W in a panel."""
    units: int = 0
    """Pairs of entries that a row has in a panel."""
    stages: int = 0
    fill: int = 0
    """Elements of X that one copy brings."""
    f16: bool = False

    @property
    def block_m(self) -> int:
        """Rows per block."""
        return self.warps * self.row_steps * (32 // self.lanes)

    @property
    def block_n(self) -> int:
        """Columns per block."""
        return self.lanes * self.vec

    @property
    def name(self) -> str:
        return f"wide_m{self.block_m}_n{self.block_n}_w{self.warps}"

    @property
    def stage_bytes(self) -> int:
        """Of a panel of X, the row of zeros behind it included, and of its entries of W."""
        return (self.block_k + 1) * self.block_n * (2 if self.f16 else 4) + self.block_m * self.units * 16

    @property
    def shared_bytes(self) -> int:
        return self.stages * self.stage_bytes


_TILINGS = (
    Tiling(32, 4, 8, 8), Tiling(32, 4, 8, 4), Tiling(16, 4, 8, 4), Tiling(16, 4, 8, 2), Tiling(32, 4, 8, 2),
    Tiling(8, 4, 8, 2), Tiling(16, 4, 4, 2), Tiling(8, 4, 4, 2), Tiling(8, 4, 4, 1), Tiling(8, 2, 4, 1),
)  # fmt: skip
_MOST_PLANS = 6


def tilings(m: int, n: int, arch: str) -> list[Tiling]:
    """Up to six tilings: those that keep every SM busy, the largest first; else the ones with the most blocks."""

    def blocks(tiling: Tiling) -> int:
        return -(-m // tiling.block_m) * -(-n // tiling.block_n)

    fitting = [t for t in _TILINGS if t.block_n < 2 * n and t.block_m < 2 * m] or [_TILINGS[-1]]
    busy = [tiling for tiling in fitting if blocks(tiling) >= 0.75 * sm_count(arch)]
    return (busy or sorted(fitting, key=blocks, reverse=True))[:_MOST_PLANS]


def panel_ranges(matrix: BalancedMatrix) -> int:
    """Balance ranges that make up a panel of about 64 columns of W, at least one."""
    return max(1, min(matrix.ranges, _PANEL_ROWS // matrix.width))


def pack(matrix: BalancedMatrix, block_m: int, block_n: int) -> NDArray[Any]:
    """Units (groups, panels, block_m, units, 2) of {byte offset in the panel, value} pairs."""
    merged = panel_ranges(matrix)
    panels = -(-matrix.ranges // merged)
    groups = -(-matrix.m // block_m)
    per_panel = merged * matrix.keep
    entries = -(-per_panel // 2) * 2
    row_bytes = block_n * matrix.values.itemsize
    pairs = np.zeros((groups * block_m, panels, entries), dtype=_PAIR)
    pairs["offset"] = merged * matrix.width * row_bytes  # the row of zeros
    shape = (matrix.m, panels * merged, matrix.keep)
    offsets = np.full(shape, merged * matrix.width, dtype=np.uint32)
    values = np.zeros(shape, dtype=np.float32)
    starts = np.arange(matrix.ranges, dtype=np.uint32)[:, None] % merged * matrix.width
    offsets[:, : matrix.ranges] = matrix.positions + starts
    offsets[:, matrix.ranges - 1, matrix.last_keep :] = merged * matrix.width
    values[:, : matrix.ranges] = matrix.values
    pairs["offset"][: matrix.m, :, :per_panel] = offsets.reshape(matrix.m, panels, per_panel) * row_bytes
    pairs["value"][: matrix.m, :, :per_panel] = values.reshape(matrix.m, panels, per_panel)
    grouped = pairs.reshape(groups, block_m, panels, entries // 2, 2).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(grouped)


def plans(matrix: BalancedMatrix, x: Array, arch: str) -> Iterator[Plan]:
    """One plan per tiling that fits; `x` is (k, n), of the type of the matrix values.

    Raises `Unsupported` where no panel fits in shared memory.
    """
    choices = tilings(matrix.m, x.shape[1], arch)
    yield from plans_that_fit(choices, lambda tiling: make_plan(matrix, x, tiling, arch), "no tiling")


def make_plan(matrix: BalancedMatrix, x: Array, tiling: Tiling, arch: str) -> Plan:
    """The plan of one tiling. Raises `Unsupported` where it does not fit in shared memory or a grid."""
    n, merged = x.shape[1], panel_ranges(matrix)
    fill = next(size for size in (16 // x.itemsize, 4, 2, 1) if n % size == 0)
    units = -(-merged * matrix.keep // 2)
    tiling = replace(tiling, block_k=merged * matrix.width, units=units, fill=fill, f16=x.dtype == np.float16)
    stages = min(3, (block_shared_bytes(arch) - 1024) // tiling.stage_bytes)
    groups = -(-matrix.m // tiling.block_m)
    if stages < 2 or groups > _LARGEST_GRID_Y:
        raise Unsupported(f"panels of {matrix.width} rows of X do not fit in shared memory")
    if stages == 3 and 3 * tiling.stage_bytes > block_shared_bytes(arch) // 2:
        stages = 2  # rather another block
    packed = pack(matrix, tiling.block_m, tiling.block_n)
    buffers = {
        "units": packed.view(np.float32),
        "x": np.ascontiguousarray(x),
        "y": np.zeros((matrix.m, n), dtype=x.dtype),
    }
    grid, sizes = (-(-n // tiling.block_n), groups, 1), (matrix.m, matrix.k, n, packed.shape[1])
    return replace(tiling, stages=stages).plan("balanced_wide", grid, sizes, buffers)
