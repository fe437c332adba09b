"""SparseRT's own tiling, balancing and parameters, as its paper describes them (sections 3.3, 3.4 and 3.7).

A block owns some rows and `N / N_blocks` columns, one column per thread (the paper's inner loop of length 1); `Gy`
thread groups share its nonzeros in k-major order. `paper` writes the code of section 3.5.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from nnzbench.core.architectures import block_shared_bytes
from nnzbench.core.plan import Arg, Array, Int32s, Launch, Unsupported
from nnzbench.core.tiles import MOST_GRID_Y
from nnzbench.data.matrices.formats import CSR
from nnzbench.kernels.sparsert.program import Im2col, divmod_ptx
from nnzbench.kernels.sparsert.schedule import Body, by_column, refuse, tables


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

    def load(self, k: int, inside: bool = False) -> str:
        """PTX that loads this thread's element of row k of B into `%x`; `inside` as for `CheckedIm2col`."""
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
        return [*self._pixel(), *self._taps()]

    def _pixel(self) -> list[str]:
        """PTX for `%b` and `%c`, and the pixel's row and column times the stride, `%y0` and `%x0`."""
        s, plane = self.shape, self.row_stride
        return [
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

    def _taps(self) -> list[str]:
        """PTX for a pointer per tap that can leave the image."""
        s, lines = self.shape, []
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

    def load(self, k: int, inside: bool = False) -> str:
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


@dataclass(frozen=True)
class CheckedIm2col(VirtualIm2col):
    """The same with tests for padding as the paper has them: each load of a tap that can leave the image is tested,
    and what is known when code is generated is not. Blocks whose pixels all lie in the middle rows have code of their
    own, in which no row is tested.
    """

    width: int
    """Columns of the narrowest block."""

    @property
    def zeros(self) -> int:
        return 0

    @cached_property
    def _middle(self) -> tuple[int, int]:
        """From which pixel on, and up to which, the taps of all rows lie in the image."""
        s = self.shape
        first = -(-s.pad_h // s.stride)
        last = (s.height - s.r + s.pad_h) // s.stride
        return first * s.out_width, min(s.out_height, last + 1) * s.out_width

    @cached_property
    def inside(self) -> tuple[bool, ...]:
        """The kinds of blocks that have code of their own: whether all of a block's taps lie in rows of the image."""
        first, end = self._middle
        starts = (start % self.row_stride for start in range(0, self.columns, self.width))
        some = any(self.checked[0]) and any(first <= start and start + self.width <= end for start in starts)
        return (False, True) if some else (False,)

    def choose(self, bodies: int) -> list[str]:
        """PTX that adds `bodies`, of one kind of block, to `%body` where this block is of the second kind."""
        if len(self.inside) == 1:
            return []
        first, end = self._middle
        return [
            "mov.u32 %t0, %ctaid.y;",
            "mul.lo.u32 %t0, %t0, %width;",
            *divmod_ptx("%image", "%t1", "%t0", self.row_stride),
            f"setp.ge.u32 %inside, %t1, {first};",
            "add.u32 %t1, %t1, %width;",
            f"setp.le.and.u32 %inside, %t1, {end}, %inside;",
            f"@%inside add.u32 %body, %body, {bodies};",
        ]

    def registers(self) -> list[str]:
        s = self.shape
        declared = f".reg .pred %row<{s.r}>, %column<{s.s}>, %both<{s.r * s.s}>;"
        return [".reg .u32 %image, %y0, %x0, %t1;", ".reg .b64 %wide;", ".reg .pred %inside;", declared]

    def _taps(self) -> list[str]:
        """PTX for the tests."""
        s, lines = self.shape, []
        for i in self._tested(0):
            lines += [f"add.u32 %t1, %y0, {i - s.pad_h};", f"setp.lt.u32 %row{i}, %t1, {s.height};"]
        for j in self._tested(1):
            lines += [f"add.u32 %t1, %x0, {j - s.pad_w};", f"setp.lt.u32 %column{j}, %t1, {s.width};"]
            lines += [f"setp.lt.and.u32 %both{i * s.s + j}, %t1, {s.width}, %row{i};" for i in self._tested(0)]
        return lines

    def _tested(self, axis: int) -> list[int]:
        return [tap for tap, can_leave in enumerate(self.checked[axis]) if can_leave]

    def load(self, k: int, inside: bool = False) -> str:
        s = self.shape
        channel, tap = divmod(k, s.r * s.s)
        i, j = divmod(tap, s.s)
        down, across = self.checked[0][i] and not inside, self.checked[1][j]
        load = f"ld.global.nc.f32 %x, [%b+{4 * channel * s.height * s.width + self._offset(i, j)}];"
        if not (down or across):
            return load
        test = f"both{tap}" if down and across else f"row{i}" if down else f"column{j}"
        return f"mov.f32 %x, 0f00000000;\n@%{test} {load}"


Dense: TypeAlias = MatrixB | VirtualIm2col
"""What the schedule is multiplied by."""


ROWS_PER_BLOCK = (32, 16, 8)
WIDTHS = (32, 64, 128, 256)
GROUPS = (1, 2, 4, 8, 16)
"""The hand-picked choices that section 3.7 leaves open: rows per block of the authors' code, widths of whole warps, and
groups up to those of the example in section 3.3."""
FEW_GROUPS = (1, 4)
"""Those of this project's own way with padding: on an H200 others came no nearer to the fastest than 1.3 %."""
GROUPED_THREADS = 512
"""Largest block of several groups: the widths of one (M_blocks, Gy) share a program, whose registers fit the widest."""
SUMS_BYTES = 48 * 1024
"""Of shared memory that sums of groups may take where balancing makes a block twice as tall, on any GPU."""


@dataclass(frozen=True)
class PaperTiling:
    """The paper's three parameters. `balanced` turns balancing between blocks (section 3.4, figure 2b) on.

    Balancing between the groups of a block (figure 3) is always on: figure 8 leaves out the former alone.
    """

    m_blocks: int
    n_blocks: int
    groups: int
    balanced: bool = True

    @property
    def name(self) -> str:
        """Variant name, such as `mb8_nb98_gy1`: M_blocks, N_blocks and Gy."""
        return f"mb{self.m_blocks}_nb{self.n_blocks}_gy{self.groups}"


@dataclass(frozen=True)
class Deal:
    """Rows `row_start[i]` to `row_start[i + 1]` belong to block row i; `bodies[i * groups + g]` to its group g.

    The same for all widths of a tiling.
    """

    groups: int
    row_start: Int32s
    bodies: tuple[Body, ...]

    @property
    def rows(self) -> int:
        """Rows of the tallest block: accumulators of every thread (the registers that figure 2b wastes)."""
        return max(1, int(np.diff(self.row_start).max()))

    @property
    def tables(self) -> dict[str, Array]:
        """The schedule as arrays, for the kernel that is not unrolled."""
        return {"row_start": self.row_start, **tables(self.bodies)}


def launch_of(tiling: PaperTiling, dealt: Deal, dense: Dense, arch: str, entry: str, args: tuple[Arg, ...]) -> Launch:
    """Grid (M_blocks, N_blocks) of blocks of (width, Gy) threads, whose width is their columns (the paper's Gsy).

    Raises `Unsupported` where the hardware or the encoding of an offset has no room.
    """
    t, rows, width = tiling, dealt.rows, dense.columns // tiling.n_blocks
    threads, shared_bytes = width * t.groups, rows * width * 4 if t.groups > 1 else 0
    wrong = {
        f"{threads} threads with {rows} accumulators do not fit": threads > 1024 or (rows + 24) * threads > 65536,
        f"{shared_bytes} bytes of shared memory do not fit": shared_bytes > block_shared_bytes(arch),
        f"a grid of {t.n_blocks} blocks in y, at most {MOST_GRID_Y}": t.n_blocks > MOST_GRID_Y,
    }
    refuse(t.name, wrong)
    if max(dense.reach, int(dealt.row_start[-1]) * dense.row_stride) * 4 >= 2**31:
        raise Unsupported("offsets beyond 2 GB do not fit an instruction")
    return Launch(entry, (t.m_blocks, t.n_blocks, 1), (width, t.groups, 1), args, shared_bytes)


def grid(m: int, n: int, of_groups: tuple[int, ...] = GROUPS) -> list[PaperTiling]:
    """The choices of a problem: about so many rows per block, widths nearest to `WIDTHS` that divide N, groups.

    At most 42; fewer where N has fewer divisors or M fewer rows.
    """
    divisors = [d for d in range(1, min(n, 1024) + 1) if n % d == 0]
    widths = sorted({min(divisors, key=lambda d: abs(d - wanted)) for wanted in WIDTHS})
    blocks = sorted({-(-m // rows) for rows in ROWS_PER_BLOCK})
    return [
        PaperTiling(count, n // width, groups)
        for count, width, groups in itertools.product(blocks, widths, of_groups)
        if groups == 1 or (width * groups <= GROUPED_THREADS and 2 * -(-m // count) * width * 4 <= SUMS_BYTES)
    ]


def widest_blocks(m: int, n: int) -> dict[int, int]:
    """By number of groups, threads of the widest block of `grid`: what a shared program must have registers for."""
    widest: dict[int, int] = {}
    for tiling in grid(m, n):
        widest[tiling.groups] = max(widest.get(tiling.groups, 0), n // tiling.n_blocks * tiling.groups)
    return widest


def deal(matrix: CSR, tiling: PaperTiling) -> Deal:
    """Rows to blocks in order, by equal nonzeros where balanced, else by equal counts; nonzeros to groups by equal
    counts in k-major order (section 3.4)."""
    if tiling.balanced:
        cuts = np.searchsorted(matrix.offsets, np.arange(1, tiling.m_blocks) * matrix.nnz / tiling.m_blocks)
        row_start = np.maximum.accumulate(np.array([0, *cuts, matrix.m]))
    else:
        row_start = np.arange(tiling.m_blocks + 1) * matrix.m // tiling.m_blocks
    bodies: list[Body] = []
    for top, bottom in itertools.pairwise(row_start.tolist()):
        k, rows, values = by_column(matrix, np.arange(top, bottom))
        edges = [k.size * g // tiling.groups for g in range(tiling.groups + 1)]
        bodies += [Body.of(k[a:b], rows[a:b], values[a:b]) for a, b in itertools.pairwise(edges)]
    return Deal(tiling.groups, row_start.astype(np.int32), tuple(bodies))
