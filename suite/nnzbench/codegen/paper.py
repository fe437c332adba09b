"""SparseRT's own tiling, thread mapping and reduction, as its paper describes them (sections 3.3 to 3.6).

A block owns some rows and `N / N_blocks` columns, one column per thread; `Gy` thread groups share its nonzeros in
k-major order and add their sums atomically in shared memory. Loads stand right before their use.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnzbench.architectures import architecture, block_shared_bytes
from nnzbench.codegen.ptx import immediate
from nnzbench.codegen.schedule import Body
from nnzbench.kernel import Launch, Unsupported
from nnzbench.matrices.formats import CSR

ENTRY = "sparsert_paper"
ROWS_PER_BLOCK = (32, 16, 8)
GROUPS = (1, 2, 4, 8)


@dataclass(frozen=True)
class PaperTiling:
    """The paper's three parameters; `balanced` turns its static load balancing (section 3.4) on."""

    m_blocks: int
    n_blocks: int
    groups: int
    balanced: bool = True

    @property
    def name(self) -> str:
        """Variant name, such as `mb8_nb98_gy1`."""
        return f"mb{self.m_blocks}_nb{self.n_blocks}_gy{self.groups}"


@dataclass(frozen=True)
class PaperSchedule:
    """Rows `row_start[i]` to `row_start[i + 1]` belong to block row i; `bodies[i * groups + g]` to its group g."""

    tiling: PaperTiling
    m: int
    n: int
    row_start: NDArray[np.int32]
    bodies: tuple[Body, ...]

    @property
    def width(self) -> int:
        """Columns of a block: threads of a group."""
        return self.n // self.tiling.n_blocks

    @property
    def rows(self) -> int:
        """Rows of the tallest block: accumulators of every thread."""
        return max(1, int(np.diff(self.row_start).max()))

    @property
    def shared_bytes(self) -> int:
        """Of the sums that groups share."""
        return self.rows * self.width * 4 if self.tiling.groups > 1 else 0

    def launch(self, entry: str, args: tuple[str, ...]) -> Launch:
        """Grid (M_blocks, N_blocks) of blocks of (width, Gy) threads."""
        t = self.tiling
        return Launch(entry, (t.m_blocks, t.n_blocks, 1), (self.width, t.groups, 1), args, self.shared_bytes)

    def check(self, arch: str) -> None:
        """Raises `Unsupported` where the hardware has no room."""
        threads = self.width * self.tiling.groups
        if threads > 1024 or (self.rows + 24) * threads > 65536:
            raise Unsupported(f"{self.tiling.name}: {threads} threads with {self.rows} accumulators do not fit")
        if self.shared_bytes > block_shared_bytes(arch):
            raise Unsupported(f"{self.tiling.name}: {self.shared_bytes} bytes of shared memory do not fit")


