"""SparseRT as its paper has it, and the parts of its ablation (figure 8), each a kernel of its own.

Every thread group jumps to straight-line code of its own (section 3.5, algorithm 3), emitted as PTX, and as C++ for the
cpu device: a load of an element of B right before the multiply-adds that use it, the values of A being constants in
them. Groups add their sums atomically in shared memory (algorithm 2, line 13). The width of a block is read at run
time, so that one program serves every N_blocks.

`sparsert_paper` is tuned over (M_blocks, N_blocks, Gy) as in section 3.7; `sparsert_unbalanced` does not balance
nonzeros between blocks (section 4.3 leaves out that level of section 3.4 alone: groups of a block still share
theirs equally); `sparsert_fixed` has one fixed choice; `sparsert_rolled` has the same tilings and balancing, but reads
the schedule from memory instead of unrolling it (section 3.5). `sparsert_conv_paper` is the convolution of section 3.6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np

from nnzbench.core.architectures import architecture
from nnzbench.core.plan import Arg, Array, Plan, SharedWork, Unsupported, plans_that_fit
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import About, PlannedKernel, kernel, register
from nnzbench.kernels.rows import convolved
from nnzbench.kernels.sparsert import PAPER
from nnzbench.kernels.sparsert import paper_schedule as paper
from nnzbench.kernels.sparsert.emit import constants, immediates, load_parameters
from nnzbench.kernels.sparsert.paper_schedule import CheckedIm2col, Deal, Dense, MatrixB, PaperTiling, VirtualIm2col

T = TypeVar("T")
ENTRY = "sparsert_paper"


def parameters(dense: Dense) -> tuple[str, ...]:
    """Names of the buffers in the order of the kernel's arguments."""
    return ("b", "c", "zeros") if dense.zeros else ("b", "c")


def ptx(dealt: Deal, dense: Dense, threads: int, arch: str) -> str:
    """The unrolled kernel for blocks of at most `threads` threads. Raises `Unsupported` for an unknown `arch`.

    Up to 256 threads the bound changes nothing but for its presence: without it, ptxas stops at 32 registers or so.
    """
    groups, rows, stride = dealt.groups, dealt.rows, dense.row_stride
    kinds = dense.inside if isinstance(dense, CheckedIm2col) else (False,)
    bodies = [(i, body, inside) for inside in kinds for i, body in enumerate(dealt.bodies)]
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
        *load_parameters({name: f"%{name}" for name in parameters(dense)}),
        "mov.u32 %col, %tid.x;",
        "mov.u32 %width, %ntid.x;",
        "mov.u32 %g, %tid.y;",
        "mov.u32 %block, %ctaid.x;",
        *(_zero(rows, groups) if groups > 1 else []),
        "mov.u32 %t0, %ctaid.y;",
        "mad.lo.u32 %t0, %t0, %width, %col;",
        *dense.pointers(),
        f"mad.lo.u32 %body, %block, {groups}, %g;",
        *(dense.choose(len(dealt.bodies)) if isinstance(dense, CheckedIm2col) else []),
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
        values = immediates(body.values)
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
    zeros = ", const float*" if dense.zeros else ""
    lines = [
        '#include "sparsert_rolled.cuh"',
        *constants(dealt.tables),
        f'extern "C" __global__ void {ENTRY}(const float* b, float* c{zeros}) {{',
        "  DYN_SHARED(float, sums);",
        f"  rolled<{dealt.rows}>({dense.cpp()}, c, k_row_start, k_body_start, k_columns, k_first, k_rows,",
        "                       k_values, sums);",
        "}",
    ]
    return "\n".join(lines) + "\n"


FIXED_ROWS, FIXED_WIDTH = 16, 64
"""The fixed choice: about this many rows and columns per block, one group."""
MAX_NONZEROS = 1 << 18
"""Unrolled code is written for so many, which covers every layer of the paper: its largest (table 3, problem 4 at 90 %)
has 213k, 13 MB of PTX that one core assembles in two minutes."""


@dataclass(frozen=True)
class PaperProduct:
    """One product for all tilings: the sparse operand, the dense one as uploaded and as addressed, and the output."""

    matrix: CSR
    b: Array
    dense: Dense
    shape: tuple[int, ...]
    arch: str

    shared: SharedWork = field(default_factory=SharedWork, repr=False)
    """What tilings share that differ in width alone: their deal and their code."""

    def once(self, kind: str, tiling: PaperTiling, make: Callable[[], T]) -> T:
        """What was made of that kind for the tiling, or for another that differs in its width alone."""
        return self.shared.once((kind, tiling.m_blocks, tiling.groups, tiling.balanced), make)

    def buffers(self) -> dict[str, Array]:
        """The dense operand, the zeroed output, and zeros that stand for padding where there is any."""
        found = {"b": self.b, "c": np.zeros(self.shape, np.float32)}
        return {**found, "zeros": np.zeros(self.dense.zeros, np.float32)} if self.dense.zeros else found


def unrolled_plan(work: PaperProduct, tiling: PaperTiling, threads: int = 0) -> Plan:
    """One tiling with the values in the code (section 3.5).

    `threads` bounds the blocks of all tilings that share its program, by default its own. Raises `Unsupported` where
    the tiling does not fit the architecture.
    """
    elapsed, dense, arch = work.shared.timer(), work.dense, work.arch
    threads = threads or dense.columns // tiling.n_blocks * tiling.groups
    dealt = work.once("deal", tiling, lambda: paper.deal(work.matrix, tiling))
    launch = paper.launch_of(tiling, dealt, dense, arch, ENTRY, parameters(dense))
    source = work.once("ptx", tiling, lambda: ptx(dealt, dense, threads, arch))
    plan = Plan(tiling.name, "ptx", source, {}, work.buffers(), "c", (launch,), generate_ms=elapsed())
    return replace(plan, cpu_source=work.once("cpp", tiling, lambda: cpp(dealt, dense)))


