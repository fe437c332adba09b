"""A schedule bound to its operands: everything the emitters need to know, and the launch they share."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nnzbench.kernels.codegen.addressing import Addressing
from nnzbench.kernels.codegen.schedule import Schedule
from nnzbench.plans.architectures import block_shared_bytes
from nnzbench.plans.plan import Launch, Unsupported

ENTRY = "sparsert"


class Program:
    """One kernel: the schedule, the dense operand's addressing, and how values and results are held.

    `element` is the bytes of an element of B and C: fp16 (accumulated in fp32) or fp32. `values` in a `buffer` keeps
    only the pattern in the code: new values need no new program.
    """

    def __init__(
        self,
        schedule: Schedule,
        addressing: Addressing,
        element: Literal[2, 4] = 4,
        values: Literal["code", "buffer"] = "code",
    ) -> None:
        t = schedule.tiling
        self.schedule, self.addressing, self.element, self.values = schedule, addressing, element, values
        self.columns = addressing.columns
        """Output columns of a row."""
        self.stage_width = t.tile_columns * t.column_tiles
        """Columns of B in the staged tile, and of C that a block computes at once."""
        self.column_groups = -(-self.columns // self.stage_width)
        """Groups of columns that one block computes at once."""
        wide = (rows for rows in (4, 2) if t.rows % rows == 0 and rows * t.columns_per_thread <= 4)
        self.rows_per_unit = next((rows for rows in wide if t.rows // rows >= t.parts), 1)
        """Rows whose partial sums one warp adds up together, as wide a vector as keeps all warps busy."""
        self.units = t.rows // self.rows_per_unit
        """Units of a row tile."""
        self.vector = self.rows_per_unit * t.columns_per_thread
        """Floats of a unit that one thread holds: 1, 2 or 4."""
        self.chunk = 16 // element if addressing.run % (16 // element) == 0 else 1
        """Elements one thread copies at a time while staging: 16 bytes where runs of B are aligned to that."""
        self.reduces = t.parts > 1
        """Whether partial sums meet in shared memory."""
        self.stage_bytes = schedule.k * self.stage_width * element if t.staged else 0
        """Of the staged tile of B, which lies first."""
        self.shared_bytes = self.stage_bytes + (t.warps * t.rows * t.tile_columns * 4 if self.reduces else 0)
        """Dynamic shared memory of a block."""
        needed = {"zeros": addressing.needs_zeros, "rows": self.reduces, "values": values == "buffer"}
        self.parameters = ["b", "c", *(name for name, wanted in needed.items() if wanted)]
        """Pointer parameters in order."""

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