def grid(m: int, n: int) -> list[PaperTiling]:
    """The feasible choices: rows per block of the paper's code, widths that divide N, groups that fit a block."""
    divisors = [d for d in range(1, min(n, 1024) + 1) if n % d == 0]
    widths = sorted({min(divisors, key=lambda d: abs(d - wanted)) for wanted in (32, 64, 128, 256)})
    heights = [rows for rows in ROWS_PER_BLOCK if m % rows == 0] or [m]
    return [
        PaperTiling(m // rows, n // width, groups)
        for rows, width, groups in itertools.product(heights, widths, GROUPS)
        if width * groups <= 1024 and (rows + 24) * width * groups <= 65536 and rows * width * 4 <= 48 * 1024
    ]


def make_schedule(matrix: CSR, n: int, tiling: PaperTiling) -> PaperSchedule:
    """Rows to blocks in order: by equal nonzeros where balanced, else by equal counts; nonzeros to groups alike."""
    if tiling.balanced:
        cuts = np.searchsorted(matrix.offsets, np.arange(1, tiling.m_blocks) * matrix.nnz / tiling.m_blocks)
        row_start = np.maximum.accumulate(np.array([0, *cuts, matrix.m]))
    else:
        row_start = np.arange(tiling.m_blocks + 1) * matrix.m // tiling.m_blocks
    bodies: list[Body] = []
    for top, bottom in itertools.pairwise(row_start.tolist()):
        part = slice(int(matrix.offsets[top]), int(matrix.offsets[bottom]))
        k = matrix.indices[part]
        rows = np.repeat(np.arange(bottom - top), matrix.row_lengths[top:bottom]).astype(np.int32)
        order = np.lexsort((rows, k))
        k, rows, values = k[order], rows[order], matrix.values[part][order].astype(np.float32)
        if tiling.balanced:
            edges = [k.size * g // tiling.groups for g in range(tiling.groups + 1)]
        else:
            edges = np.searchsorted(k, np.arange(tiling.groups + 1) * matrix.k / tiling.groups).tolist()
        for a, b in itertools.pairwise(edges):
            columns, start = np.unique(k[a:b], return_index=True)
            first: NDArray[np.int32] = np.append(start, b - a).astype(np.int32)
            bodies.append(Body(columns.astype(np.int32), first, rows[a:b], values[a:b]))
    return PaperSchedule(tiling, matrix.m, n, row_start.astype(np.int32), tuple(bodies))


def tables(schedule: PaperSchedule) -> dict[str, NDArray[np.int32] | NDArray[np.float32]]:
    """The schedule as arrays, for the kernel that is not unrolled."""
    bodies = schedule.bodies
    loads = np.cumsum([0, *[body.columns.size for body in bodies]])
    nonzeros = np.cumsum([0, *[body.rows.size for body in bodies]])
    first = [body.first[:-1] + start for body, start in zip(bodies, nonzeros[:-1], strict=True)]
    return {
        "row_start": schedule.row_start,
        "body_start": loads.astype(np.int32),
        "columns": np.concatenate([*[body.columns for body in bodies], [0]]).astype(np.int32),
        "first": np.concatenate([*first, [nonzeros[-1]]]).astype(np.int32),
        "rows": np.concatenate([*[body.rows for body in bodies], [0]]).astype(np.int32),
        "values": np.concatenate([*[body.values for body in bodies], [0]]).astype(np.float32),
    }


def emit(schedule: PaperSchedule, arch: str) -> str:
    """The unrolled kernel as PTX. Raises `Unsupported` where it does not fit `arch`."""
    head = architecture(arch).ptx_header()
    schedule.check(arch)
    t, n, width, rows = schedule.tiling, schedule.n, schedule.width, schedule.rows
    labels = ", ".join(f"L{i}" for i in range(len(schedule.bodies)))
    lines = [
        *head,
        *([".extern .shared .align 16 .b8 shared[];"] if t.groups > 1 else []),
        f".visible .entry {ENTRY}(.param .u64 p_b, .param .u64 p_c)",
        f".maxntid {width}, {t.groups}, 1",
        "{",
        f".reg .f32 %a<{rows}>, %x;",
        ".reg .u32 %col, %g, %body, %block, %t0, %s;",
        ".reg .s32 %top, %count;",
        ".reg .b64 %b, %c, %q;",
        ".reg .pred %p;",
        "ld.param.u64 %b, [p_b];",
        "cvta.to.global.u64 %b, %b;",
        "ld.param.u64 %c, [p_c];",
        "cvta.to.global.u64 %c, %c;",
        "mov.u32 %col, %tid.x;",
        "mov.u32 %g, %tid.y;",
        "mov.u32 %block, %ctaid.x;",
        "mov.u32 %t0, %ctaid.y;",
        *(_zero(rows, width, t.groups) if t.groups > 1 else []),
        f"mad.lo.u32 %t0, %t0, {width}, %col;",
        "mad.wide.u32 %b, %t0, 4, %b;",
        "mad.wide.u32 %c, %t0, 4, %c;",
        f"mad.lo.u32 %body, %block, {t.groups}, %g;",
        *[f"mov.f32 %a{i}, 0f00000000;" for i in range(rows)],
        f"TABLE: .branchtargets {labels};",
        # groups narrower than a warp jump apart, so this is no uniform branch
        "brx.idx %body, TABLE;",
    ]
    tops = schedule.row_start.tolist()
    for i, body in enumerate(schedule.bodies):
        block = i // t.groups
        lines += [f"L{i}:", f"mov.u32 %top, {tops[block]};", f"mov.u32 %count, {tops[block + 1] - tops[block]};"]
        for j, k in enumerate(body.columns.tolist()):
            lines.append(f"ld.global.nc.f32 %x, [%b+{k * n * 4}];")
            for at in range(int(body.first[j]), int(body.first[j + 1])):
                row = int(body.rows[at])
                lines.append(f"fma.rn.f32 %a{row}, %x, {immediate(body.values[at])}, %a{row};")
        if i + 1 < len(schedule.bodies):
            lines.append("bra SUM;")
    lines += ["SUM:", f"mad.wide.s32 %c, %top, {n * 4}, %c;"]
    lines += _reduce(rows, width, n, t.groups) if t.groups > 1 else _store(rows, n)
    return "\n".join([*lines, "ret;", "}", ""])


def _zero(rows: int, width: int, groups: int) -> list[str]:
    lines = ["mov.u32 %s, shared;", "mad.lo.u32 %s, %col, 4, %s;", f"mad.lo.u32 %s, %g, {width * 4}, %s;"]
    for j in range(-(-rows // groups)):
        lines.append(f"setp.lt.u32 %p, %g, {rows - j * groups};")
        lines.append(f"@%p st.shared.u32 [%s+{j * groups * width * 4}], 0;")
    return [*lines, "bar.sync 0;"]


def _store(rows: int, n: int) -> list[str]:
    lines = []
    for i in range(rows):
        lines += [f"setp.ge.s32 %p, %count, {i + 1};", f"@%p st.global.f32 [%c+{i * n * 4}], %a{i};"]
    return lines


def _reduce(rows: int, width: int, n: int, groups: int) -> list[str]:
    lines = ["mov.u32 %t0, shared;", "mad.lo.u32 %t0, %col, 4, %t0;"]
    for i in range(rows):
        lines += [f"setp.ge.s32 %p, %count, {i + 1};", f"@%p red.shared.add.f32 [%t0+{i * width * 4}], %a{i};"]
    lines += ["barrier.sync 0;", f"mad.wide.u32 %q, %g, {n * 4}, %c;", "sub.s32 %count, %count, %g;"]
    for j in range(-(-rows // groups)):
        lines += [
            f"setp.ge.s32 %p, %count, {j * groups + 1};",
            f"@%p ld.shared.f32 %x, [%s+{j * groups * width * 4}];",
            f"@%p st.global.f32 [%q+{j * groups * n * 4}], %x;",
        ]
    return lines


def cpp(schedule: PaperSchedule) -> str:
    """CUDA C++ with the schedule as constants, for the cpu device."""
    lines = ['#include "sparsert_rolled.cuh"']
    for name, array in tables(schedule).items():
        kind = "float" if array.dtype == np.float32 else "int"
        listed = array.tolist() if kind == "int" else [float(x).hex() for x in array.tolist()]
        lines.append(f"static const {kind} k_{name}[] = {{{','.join(map(str, listed))}}};")
    rows = schedule.rows
    lines += [
        f'extern "C" __global__ void {ENTRY}(const float* b, float* c) {{',
        "  DYN_SHARED(float, sums);",
        f"  rolled<{rows}>(b, c, k_row_start, k_body_start, k_columns, k_first, k_rows, k_values, {schedule.n}, sums);",
        "}",
    ]
    return "\n".join(lines) + "\n"