def rolled_plan(work: PaperProduct, tiling: PaperTiling, threads: int = 0) -> Plan:
    """The same tiling of a matrix product with the schedule in memory, what figure 8 calls not unrolled.

    Raises `Unsupported` where the tiling does not fit the architecture.
    """
    elapsed = work.shared.timer()
    dealt = work.once("deal", tiling, lambda: paper.deal(work.matrix, tiling))
    generate_ms, tables = elapsed(), dealt.tables
    args: tuple[Arg, ...] = ("b", "c", *tables, work.dense.columns)
    launch = paper.launch_of(tiling, dealt, work.dense, work.arch, "sparsert_rolled", args)
    defines = {"ROWS": dealt.rows, "THREADS": launch.block[0] * launch.block[1]}
    buffers, source = {**work.buffers(), **tables}, "sparsert_rolled.cu"
    return Plan(tiling.name, "cuda", source, defines, buffers, "c", (launch,), generate_ms=generate_ms)


def plans_of(work: PaperProduct, tilings: list[PaperTiling], unrolled: bool = True) -> Iterator[Plan]:
    """The plans of those tilings that fit. Raises `Unsupported` where none does."""
    if unrolled and work.matrix.nnz > MAX_NONZEROS:
        raise Unsupported(f"{work.matrix.nnz} nonzeros: unrolled code is written for at most {MAX_NONZEROS}")
    widest = paper.widest_blocks(work.matrix.m, work.dense.columns)
    make = unrolled_plan if unrolled else rolled_plan
    yield from plans_that_fit(
        tilings,
        lambda tiling: make(work, tiling, widest[tiling.groups]),
        "no choice of the paper's parameters divides this problem and fits a block",
    )


def _fixed(tilings: list[PaperTiling], problem: Problem) -> PaperTiling:
    def distance(t: PaperTiling) -> tuple[int, int, int]:
        return t.groups, abs(problem.n // t.n_blocks - FIXED_WIDTH), abs(problem.m // t.m_blocks - FIXED_ROWS)

    return min(tilings, key=distance)


def plans(
    problem: Problem, operands: Operands, arch: str, unrolled: bool = True, balanced: bool = True, tuned: bool = True
) -> Iterator[Plan]:
    """One bar of the ablation: every choice of the paper's parameters that fits, or the fixed one."""
    if problem.m == 0 or problem.n == 0:
        raise Unsupported("the output is empty")
    shape = problem.m, problem.n
    work = PaperProduct(operands.sparse, operands.dense["b"], MatrixB(problem.k, problem.n), shape, arch)
    tilings = paper.grid(*shape)
    if not tuned:
        tilings = [_fixed(tilings, problem)]
    yield from plans_of(work, [replace(tiling, balanced=balanced) for tiling in tilings], unrolled)


for _name, _plans, _about in (
    ("sparsert_paper", plans, About("paper", weights_in_code=True, rank=60)),
    ("sparsert_unbalanced", partial(plans, balanced=False), About("paper", study=True, rank=70)),
    ("sparsert_fixed", partial(plans, tuned=False), About("paper", nothing_to_tune=True, study=True, rank=80)),
    ("sparsert_rolled", partial(plans, unrolled=False), About("paper", study=True, rank=90)),
):
    register(PlannedKernel(_name, PAPER, frozenset({"spmm"}), frozenset({"f32"}), _plans), _about)


@kernel(PAPER, "conv2d", "f32", About("own", paper_variants="checked_", weights_in_code=True, rank=65))
def sparsert_conv_paper(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """SparseRT's convolution (section 3.6): the same code over the virtual im2col matrix, tuned over the same choices.

    The paper's (`checked_...`) are 3x3 filters with padding 1 on one image; any filter, padding, stride and batch work
    alike. In the others padding costs no test: a pointer per tap leads where it leaves the image into zeros, our way.
    """
    c = convolved(problem)
    matrix, x = operands.sparse, operands.dense["x"]
    tilings = paper.grid(c.filters, problem.n)
    narrowest = min(problem.n // one.n_blocks for one in tilings)
    for plan in plans_of(PaperProduct(matrix, x, CheckedIm2col(c, narrowest), c.output, arch), tilings):
        yield replace(plan, variant=f"checked_{plan.variant}")
    yield from plans_of(
        PaperProduct(matrix, x, VirtualIm2col(c), c.output, arch), paper.grid(c.filters, problem.n, paper.FEW_GROUPS)
    )


@kernel(PAPER, "conv2d", "f32", About("paper", study=True, weights_in_code=True, rank=66))
def sparsert_conv_padded(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """The paper's convolution over an image that is padded already, so that no load is tested: what its tests cost."""
    c, x = convolved(problem), operands.dense["x"]
    padded = replace(c, height=c.height + 2 * c.pad_h, width=c.width + 2 * c.pad_w, pad_h=0, pad_w=0)
    image = np.pad(x, ((0, 0), (0, 0), (c.pad_h, c.pad_h), (c.pad_w, c.pad_w)))
    tilings = paper.grid(c.filters, problem.n)
    dense = CheckedIm2col(padded, min(problem.n // one.n_blocks for one in tilings))
    yield from plans_of(PaperProduct(operands.sparse, image, dense, c.output, arch), tilings)
