"""Plans of `balanced_rows.cu`: balanced W times 1 to 16 columns, at the speed W streams from memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from nnzbench.kernels.rows import power_of_two_at_least
from nnzbench.matrices.prune import BalancedMatrix
from nnzbench.plans.architectures import architecture, block_shared_bytes, sm_count
from nnzbench.plans.plan import Array, Plan, Unsupported
from nnzbench.plans.tiles import TileConfiguration

Staging = Literal["registers", "async", "bulk"]
_STAGINGS: tuple[Staging, ...] = ("registers", "async", "bulk")
MOST_COLUMNS = 16
_RESERVED_BYTES = 3 * 1024
"""Of a block's shared memory: the driver's own share and the barriers of the queues."""
_BLOCK = 1 << 19
"""Entries that are packed at a time, so that temporaries stay in the processor's cache."""
_WORDS = {4: np.uint32, 8: np.uint64, 16: np.complex128}


@dataclass(frozen=True)
class Tiling(TileConfiguration):
    """How blocks and warps share the work; `balanced_rows.cu` explains the terms.

    What depends on the problem is 0 until `fitted`, which also lessens what is more than fits.
    """

    DEFINES: ClassVar = {"staging": "", "narrow": "", "x_bytes": "", "entry_bytes": ""}
    staging: Staging
    warps: int
    blocks: int
    """Blocks per SM."""
    chunk: int
    """Packs per copy, at most."""
    runs: int = 1
    """Strands per item, at most."""
    narrow: int = 1
    """Divides the ranges of a pass: more passes over X, more shared memory for the queues."""
    split: bool = False
    """Whether the passes of a row are done by different blocks, each of which stages its part of X once."""
    rows: int = 0
    """Rows that share a strand."""
    group: int = 0
    """Ranges of a pass."""
    stages: int = 1
    x_bytes: int = 0
    """Of a pass's part of X."""
    entry_bytes: int = 0
    """Of a value and its position."""

    @property
    def queued(self) -> bool:
        """Whether packs pass through a queue in shared memory."""
        return self.staging != "registers"

    @property
    def stage_bytes(self) -> int:
        """Of a stage of the queues of all warps."""
        return self.warps * self.chunk * 128 * self.entry_bytes if self.queued else 0

    @property
    def shared_bytes(self) -> int:
        return self.x_bytes + self.stages * self.stage_bytes

    @property
    def name(self) -> str:
        queue = f"{self.staging}{self.stages}" if self.stages > 1 else self.staging
        shape = f"w{self.warps}x{self.blocks}_c{self.chunk}_r{self.rows * self.runs}_g{self.group}"
        return f"{queue}_{shape}" + "_split" * self.split

    @property
    def defines(self) -> dict[str, int | str]:
        return {**super().defines, "STAGING": _STAGINGS.index(self.staging)}

    def fitted(self, matrix: BalancedMatrix, strands: Strands, n: int, arch: str) -> Tiling | None:
        """The configuration for `n` columns of X; None where it does not fit the matrix or the architecture."""
        columns, tiling = power_of_two_at_least(n), self  # columns as the kernel holds them
        parts = strands.passes if self.split else 1
        if self.split and parts == 1:
            return None
        blocks = max(1, sm_count(arch) * self.blocks // parts)  # of a part
        runs = _runs(strands, self, columns, blocks)
        if self.warps * self.blocks > 16 and columns * strands.rows * runs >= 8:
            return None  # too few registers for the sums
        if not self.queued and matrix.positions.itemsize == 2:
            tiling = replace(tiling, chunk=tiling.chunk // 2)
        if not self.queued and columns > 4:
            tiling = replace(tiling, chunk=min(tiling.chunk, 4), blocks=self.blocks if self.warps < 16 else 1)
        tiling = replace(
            tiling,
            runs=runs,
            chunk=_chunk(strands.packs * runs, tiling.chunk),
            rows=strands.rows,
            group=strands.group,
            x_bytes=_x_bytes(matrix, n, strands.group),
            entry_bytes=matrix.values.itemsize + matrix.positions.itemsize,
        )
        free = block_shared_bytes(arch) // tiling.blocks - _RESERVED_BYTES - tiling.x_bytes
        if self.queued:
            tiling = replace(tiling, stages=min(8, free // tiling.stage_bytes))
        return None if free < 0 or (self.queued and tiling.stages < 2) else tiling


@dataclass
class Strands:
    """A balanced matrix in the order that warps read it: (passes, strands, packs, 32 lanes, 4) entries."""

    values: Array
    positions: Array
    group: int
    rows: int
    keep: int
    """Entries per range and row; those that fill it up to a whole pack have value 0 and a position already used."""

    def __post_init__(self) -> None:
        self.passes, self.stored, self.packs = (int(size) for size in self.values.shape[:3])
        """Groups of ranges; strands of a pass, empty ones that fill up the last item included; packs of a strand."""


def strand_rows(keep: int) -> tuple[int, int]:
    """(rows that share a strand, entries kept per row): a pack of four may span rows, or else a row is filled up.

    Filling up is chosen where it adds little, or where a strand of several rows would be long.
    """
    filled = -(-keep // 4) * 4
    rows = 4 // math.gcd(4, keep)
    if filled - keep <= 0.07 * keep or rows * keep > 96:
        return 1, filled
    return rows, keep


def pack(matrix: BalancedMatrix, group: int) -> Strands:
    """Orders entries for passes of `group` ranges, a power of two up to 32."""
    rows, keep = strand_rows(matrix.keep)
    sub = 32 // group
    passes = -(-matrix.ranges // group)
    strands = -(-matrix.m // (sub * rows))
    stored = -(-strands // 4) * 4  # an item has 1, 2 or 4
    height, packs = sub * rows, rows * keep // 4
    missing = [(0, passes * group - matrix.ranges), (0, keep - matrix.keep)]
    step = max(1, _BLOCK // (height * matrix.ranges * matrix.keep))

    def ordered(entries: NDArray[Any], fill: Literal["constant", "edge"]) -> NDArray[Any]:
        words: NDArray[Any] = np.empty((passes, stored, packs, 32), _WORDS[4 * entries.itemsize])
        for low in range(0, stored, step):
            count = min(step, stored - low)
            block = entries[low * height : (low + count) * height]
            short = (0, count * height - len(block))
            if short[1] or any(after for _, after in missing):
                block = np.pad(block, [(0, 0), (0, 0), missing[1]], fill)
                block = np.pad(block, [short, missing[0], (0, 0)])
            lanes = block.reshape(count, sub, rows, passes, group, keep).transpose(3, 0, 1, 4, 2, 5)
            flat: NDArray[Any] = np.ascontiguousarray(lanes).reshape(-1).view(words.dtype)
            words[:, low : low + count] = flat.reshape(passes, count, 32, packs).transpose(0, 1, 3, 2)
        return words.view(entries.dtype).reshape(passes, stored, packs, 32, 4)

    return Strands(ordered(matrix.values, "constant"), ordered(matrix.positions, "edge"), group, rows, keep)


def group_of(matrix: BalancedMatrix, n: int, arch: str) -> int:
    """The most ranges of a pass whose part of X leaves a quarter of a block's shared memory to the queues.

    Raises `Unsupported` where not even one range fits.
    """
    limit, most = block_shared_bytes(arch) * 3 // 4, power_of_two_at_least(matrix.ranges)
    for group in (32, 16, 8, 4, 2, 1):
        if group <= most and _x_bytes(matrix, n, group) <= limit:
            return group
    raise Unsupported(f"a range of {matrix.width} columns of X does not fit in shared memory")


def _x_bytes(matrix: BalancedMatrix, n: int, group: int) -> int:
    columns = power_of_two_at_least(n)
    element = matrix.values.itemsize if columns > 1 else 4
    return -(-matrix.width * group * columns * element // 128) * 128


def _chunk(packs: int, most: int) -> int:
    """Packs per copy: an item's copies are as few as `most` allows, and as equal as can be."""
    return -(-packs // -(-packs // most))


_SM90 = (
    Tiling("bulk", 16, 1, 8), Tiling("bulk", 16, 1, 8, runs=4), Tiling("bulk", 16, 1, 4), Tiling("bulk", 32, 1, 4),
    Tiling("bulk", 8, 2, 8), Tiling("bulk", 16, 1, 4, runs=4, split=True),
    Tiling("bulk", 16, 1, 4, runs=4, narrow=2, split=True),
)  # fmt: skip
_SM80 = (
    Tiling("async", 16, 1, 4), Tiling("async", 16, 1, 4, runs=4, split=True),
)  # fmt: skip
_PORTABLE = (
    Tiling("registers", 16, 1, 8), Tiling("registers", 16, 1, 8, runs=4), Tiling("registers", 16, 2, 4),
    Tiling("registers", 32, 1, 4, runs=4), Tiling("registers", 8, 3, 4), Tiling("registers", 16, 1, 4, narrow=2),
    Tiling("registers", 16, 1, 4, runs=4, split=True), Tiling("registers", 16, 1, 4, runs=4, narrow=2, split=True),
    Tiling("registers", 8, 2, 4, runs=4, narrow=4, split=True),
)  # fmt: skip


def tilings(arch: str) -> tuple[Tiling, ...]:
    """Tilings worth trying, the likeliest first: queues filled by what the architecture has, then plain loads."""
    target = architecture(arch)
    return (_SM90 if target.has("bulk_copy") else ()) + (_SM80 if target.has("cp_async") else ()) + _PORTABLE


def plans(matrix: BalancedMatrix, x: Array, arch: str) -> Iterator[Plan]:
    """One plan per tiling that fits; `x` is (k, n) with n up to 16, of the type of the matrix values."""
    group = group_of(matrix, x.shape[1], arch)
    packed: dict[int, Strands] = {}
    seen: set[str] = set()  # what fits a matrix may make two tilings the same
    for tiling in sorted(tilings(arch), key=lambda tiling: tiling.narrow):
        if (tiling.narrow > 1 or tiling.split) and (matrix.ranges <= group or x.shape[1] == 1):
            continue  # X is small, and lanes that share a bank would meet
        wanted = max(1, group // tiling.narrow)
        if wanted not in packed:
            packed = {wanted: pack(matrix, wanted)}  # one order of a large matrix at a time
        plan = make_plan(matrix, packed[wanted], x, tiling, arch)
        if plan is not None and plan.variant not in seen:
            seen.add(plan.variant)
            yield plan


def _runs(strands: Strands, tiling: Tiling, columns: int, blocks: int) -> int:
    """Strands per item, up to those asked for: short ones are merged where the warps then still have two items each."""
    runs = tiling.runs
    while runs > 1 and (
        strands.packs * runs > 2 * tiling.chunk
        or columns * strands.rows * runs > 32
        or strands.stored < 2 * runs * blocks
    ):
        runs //= 2
    return runs


def make_plan(matrix: BalancedMatrix, strands: Strands, x: Array, tiling: Tiling, arch: str) -> Plan | None:
    """The plan of one tiling, or None where it does not fit the matrix or the architecture."""
    n, columns = x.shape[1], power_of_two_at_least(x.shape[1])
    fitted = tiling.fitted(matrix, strands, n, arch)
    if fitted is None:
        return None
    parts = strands.passes if tiling.split else 1
    items = -(-matrix.m // (32 // strands.group * strands.rows * fitted.runs))
    blocks = min(items, max(1, sm_count(arch) * tiling.blocks // parts))
    wide = matrix.k % 4 == 0 and matrix.width % 4 == 0 if columns == 1 else n == columns
    along = 4 if columns == 1 and wide else 1
    held = -(-matrix.width * strands.group // along // (32 * tiling.warps)) <= 8  # words of X that a thread can hold
    buffers = {
        "values": strands.values,
        "positions": strands.positions,
        "x": np.ascontiguousarray(x),
        "partial": np.zeros((parts, matrix.m, columns) if strands.passes > 1 else (1, 1, 1), dtype=np.float32),
        "arrived": np.zeros(blocks * tiling.warps if tiling.split else 1, dtype=np.int32),
        "y": np.zeros((matrix.m, n), dtype=x.dtype),
    }
    return fitted.plan(
        "balanced_rows",
        (blocks * parts, 1, 1),
        (matrix.m, matrix.k, n, matrix.ranges, *divmod(items, blocks), strands.stored),
        buffers,
        defines={
            "KEEP": strands.keep,
            "PASSES": strands.passes,
            "WIDTH": matrix.width,
            "X_FIRST": int(tiling.staging != "bulk" and (held or along == 1)),
            "COLUMNS": columns,
            "EXACT": int(wide),
            "F16": int(matrix.values.dtype == np.float16),
            "POSITION16": int(matrix.positions.itemsize == 2),
        },
    )
