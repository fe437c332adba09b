"""The dense operand of SparseRT's own kernel: a matrix, or the virtual im2col matrix of an image (section 3.6).

Both say in PTX and in C++ where a thread's output column lies and how it loads its element of row k of B.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from nnzbench.kernels.codegen.addressing import Im2col
from nnzbench.kernels.codegen.divide import divmod_ptx


@dataclass(frozen=True)
class MatrixB:
    """B is row-major (k, columns), and so is the output."""

    k: int
    columns: int
    zeros: int = 0
    """Elements of zeros that loads may reach through `%zeros`, 0 for none."""

    @property
    def row_stride(self) -> int:
        """Elements between two rows of the output."""
        return self.columns

    @property
    def reach(self) -> int:
        """Elements of the dense operand: offsets stay below."""
        return self.k * self.columns

    def registers(self) -> list[str]:
        """Declarations that `pointers` and `load` need beyond `%t0`, `%b`, `%c` and `%zeros`."""
        return []

    def pointers(self) -> list[str]:
        """PTX that moves `%b` and `%c` (u64, to the buffers) to this thread's column, whose number is in `%t0`."""
        return ["mad.wide.u32 %b, %t0, 4, %b;", "mad.wide.u32 %c, %t0, 4, %c;"]

    def load(self, k: int) -> str:
        """PTX that loads this thread's element of row k of B into `%x`."""
        return f"ld.global.nc.f32 %x, [%b+{k * self.columns * 4}];"

    def cpp(self) -> str:
        """A C++ expression for the operand at `b`, as `rolled` takes it (`sparsert_rolled.cuh`)."""
        return f"RolledMatrix{{b, {self.columns}}}"


@dataclass(frozen=True)
class VirtualIm2col(Im2col):
    """B is the im2col matrix of an NCHW image, never written; says what `MatrixB` does.

    "Each reference to an element in the B matrix is replaced" by the pixel it stands for: a load at a constant offset
    from the thread's own pixel. Where a tap can leave the image, every thread checks once whether its own does, and
    then reads zeros at the same offsets; a tap that no output position can push outside has no check.
    """

    @property
    def reach(self) -> int:
        s = self.shape
        return s.batch * s.channels * s.height * s.width

    @property
    def zeros(self) -> int:
        return self.padding_reach if any(map(any, self.checked)) else 0

    @cached_property
    def checked(self) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
        """Which filter rows, and which filter columns, some output position has outside the image."""
        s = self.shape

        def leaves(tap: int, pad: int, outputs: int, size: int) -> bool:
            return tap < pad or (outputs - 1) * s.stride + tap - pad >= size

        return (
            tuple(leaves(i, s.pad_h, s.out_height, s.height) for i in range(s.r)),
            tuple(leaves(j, s.pad_w, s.out_width, s.width) for j in range(s.s)),
        )

    def registers(self) -> list[str]:
        return [
            ".reg .u32 %image, %y0, %x0, %t1;",
            f".reg .b64 %wide, %tap<{self.shape.r * self.shape.s}>;",
            ".reg .pred %inside;",
        ]

    def pointers(self) -> list[str]:
        s, plane = self.shape, self.row_stride
        lines = [
            *divmod_ptx("%image", "%t1", "%t0", plane),
            f"mad.lo.u32 %t0, %image, {s.filters * plane}, %t1;",
            "mad.wide.u32 %c, %t0, 4, %c;",
            *divmod_ptx("%y0", "%x0", "%t1", s.out_width),
            f"mul.lo.u32 %y0, %y0, {s.stride};",
            f"mul.lo.u32 %x0, %x0, {s.stride};",
            f"mul.lo.u32 %t0, %image, {s.channels * s.height * s.width};",
            f"mad.lo.u32 %t0, %y0, {s.width}, %t0;",
            "add.u32 %t0, %t0, %x0;",
            "mad.wide.u32 %b, %t0, 4, %b;",
        ]
        for i, down in enumerate(self.checked[0]):
            for j, across in enumerate(self.checked[1]):
                if not down and not across:
                    continue
                tap, also = f"%tap{i * s.s + j}", ""
                lines.append(f"add.s64 {tap}, %b, {self._offset(i, j)};")
                if down:  # unsigned, so that a row above the image is a large number
                    lines += [f"add.u32 %t1, %y0, {i - s.pad_h};", f"setp.lt.u32 %inside, %t1, {s.height};"]
                    also = ", %inside"
                if across:
                    operation = "setp.lt.and.u32" if down else "setp.lt.u32"
                    lines += [f"add.u32 %t1, %x0, {j - s.pad_w};", f"{operation} %inside, %t1, {s.width}{also};"]
                lines.append(f"selp.b64 {tap}, {tap}, %zeros, %inside;")
        return lines

    def load(self, k: int) -> str:
        s = self.shape
        channel, tap = divmod(k, s.r * s.s)
        i, j = divmod(tap, s.s)
        offset = 4 * channel * s.height * s.width
        if self.checked[0][i] or self.checked[1][j]:
            return f"ld.global.nc.f32 %x, [%tap{tap}+{offset}];"
        return f"ld.global.nc.f32 %x, [%b+{offset + self._offset(i, j)}];"

    def cpp(self) -> str:
        s = self.shape
        sizes = (s.channels, s.height, s.width, s.filters, s.r, s.s, s.pad_h, s.pad_w, s.stride)
        return f"RolledImage<{', '.join(map(str, (*sizes, s.out_height, s.out_width)))}>{{b}}"

    def _offset(self, i: int, j: int) -> int:
        """Bytes from the pixel under tap (pad_h, pad_w) to that under tap (i, j)."""
        s = self.shape
        return 4 * ((i - s.pad_h) * s.width + j - s.pad_w)


Dense: TypeAlias = MatrixB | VirtualIm2col
"""What the schedule is multiplied by."""
