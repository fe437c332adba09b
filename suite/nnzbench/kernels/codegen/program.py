"""A schedule bound to its operands: everything the emitters need to know, and the launch they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nnzbench.kernels.codegen.addressing import Addressing
from nnzbench.kernels.codegen.schedule import Schedule
from nnzbench.plans.architectures import block_shared_bytes
from nnzbench.plans.plan import Launch, Unsupported

ENTRY = "sparsert"


@dataclass(frozen=True)
class Program:
    """One kernel: the schedule, the dense operand's addressing, and how values and results are held."""

    schedule: Schedule
    addressing: Addressing
    element: Literal[2, 4] = 4
    """Bytes of an element of B and C: fp16 (accumulated in fp32) or fp32."""
    values: Literal["code", "buffer"] = "code"
    """`buffer` keeps only the pattern in the code: new values need no new program."""

    @property
    def columns(self) -> int:
        """Output columns of a row."""
        return self.addressing.columns

    @property
    def column_groups(self) -> int:
        """Groups of columns that one block computes at once."""
        t = self.schedule.tiling
        return -(-self.columns // (t.tile_columns * t.column_tiles))

    @property
    def rows_per_unit(self) -> int:
        """Rows whose partial sums one warp adds up together, as wide a vector as keeps all warps busy."""
        t = self.schedule.tiling
        for rows in (4, 2):
            if t.rows % rows == 0 and rows * t.columns_per_thread <= 4 and t.rows // rows >= t.parts:
                return rows
        return 1

    @property
    def units(self) -> int:
        """Units of a row tile."""
        return self.schedule.tiling.rows // self.rows_per_unit

    @property
    def vector(self) -> int:
        """Floats of a unit that one thread holds: 1, 2 or 4."""
        return self.rows_per_unit * self.schedule.tiling.columns_per_thread

    @property
    def stage_width(self) -> int:
        """Columns of B in the staged tile."""
        t = self.schedule.tiling
        return t.tile_columns * t.column_tiles

    @property
    def chunk(self) -> int:
        """Elements one thread copies at a time while staging: 16 bytes where runs of B are aligned to that."""
        wide = 16 // self.element
        return wide if self.addressing.run % wide == 0 else 1

    @property
    def reduces(self) -> bool:
        """Whether partial sums meet in shared memory."""
        return self.schedule.tiling.parts > 1

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        t = self.schedule.tiling
        sums = t.warps * t.rows * t.tile_columns * 4 if self.reduces else 0
        return sums + self.stage_bytes

    @property
    def stage_bytes(self) -> int:
        """Of the staged tile of B, which lies first."""
        return self.schedule.k * self.stage_width * self.element if self.schedule.tiling.staged else 0

    def buffers(self, dense: NDArray[Any], shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Everything to upload, with the output zeroed in its `shape`; `dense` is B or the image."""
        dtype = np.dtype(np.float16 if self.element == 2 else np.float32)
        found: dict[str, NDArray[Any]] = {
            "b": np.ascontiguousarray(dense, dtype=dtype),
            "c": np.zeros(shape, dtype=dtype),
            "zeros": np.zeros(self.addressing.needs_zeros, dtype=dtype),
            "rows": self.schedule.slots.reshape(-1),
            "values": self.schedule.stream,
        }
        return {name: found[name] for name in self.parameters}

    @property
    def parameters(self) -> list[str]:
        """Pointer parameters in order."""
        needed = {"zeros": self.addressing.needs_zeros, "rows": self.reduces, "values": self.values == "buffer"}
        return ["b", "c", *(name for name, wanted in needed.items() if wanted)]

    def launch(self) -> Launch:
        """Grid and block of the one launch."""
        t = self.schedule.tiling
        across = -(-self.column_groups // t.loop)
        down = self.schedule.tiles // t.row_tiles
        return Launch(ENTRY, (across, down, 1), (t.threads, 1, 1), tuple(self.parameters), self.shared_bytes)

    def check(self, arch: str) -> None:
        """Raises `Unsupported` with the reason where hardware or encoding has no room for this tiling."""
        t = self.schedule.tiling
        v = t.columns_per_thread
        if self.columns == 0 or self.schedule.m == 0:
            raise Unsupported("the output is empty")
        if t.threads > 1024:
            raise Unsupported(f"{t.name}: {t.threads} threads a block, at most 1024")
        if (t.rows * v + t.depth * v + 24) * t.threads > 65536:
            raise Unsupported(f"{t.name}: the accumulators of {t.threads} threads do not fit the register file")
        run = self.addressing.run
        if v > 1 and (not run or run % v):
            raise Unsupported(f"{t.name}: {v} columns per thread need a multiple of {v} columns side by side in memory")
        if self.element == 2 and v > 2:
            raise Unsupported(f"{t.name}: fp16 has at most two columns per thread")
        limit = block_shared_bytes(arch)
        if self.shared_bytes > limit:
            raise Unsupported(f"{t.name}: {self.shared_bytes} bytes of shared memory, at most {limit}")
        if t.staged and (t.loop > 1 or not run or t.threads % (self.stage_width // self.chunk)):
            raise Unsupported(f"{t.name}: staging needs columns side by side, no loop, and whole rows per copy step")
        grid = self.launch().grid
        if grid[1] > 65535:
            raise Unsupported(f"{t.name}: a grid of {grid[1]} blocks in y, at most 65535")
        rows = self.addressing.row_stride * self.schedule.m
        reach = max((self.addressing.locate(k)[1] for k in (0, max(0, self.schedule.k - 1))), default=0)
        if max(rows, reach, self.columns) * self.element >= 2**31:
            raise Unsupported("offsets beyond 2 GB do not fit an instruction")
