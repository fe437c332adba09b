"""Where an element of the dense operand lies: rows of a matrix, or a convolution's virtual im2col rows.

A column of A is a (pointer, byte offset) pair: each lane computes a few pointers once from its output column, and
every load is one of them plus a constant. For a convolution there is one pointer per filter tap; a lane whose tap
falls on the padding points into a buffer of zeros instead, so no load is masked. Division is by multiplication: ptxas
does not strength-reduce it, and its general division costs a hundred cycles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from nnzbench.plans.plan import Unsupported
from nnzbench.problems.problem import ConvShape, Problem


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


def convolved(problem: Problem) -> ConvShape:
    """The problem's convolution. Raises `Unsupported` where it has none, or an empty output."""
    c = problem.conv
    if c is None or not c.batch * c.filters * c.out_height * c.out_width:
        raise Unsupported("the output is empty")
    return c


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
