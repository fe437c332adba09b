"""A schedule bound to its operands: all that the emitters need to know, where B's elements lie, the launch they share.

A column of A is a (pointer, byte offset) pair: each lane computes a few pointers once from its output column, and
every load is one of them plus a constant. For a convolution there is one pointer per filter tap; a lane whose tap
falls on the padding points into a buffer of zeros instead, so no load is masked. Division is by multiplication: ptxas
does not strength-reduce it, and its general division costs a hundred cycles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.architectures import block_shared_bytes
from nnzbench.core.plan import Launch, Unsupported
from nnzbench.core.tiles import MOST_GRID_Y
from nnzbench.data.problems.problem import ConvShape
from nnzbench.kernels.sparsert.schedule import Schedule, refuse


def divide(quotient: str, dividend: str, divisor: int) -> list[str]:
    """PTX for `quotient = dividend / divisor` of u32 registers, exact for dividends below 2**31. Uses `%wide`.

    Multiplies by ceil(2**(31 + l) / divisor), l = ceil(log2 divisor), which fits 32 bits, and shifts (Granlund and
    Montgomery, 1994).
    """
    if divisor & (divisor - 1) == 0:
        return [f"shr.u32 {quotient}, {dividend}, {divisor.bit_length() - 1};"]
    shift = 31 + (divisor - 1).bit_length()
    factor = -(-(1 << shift) // divisor)
    return [
        f"mul.wide.u32 %wide, {dividend}, {factor};",
        f"shr.u64 %wide, %wide, {shift};",
        f"cvt.u32.u64 {quotient}, %wide;",
    ]


def divmod_ptx(quotient: str, remainder: str, dividend: str, divisor: int) -> list[str]:
    """PTX for quotient and remainder; the three registers must differ."""
    lines = divide(quotient, dividend, divisor)
    if divisor & (divisor - 1) == 0:
        return [*lines, f"and.b32 {remainder}, {dividend}, {divisor - 1};"]
    return [*lines, f"mul.lo.u32 {remainder}, {quotient}, {divisor};", f"sub.u32 {remainder}, {dividend}, {remainder};"]


@dataclass(frozen=True)
class MatrixColumns:
    """B is row-major (k, columns)."""

    columns: int
    """Output columns of one row."""
    pointers: int = 1
    """That a lane keeps."""
    needs_zeros: int = 0
    """Elements of zeros the pointers may reach, 0 for none."""

    @property
    def run(self) -> int:
        """B is (columns / run, k, run) in memory: so many columns of a row lie side by side; 0 where it is not."""
        return self.columns

    @property
    def row_stride(self) -> int:
        """Elements between two rows of the output."""
        return self.columns

    def locate(self, k: int) -> tuple[int, int]:
        """Pointer number and element offset of column `k` of A."""
        return 0, k * self.columns

    def ptx(self, element: int) -> list[str]:
        """PTX that sets `%pb<i>` and the output's element offset `%outcol` (u32) from the valid column `%col`."""
        return [f"mad.wide.u32 %pb0, %col, {element}, %in;", "mov.u32 %outcol, %col;"]

    def cpp(self) -> list[str]:
        """C++ that sets `const element* p[]` and `int outcol` from `int col`."""
        return ["const element* p[1] = {b + col};", "const int outcol = col;"]


@dataclass(frozen=True)
class Im2col:
    """B is the virtual im2col of an NCHW image: row k of it is (channel, tap) with k = channel * taps + tap."""

    shape: ConvShape

    @property
    def columns(self) -> int:
        return self.shape.batch * self.row_stride

    @property
    def row_stride(self) -> int:
        return self.shape.out_height * self.shape.out_width

    @property
    def padding_reach(self) -> int:
        """Elements from a tap's pixel in the first channel to that in the last, inclusive."""
        s = self.shape
        return (s.channels - 1) * s.height * s.width + 1


