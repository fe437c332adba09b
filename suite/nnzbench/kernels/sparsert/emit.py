"""Emits a program as PTX, one kernel that jumps, by block and warp, to straight-line code with the values in it.

And as CUDA C++ that reads the same schedule as tables: what the cpu device runs in place of PTX. Same launch, buffers
and order of multiply-adds, without shared memory: one warp has all parts of its sums. The straight-line code becomes a
loop, as a hundred thousand statements would take the host compiler minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnzbench.core.architectures import Architecture, architecture
from nnzbench.kernels.sparsert.program import ENTRY, Program, divmod_ptx
from nnzbench.kernels.sparsert.schedule import Body, Schedule, tables


def emit_ptx(program: Program, arch: str) -> str:
    """The PTX module. Raises `Unsupported` where the program does not fit `arch`."""
    target = architecture(arch)
    program.check(arch)
    return "\n".join([*target.ptx_header(), *_Emitter(program, target).kernel(), ""])


def immediates(values: NDArray[np.float32]) -> list[str]:
    """Float32 constants by their bits, exact for -0.0, denormals and NaN payloads alike."""
    return [f"0f{bits:08X}" for bits in values.view(np.uint32).tolist()]


def loads_ahead(
    count: int, depth: int, load: Callable[[int, int], str], use: Callable[[int, int], list[str]]
) -> list[str]:
    """Loads that run `depth` ahead of their use: both are told which one it is, and of `depth` registers its own."""
    lines = [load(i, i) for i in range(min(depth, count))]
    for i in range(count):
        lines += use(i, i % depth)
        if i + depth < count:
            lines.append(load(i + depth, i % depth))
    return lines


def load_parameters(registers: Mapping[str, str]) -> list[str]:
    """Global addresses of a kernel's buffers, by their names, in registers."""
    return [
        line
        for name, register in registers.items()
        for line in (f"ld.param.u64 {register}, [p_{name}];", f"cvta.to.global.u64 {register}, {register};")
    ]


