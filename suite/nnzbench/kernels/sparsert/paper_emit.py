"""Emits SparseRT's own kernel (section 3.5, algorithm 3) as PTX, and as C++ for the cpu device.

Every thread group jumps to straight-line code of its own: a load of an element of B right before the multiply-adds
that use it, the values of A being constants in them. Groups add their sums atomically in shared memory (algorithm 2,
line 13). The width of a block is read at run time, so that one program serves every N_blocks.
"""

from __future__ import annotations

import numpy as np

from nnzbench.kernels.codegen.ptx import immediate
from nnzbench.kernels.sparsert.paper_schedule import Deal, Dense, tables
from nnzbench.plans.architectures import architecture

ENTRY = "sparsert_paper"


def parameters(dense: Dense) -> tuple[str, ...]:
    """Names of the buffers in the order of the kernel's arguments."""
    return ("b", "c", "zeros") if dense.zeros else ("b", "c")


def ptx(dealt: Deal, dense: Dense, threads: int, arch: str) -> str:
    """The unrolled kernel for blocks of at most `threads` threads. Raises `Unsupported` for an unknown `arch`.

    Up to 256 threads the bound changes nothing but for its presence: without it, ptxas stops at 32 registers or so.
    """
    groups, rows, stride = dealt.groups, dealt.rows, dense.row_stride
    bodies = [(i, body, inside) for inside in dense.inside for i, body in enumerate(dealt.bodies)]
    labels = ", ".join(f"L{i}" for i in range(len(bodies)))
    lines = [
        *architecture(arch).ptx_header(),
        *([".extern .shared .align 16 .b8 shared[];"] if groups > 1 else []),
        f".visible .entry {ENTRY}({', '.join(f'.param .u64 p_{name}' for name in parameters(dense))})",
        f".maxntid {threads}, 1, 1",
        "{",
        f".reg .f32 %a<{rows}>, %x;",
        ".reg .u32 %col, %width, %g, %body, %block, %t0, %s, %pitch, %step;",
        ".reg .s32 %top, %count;",
        ".reg .b64 %b, %c, %zeros, %q;",
        ".reg .pred %p;",
        *dense.registers(),
        *[
            line
            for name in parameters(dense)
            for line in (f"ld.param.u64 %{name}, [p_{name}];", f"cvta.to.global.u64 %{name}, %{name};")
        ],
        "mov.u32 %col, %tid.x;",
        "mov.u32 %width, %ntid.x;",
        "mov.u32 %g, %tid.y;",
        "mov.u32 %block, %ctaid.x;",
        *(_zero(rows, groups) if groups > 1 else []),
        "mov.u32 %t0, %ctaid.y;",
        "mad.lo.u32 %t0, %t0, %width, %col;",
        *dense.pointers(),
        f"mad.lo.u32 %body, %block, {groups}, %g;",
        *dense.choose(len(dealt.bodies)),
        *[f"mov.f32 %a{i}, 0f00000000;" for i in range(rows)],
        f"TABLE: .branchtargets {labels};",
        # groups narrower than a warp jump apart, so this is no uniform branch
        "brx.idx %body, TABLE;",
    ]
    tops = dealt.row_start.tolist()
    for label, (i, body, inside) in enumerate(bodies):
        block = i // groups
        lines += [f"L{label}:", f"mov.u32 %top, {tops[block]};", f"mov.u32 %count, {tops[block + 1] - tops[block]};"]
        columns, first, at = body.columns.tolist(), body.first.tolist(), body.rows.tolist()
        values = [immediate(value) for value in body.values]
        for j, k in enumerate(columns):
            lines.append(dense.load(k, inside))
            lines += [f"fma.rn.f32 %a{at[e]}, %x, {values[e]}, %a{at[e]};" for e in range(first[j], first[j + 1])]
        if label + 1 < len(bodies):
            lines.append("bra SUM;")
    lines += ["SUM:", f"mad.wide.s32 %c, %top, {stride * 4}, %c;"]
    lines += _reduce(rows, stride, groups) if groups > 1 else _store(rows, stride)
    return "\n".join([*lines, "ret;", "}", ""])


def _zero(rows: int, groups: int) -> list[str]:
    """Clears the shared sums (rows, width): group g has rows g, g + groups and so on."""
    lines = [
        "mul.lo.u32 %pitch, %width, 4;",
        f"mul.lo.u32 %step, %pitch, {groups};",
        "mov.u32 %s, shared;",
        "mad.lo.u32 %s, %col, 4, %s;",
        "mad.lo.u32 %s, %g, %pitch, %s;",
        "mov.u32 %t0, %s;",
    ]
    for j in range(-(-rows // groups)):
        lines += [
            f"setp.lt.u32 %p, %g, {rows - j * groups};",
            "@%p st.shared.u32 [%t0+0], 0;",
            "add.u32 %t0, %t0, %step;",
        ]
    return [*lines, "bar.sync 0;"]


def _store(rows: int, stride: int) -> list[str]:
    lines = []
    for i in range(rows):
        lines += [f"setp.ge.s32 %p, %count, {i + 1};", f"@%p st.global.f32 [%c+{i * stride * 4}], %a{i};"]
    return lines


def _reduce(rows: int, stride: int, groups: int) -> list[str]:
    lines = ["mov.u32 %t0, shared;", "mad.lo.u32 %t0, %col, 4, %t0;"]
    for i in range(rows):
        lines += [
            f"setp.ge.s32 %p, %count, {i + 1};",
            f"@%p red.shared.add.f32 [%t0+0], %a{i};",
            "add.u32 %t0, %t0, %pitch;",
        ]
    lines += ["barrier.sync 0;", f"mad.wide.u32 %q, %g, {stride * 4}, %c;", "sub.s32 %count, %count, %g;"]
    for j in range(-(-rows // groups)):
        lines += [
            f"setp.ge.s32 %p, %count, {j * groups + 1};",
            "@%p ld.shared.f32 %x, [%s+0];",
            f"@%p st.global.f32 [%q+{j * groups * stride * 4}], %x;",
            "add.u32 %s, %s, %step;",
        ]
    return lines


def cpp(dealt: Deal, dense: Dense) -> str:
    """CUDA C++ with the schedule as constants, for the cpu device."""
    lines = ['#include "sparsert_rolled.cuh"']
    for name, array in tables(dealt).items():
        kind = "float" if array.dtype == np.float32 else "int"
        listed = array.tolist() if kind == "int" else [float(x).hex() for x in array.tolist()]
        lines.append(f"static const {kind} k_{name}[] = {{{','.join(map(str, listed))}}};")
    zeros = ", const float*" if dense.zeros else ""
    lines += [
        f'extern "C" __global__ void {ENTRY}(const float* b, float* c{zeros}) {{',
        "  DYN_SHARED(float, sums);",
        f"  rolled<{dealt.rows}>({dense.cpp()}, c, k_row_start, k_body_start, k_columns, k_first, k_rows,",
        "                       k_values, sums);",
        "}",
    ]
    return "\n".join(lines) + "\n"