@dataclass(frozen=True)
class ImagePixels(Im2col):
    """The im2col matrix as columns of A address it: a pointer per tap. Says what `MatrixColumns` does."""

    @property
    def pointers(self) -> int:
        return self.shape.r * self.shape.s

    @property
    def needs_zeros(self) -> int:
        return self.padding_reach if self.shape.pad_h or self.shape.pad_w else 0

    @property
    def run(self) -> int:
        return self.row_stride if self.pointers == self.shape.stride == 1 and not self.needs_zeros else 0

    def locate(self, k: int) -> tuple[int, int]:
        channel, tap = divmod(k, self.pointers)
        return tap, channel * self.shape.height * self.shape.width

    def ptx(self, element: int) -> list[str]:
        s, plane = self.shape, self.row_stride
        lines = [
            *divmod_ptx("%image", "%pixel", "%col", plane),
            f"mad.lo.u32 %outcol, %image, {s.filters * plane}, %pixel;",
            *divmod_ptx("%t0", "%t1", "%pixel", s.out_width),
            f"mul.lo.u32 %t0, %t0, {s.stride};",
            f"mul.lo.u32 %t1, %t1, {s.stride};",
            f"mul.lo.u32 %image, %image, {s.channels * s.height * s.width};",
        ]
        for tap in range(self.pointers):
            i, j = divmod(tap, s.s)
            lines += [
                f"add.s32 %t2, %t0, {i - s.pad_h};",
                f"add.s32 %t3, %t1, {j - s.pad_w};",
                f"mad.lo.s32 %t4, %t2, {s.width}, %t3;",
                "add.s32 %t4, %t4, %image;",
                f"mad.wide.s32 %pb{tap}, %t4, {element}, %in;",
            ]
            if self.needs_zeros:
                lines += [
                    f"setp.lt.u32 %pi, %t2, {s.height};",
                    f"setp.lt.and.u32 %pi, %t3, {s.width}, %pi;",
                    f"selp.b64 %pb{tap}, %pb{tap}, %zeros, %pi;",
                ]
        return lines

    def cpp(self) -> list[str]:
        s, plane = self.shape, self.row_stride
        inside = f"(unsigned)y < {s.height}u && (unsigned)x < {s.width}u"
        chosen = f"image + y * {s.width} + x"
        return [
            f"const int pixel = col % {plane};",
            f"const int outcol = col / {plane} * {s.filters * plane} + pixel;",
            f"const element* image = b + (long long)(col / {plane}) * {s.channels * s.height * s.width};",
            f"const element* p[{self.pointers}];",
            f"for (int tap = 0; tap < {self.pointers}; ++tap) {{",
            f"  const int y = pixel / {s.out_width} * {s.stride} + tap / {s.s} - {s.pad_h};",
            f"  const int x = pixel % {s.out_width} * {s.stride} + tap % {s.s} - {s.pad_w};",
            f"  p[tap] = {inside} ? {chosen} : zeros;" if self.needs_zeros else f"  p[tap] = {chosen};",
            "}",
        ]


Addressing: TypeAlias = MatrixColumns | ImagePixels
"""Maps columns of A and output columns to addresses."""


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
        self.stage_width = t.tile_columns * t.column_tiles
        """Columns of B in the staged tile, and of C that a block computes at once."""
        self.column_groups = -(-self.columns // self.stage_width)
        wide = (rows for rows in (4, 2) if t.rows % rows == 0 and rows * t.columns_per_thread <= 4)
        self.rows_per_unit = next((rows for rows in wide if t.rows // rows >= t.parts), 1)
        """Rows whose partial sums one warp adds up together, as wide a vector as keeps all warps busy."""
        self.units = t.rows // self.rows_per_unit
        self.vector = self.rows_per_unit * t.columns_per_thread
        """Floats of a unit that one thread holds: 1, 2 or 4."""
        self.chunk = 16 // element if addressing.run % (16 // element) == 0 else 1
        """Elements one thread copies at a time while staging: 16 bytes where runs of B are aligned to that."""
        self.reduces = t.parts > 1
        self.stage_bytes = schedule.k * self.stage_width * element if t.staged else 0
        """Of the staged tile of B, which lies first."""
        self.shared_bytes = self.stage_bytes + (t.warps * t.rows * t.tile_columns * 4 if self.reduces else 0)
        needed = {"zeros": addressing.needs_zeros, "rows": self.reduces, "values": values == "buffer"}
        self.parameters = ["b", "c", *(name for name, wanted in needed.items() if wanted)]

    def buffers(self, dense: NDArray[Any], shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Everything to upload, with the output zeroed in its `shape`; `dense` is B or the image."""
        dtype = np.dtype(np.float16 if self.element == 2 else np.float32)
        found: dict[str, NDArray[Any]] = {
            "b": np.ascontiguousarray(dense, dtype=dtype),
            "c": np.zeros(shape, dtype=dtype),
            "zeros": np.zeros(self.addressing.needs_zeros, dtype=dtype),
            "rows": self.schedule.slots.reshape(-1),
        }
        if self.values == "buffer":
            found["values"] = self.schedule.stream
        return {name: found[name] for name in self.parameters}

    def launch(self) -> Launch:
        t = self.schedule.tiling
        across = -(-self.column_groups // t.loop)
        down = self.schedule.tiles // t.row_tiles
        return Launch(ENTRY, (across, down, 1), (t.threads, 1, 1), tuple(self.parameters), self.shared_bytes)

    def check(self, arch: str) -> None:
        """Raises `Unsupported` with the reason where hardware or encoding has no room for this tiling."""
        t, v, run = self.schedule.tiling, self.schedule.tiling.columns_per_thread, self.addressing.run
        if self.columns == 0 or self.schedule.m == 0:
            raise Unsupported("the output is empty")
        limit, down = block_shared_bytes(arch), self.launch().grid[1]
        spilt = (t.rows * v + t.depth * v + 24) * t.threads > 65536
        scattered = t.loop > 1 or not run or t.threads % (self.stage_width // self.chunk) > 0
        wrong = {
            f"{t.threads} threads a block, at most 1024": t.threads > 1024,
            f"the accumulators of {t.threads} threads do not fit the register file": spilt,
            f"{v} columns per thread need a multiple of {v} columns side by side in memory": v > 1
            and (not run or run % v > 0),
            "fp16 has at most two columns per thread": self.element == 2 and v > 2,
            f"{self.shared_bytes} bytes of shared memory, at most {limit}": self.shared_bytes > limit,
            "staging needs columns side by side, no loop, and whole rows per copy step": t.staged and scattered,
            f"a grid of {down} blocks in y, at most {MOST_GRID_Y}": down > MOST_GRID_Y,
        }
        refuse(t.name, wrong)