class _Emitter:
    def __init__(self, program: Program, target: Architecture) -> None:
        self.p = program
        self.t = program.schedule.tiling
        self.v = self.t.columns_per_thread
        self.element = program.element
        self.target = target
        self.full = bool((program.schedule.slots >= 0).all())

    def kernel(self) -> list[str]:
        p, t = self.p, self.t
        shared = [".extern .shared .align 16 .b8 shared[];"] if p.shared_bytes else []
        parameters = ",\n".join(f"  .param .u64 p_{name}" for name in p.parameters)
        accumulators = t.rows * self.v
        return [
            *shared,
            f".visible .entry {ENTRY}(\n{parameters}\n)",
            f".maxntid {t.threads}, 1, 1",
            ".minnctapersm 1",
            "{",
            f".reg .f32 %a<{accumulators}>, %b<{t.depth * self.v}>, %s<{max(t.parts, 4) * 4}>, %w<4>, %f<4>;",
            ".reg .b16 %h<8>;",
            f".reg .b32 %x<{t.depth}>;",
            f".reg .b16 %y<{t.depth}>;",
            ".reg .u32 %thread, %warp, %lane, %g, %s_, %w_, %gw, %tile, %group, %part, %col, %outcol, %image, %pixel;",
            ".reg .u32 %t0, %t1, %t2, %t3, %t4, %sb, %sm, %sr, %bar, %u;",
            f".reg .s32 %row<{max(1, self._units_per_warp() * p.rows_per_unit)}>;",
            f".reg .b64 %in, %out, %wide, %zeros, %rows, %values, %c, %q<4>, %pb<{p.addressing.pointers}>;",
            ".reg .pred %pi, %pv, %pr, %pl;",
            *self._where(),
            *self._row_table(),
            "AGAIN:",
            *self._columns(),
            *self._stage(),
            *[f"mov.f32 %a{i}, 0f00000000;" for i in range(accumulators)],
            *self._jump(),
            *self._bodies(),
            *(self._reduce() if p.reduces else []),
            "NEXT:",
            *self._next(),
            "ret;",
            "}",
        ]

    def _where(self) -> list[str]:
        """Which part, row tile and column tile this warp has."""
        p, t = self.p, self.t
        names = {"b": "%in", "c": "%out", "zeros": "%zeros", "rows": "%rows", "values": "%values"}
        return [
            *load_parameters({name: names[name] for name in p.parameters}),
            "mov.u32 %thread, %tid.x;",
            "shr.u32 %warp, %thread, 5;",
            "and.b32 %lane, %thread, 31;",
            *divmod_ptx("%gw", "%g", "%warp", t.parts),
            *divmod_ptx("%w_", "%s_", "%gw", t.row_tiles),
            "mov.u32 %t0, %ctaid.y;",
            f"mad.lo.u32 %tile, %t0, {t.row_tiles}, %s_;",
            f"mad.lo.u32 %part, %tile, {t.parts}, %g;",
            "mov.u32 %group, %ctaid.x;",
        ]

    def _columns(self) -> list[str]:
        """Pointers of this lane's columns; past the last column it repeats the last and does not store."""
        t = self.t
        last = self.p.columns - self.v
        return [
            f"mad.lo.u32 %t0, %group, {t.column_tiles}, %w_;",
            "shl.b32 %t0, %t0, 5;",
            "add.u32 %t0, %t0, %lane;",
            f"mul.lo.u32 %t0, %t0, {self.v};",
            f"setp.lt.u32 %pv, %t0, {self.p.columns};",
            f"min.u32 %col, %t0, {last};",
            *self.p.addressing.ptx(self.element),
            f"mad.wide.u32 %c, %outcol, {self.element}, %out;",
        ]

    def _units_per_warp(self) -> int:
        return -(-self.p.units // self.t.parts) if self.p.reduces else 0

    def _row_table(self) -> list[str]:
        """Loads the numbers of the rows this warp will store, early enough to hide the latency."""
        p, n = self.p, self.p.rows_per_unit
        lines = []
        for j in range(self._units_per_warp()):
            lines += [
                f"add.u32 %u, %g, {j * self.t.parts};",
                f"min.u32 %u, %u, {p.units - 1};",
                f"mad.lo.u32 %t0, %tile, {p.units}, %u;",
                f"mad.wide.u32 %q0, %t0, {4 * n}, %rows;",
                vector("ld.global.nc", "s32", [f"%row{j * n + i}" for i in range(n)], "%q0", 0),
            ]
        return lines

    def _stage(self) -> list[str]:
        """Copies all rows of B of this block's columns into shared memory, 16 bytes a thread where aligned."""
        p, t = self.p, self.t
        if not t.staged:
            return []
        chunk, bytes_ = p.chunk, p.chunk * self.element
        per_row = p.stage_width // chunk
        step = t.threads // per_row
        count = -(-p.schedule.k // step)
        asynchronous = self.target.has("cp_async") and bytes_ == 16
        lines = [
            *divmod_ptx("%t1", "%t0", "%thread", per_row),
            f"mul.lo.u32 %t2, %t0, {chunk};",
            f"mad.lo.u32 %t3, %group, {p.stage_width}, %t2;",
            f"min.u32 %t3, %t3, {p.columns - chunk};",
            *self._stage_element(),
            f"mad.wide.u32 %q0, %t3, {self.element}, %in;",
            "mov.u32 %sb, shared;",
            f"mad.lo.u32 %t4, %t1, {p.stage_width}, %t2;",
            f"mad.lo.u32 %t4, %t4, {self.element}, %sb;",
        ]
        ring = 4 if bytes_ == 16 else 8
        pending: list[str] = []
        for i in range(count):
            guard = ""
            if (i + 1) * step > p.schedule.k:
                lines.append(f"setp.lt.u32 %pl, %t1, {p.schedule.k - i * step};")
                guard = "@%pl "
            source, target = i * step * p.addressing.run * self.element, i * step * p.stage_width * self.element
            if asynchronous:
                lines.append(f"{guard}cp.async.cg.shared.global [%t4+{target}], [%q0+{source}], 16;")
            else:
                load, store = self._copy(i % ring, bytes_, source, target)
                lines.append(guard + load)
                pending.append(guard + store)
                if len(pending) == ring or i == count - 1:
                    lines, pending = lines + pending, []
        if asynchronous:
            lines += ["cp.async.commit_group;", "cp.async.wait_group 0;"]
        return [
            *lines,
            "bar.sync 0;",
            "mad.lo.u32 %t0, %w_, 32, %lane;",
            f"mad.lo.u32 %sb, %t0, {self.v * self.element}, %sb;",
        ]

    def _stage_element(self) -> list[str]:
        """From column `%t3` of row `%t1` of B to its element `%t3`; the columns of an image lie in its own planes."""
        run = self.p.addressing.run
        if run == self.p.columns:
            return [f"mad.lo.u32 %t3, %t1, {run}, %t3;"]
        return [
            *divmod_ptx("%image", "%pixel", "%t3", run),
            f"mad.lo.u32 %image, %image, {self.p.schedule.k}, %t1;",
            f"mad.lo.u32 %t3, %image, {run}, %pixel;",
        ]

    def _copy(self, slot: int, bytes_: int, source: int, target: int) -> tuple[str, str]:
        if bytes_ == 16:
            registers = [f"%s{slot * 4 + i}" for i in range(4)]
            store = vector("st.shared", "f32", registers, "%t4", target)
            return vector("ld.global.nc", "f32", registers, "%q0", source), store
        kind, register = ("b16", f"%h{slot}") if bytes_ == 2 else ("f32", f"%s{slot}")
        return f"ld.global.nc.{kind} {register}, [%q0+{source}];", f"st.shared.{kind} [%t4+{target}], {register};"

    def _jump(self) -> list[str]:
        """One jump through a table to the code of this warp's row tile and part."""
        labels = ", ".join(f"L{i}" for i in range(len(self.p.schedule.bodies)))
        return [f"TABLE: .branchtargets {labels};", "brx.idx.uni %part, TABLE;"]

    def _bodies(self) -> list[str]:
        lines: list[str] = []
        parts = self.t.parts
        for i, body in enumerate(self.p.schedule.bodies):
            lines.append(f"L{i}:")
            lines += self._body(body)
            if not self.p.reduces:
                lines += self._store_rows(i // parts)
            last = i == len(self.p.schedule.bodies) - 1
            if self.p.reduces and not last:
                lines.append("bra.uni SUM;")
            elif not last:
                lines.append("bra.uni NEXT;")
        return lines

    def _body(self, body: Body) -> list[str]:
        """Loads run `depth` columns ahead of the multiply-adds that use them."""
        v = self.v
        columns, first, rows = body.columns.tolist(), body.first.tolist(), body.rows.tolist()
        constants = immediates(body.values)
        buffered, four = self.p.values == "buffer", [f"%w{i}" for i in range(4)]

        def multiply(i: int, slot: int) -> list[str]:
            lines = self._widen(slot)
            for j in range(first[i], first[i + 1]):
                value = constants[j]
                if buffered:
                    if j % 4 == 0:
                        lines.append(vector("ld.global.nc", "f32", four, "%values", 4 * (body.position + j)))
                    value = four[j % 4]
                for c in range(v):
                    a = rows[j] * v + c
                    lines.append(f"fma.rn.f32 %a{a}, %b{slot * v + c}, {value}, %a{a};")
            return lines

        return loads_ahead(len(columns), self.t.depth, lambda i, slot: self._load(columns[i], slot), multiply)

    def _load(self, k: int, slot: int) -> str:
        v = self.v
        if self.t.staged:
            space, base, offset = "ld.shared", "%sb", k * self.p.stage_width * self.element
        else:
            pointer, elements = self.p.addressing.locate(k)
            space, base, offset = "ld.global.nc", f"%pb{pointer}", elements * self.element
        if self.element == 4:
            return vector(space, "f32", [f"%b{slot * v + c}" for c in range(v)], base, offset)
        if v == 2:
            return f"{space}.b32 %x{slot}, [{base}+{offset}];"
        return f"{space}.b16 %y{slot}, [{base}+{offset}];"

    def _widen(self, slot: int) -> list[str]:
        if self.element == 4:
            return []
        if self.v == 2:
            return [
                f"mov.b32 {{%h0, %h1}}, %x{slot};",
                f"cvt.f32.f16 %b{slot * 2}, %h0;",
                f"cvt.f32.f16 %b{slot * 2 + 1}, %h1;",
            ]
        # by way of 32 bits the machine code is the same, and ptxas takes 1.3 to 1.8 times as long
        return [f"cvt.f32.f16 %b{slot}, %y{slot};"]

    def _store_rows(self, tile: int) -> list[str]:
        """Rows whose whole sum is in this warp's registers, and the rows without nonzeros."""
        v = self.v
        lines, row_bytes = [], self.p.addressing.row_stride * self.element
        for i, row in enumerate(self.p.schedule.slots[tile].tolist()):
            if row >= 0:
                lines += self._store([f"%a{i * v + c}" for c in range(v)], "%c", row * row_bytes, "%pv")
        zeros = [f"%f{c}" for c in range(v)]
        for row in self.p.schedule.empty[tile].tolist():
            lines += [f"mov.f32 {register}, 0f00000000;" for register in zeros]
            lines += self._store(zeros, "%c", row * row_bytes, "%pv")
        return lines

    def _store(self, sums: list[str], base: str, offset: int, guard: str) -> list[str]:
        if self.element == 4:
            return [f"@{guard} " + vector("st.global", "f32", sums, base, offset)]
        lines = [f"cvt.rn.f16.f32 %h{i}, {x};" for i, x in enumerate(sums)]
        if len(sums) == 1:
            return [*lines, f"@{guard} st.global.b16 [{base}+{offset}], %h0;"]
        return [*lines, "mov.b32 %t0, {%h0, %h1};", f"@{guard} st.global.b32 [{base}+{offset}], %t0;"]

    def _barrier(self) -> str:
        """Of the warps that share a row tile and column tile, by a barrier of their own where there are enough."""
        groups = self.t.row_tiles * self.t.column_tiles
        if groups == 1 or groups > 15:
            return "bar.sync 0;"
        return f"bar.sync %bar, {32 * self.t.parts};"

    def _reduce(self) -> list[str]:
        """Partial sums meet in shared memory as [part][unit][lane] vectors; each warp adds up every `parts`-th unit."""
        p, t = self.p, self.t
        wide, units, n = p.vector, p.units, p.rows_per_unit
        line_bytes = 32 * wide * 4
        part_bytes = units * line_bytes
        lines = [
            "SUM:",
            "mov.u32 %t0, shared;",
            f"mad.lo.u32 %t0, %lane, {wide * 4}, %t0;",
            f"mad.lo.u32 %sm, %warp, {part_bytes}, %t0;",
            f"mad.lo.u32 %sr, %gw, {part_bytes * t.parts}, %t0;",
            f"mad.lo.u32 %sr, %g, {line_bytes}, %sr;",
            "add.u32 %bar, %gw, 1;",
        ]
        base = p.stage_bytes
        for u in range(units):
            registers = [f"%a{u * wide + i}" for i in range(wide)]
            lines.append(vector("st.shared", "f32", registers, "%sm", base + u * line_bytes))
        lines.append(self._barrier())
        for j in range(self._units_per_warp()):
            if (j + 1) * t.parts > units:
                lines += [f"setp.ge.u32 %pl, %g, {units - j * t.parts};", "@%pl bra NEXT;"]
            for g in range(t.parts):
                offset = base + j * t.parts * line_bytes + g * part_bytes
                lines.append(vector("ld.shared", "f32", [f"%s{g * 4 + i}" for i in range(wide)], "%sr", offset))
            for i in range(wide):
                lines += _tree_sum([f"%s{g * 4 + i}" for g in range(t.parts)])
            for r in range(n):
                sums = [f"%s{r * self.v + c}" for c in range(self.v)]
                slot = j * n + r
                guard = "%pv"
                if not self.full:
                    lines.append(f"setp.ge.and.s32 %pr, %row{slot}, 0, %pv;")
                    guard = "%pr"
                lines.append(f"mad.wide.s32 %q0, %row{slot}, {p.addressing.row_stride * self.element}, %c;")
                lines += self._store(sums, "%q0", 0, guard)
        return lines

    def _next(self) -> list[str]:
        """The next group of columns of this block, if there is one; all warps of a block agree on it."""
        t = self.t
        if t.loop == 1:
            return []
        again = ["mov.u32 %t0, %nctaid.x;", "add.u32 %group, %group, %t0;"]
        again += [f"setp.lt.u32 %pl, %group, {self.p.column_groups};"]
        # a warp must not overwrite sums that another still reads
        wait = [self._barrier()] if self.p.reduces else []
        return [*wait, *again, "@%pl bra AGAIN;"]


def vector(operation: str, kind: str, registers: list[str], base: str, offset: int) -> str:
    """A load or store of 1, 2 or 4 registers at `base + offset`."""
    width = "" if len(registers) == 1 else f".v{len(registers)}"
    listed = registers[0] if len(registers) == 1 else "{" + ", ".join(registers) + "}"
    address = f"[{base}+{offset}]"
    operands = f"{address}, {listed}" if operation.startswith("st") else f"{listed}, {address}"
    return f"{operation}{width}.{kind} {operands};"


def _tree_sum(registers: list[str]) -> list[str]:
    """Adds the registers pairwise into the first."""
    lines = []
    while len(registers) > 1:
        half = (len(registers) + 1) // 2
        for i in range(len(registers) - half):
            lines.append(f"add.rn.f32 {registers[i]}, {registers[i]}, {registers[half + i]};")
        registers = registers[:half]
    return lines


def emit_cpp(program: Program) -> str:
    """The CUDA C++ text."""
    p, t = program, program.schedule.tiling
    v, stride = t.columns_per_thread, p.addressing.row_stride
    types = {"rows": "const int", "values": "const float", "c": "element"}
    parameters = ", ".join(f"{types.get(name, 'const element')}* {name}" for name in p.parameters)
    places = [p.addressing.locate(k) for body in p.schedule.bodies for k in body.columns.tolist()]
    held: dict[str, ArrayLike] = {
        **tables(p.schedule.bodies),
        "pointer": [pointer for pointer, _ in places],
        "offset": [elements for _, elements in places],
        "value": [body.position for body in p.schedule.bodies],
    }
    if p.values == "buffer":
        del held["values"]
    value = "k_values[m]" if p.values == "code" else "values[k_value[part] + m - k_first[k_body_start[part]]]"
    lines = [
        *prologue(p.element, held | row_tables(p.schedule)),
        f'extern "C" __global__ void __launch_bounds__({t.threads}) {ENTRY}({parameters}) {{',
        "  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;",
        f"  if (warp % {t.parts}) return;",
        f"  const int tile = blockIdx.y * {t.row_tiles} + warp / {t.parts} % {t.row_tiles};",
        f"  const int w = warp / {t.parts * t.row_tiles};",
        f"  for (int group = blockIdx.x; group < {p.column_groups}; group += gridDim.x) {{",
        f"    const int col = ((group * {t.column_tiles} + w) * 32 + lane) * {v};",
        f"    if (col >= {p.columns}) continue;",
        *["    " + line for line in p.addressing.cpp()],
        f"    float a[{t.parts}][{t.rows * v}] = {{}};",
        f"    for (int part = tile * {t.parts}; part < (tile + 1) * {t.parts}; ++part)",
        "      for (int i = k_body_start[part]; i < k_body_start[part + 1]; ++i) {",
        "        const element* from = p[k_pointer[i]] + k_offset[i];",
        "        for (int m = k_first[i]; m < k_first[i + 1]; ++m)",
        f"          for (int j = 0; j < {v}; ++j) {{",
        f"            float& sum = a[part - tile * {t.parts}][k_rows[m] * {v} + j];",
        f"            sum = nnz::fma_rn(widen(from[j]), {value}, sum);",
        "          }",
        "      }",
        f"    for (int n = {t.parts}; n > 1; n = (n + 1) / 2)",
        "      for (int q = 0; q + (n + 1) / 2 < n; ++q)",
        f"        for (int i = 0; i < {t.rows * v}; ++i) a[q][i] += a[q + (n + 1) / 2][i];",
        f"    for (int i = 0; i < {t.rows * v}; ++i) {{",
        f"      const int row = k_slots[tile * {t.rows} + i / {v}];",
        f"      if (row >= 0) c[(long long)row * {stride} + outcol + i % {v}] = element(a[0][i]);",
        "    }",
        f"    for (int i = {v} * k_empty_start[tile]; i < {v} * k_empty_start[tile + 1]; ++i)",
        f"      c[(long long)k_empty[i / {v}] * {stride} + outcol + i % {v}] = element(0.0f);",
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def constants(held: Mapping[str, ArrayLike]) -> list[str]:
    """Arrays as constants of the program, `k_` before their names, with one 0 where they are empty."""
    lines = []
    for name, values in held.items():
        array = np.asarray(values).ravel()
        kind, literal = ("float", _literal) if array.dtype == np.float32 else ("int", str)
        lines.append(f"static const {kind} k_{name}[] = {{{','.join(map(literal, array.tolist())) or '0'}}};")
    return lines


def _literal(value: float) -> str:
    if math.isnan(value):
        return '__builtin_nanf("")'
    return value.hex() if math.isfinite(value) else f"{'-' * (value < 0)}__builtin_inff()"


def prologue(element: int, held: Mapping[str, ArrayLike]) -> list[str]:
    """Includes, the type `element`, `held` as constants, and `widen`."""
    half = element == 2
    return [
        '#include "nnz.cuh"',
        "#include <cuda_fp16.h>" if half else "",
        f"typedef {'__half' if half else 'float'} element;",
        *constants(held),
        f"static __device__ inline float widen(element x) {{ return {'__half2float(x)' if half else 'x'}; }}",
    ]


def row_tables(schedule: Schedule) -> dict[str, ArrayLike]:
    """The row of each accumulator, and each tile's rows of zeros."""
    empty = schedule.empty
    starts = np.cumsum([0, *(rows.size for rows in empty)])
    return {"slots": schedule.slots, "empty": np.concatenate(empty), "empty_start": starts}
