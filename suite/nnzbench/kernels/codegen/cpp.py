"""Emits a program as CUDA C++ that walks the same schedule as tables: what the cpu device runs in place of PTX.

Same launch, buffers and order of multiply-adds as `codegen.ptx`; the straight-line code becomes a loop over
(pointer, offset, count) entries, as a hundred thousand statements would take the host compiler minutes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from nnzbench.kernels.codegen.program import ENTRY, Program
from nnzbench.kernels.codegen.schedule import Schedule


def emit(program: Program) -> str:
    """The CUDA C++ text."""
    p, t = program, program.schedule.tiling
    types = {"rows": "const int", "values": "const float", "c": "element"}
    parameters = ", ".join(f"{types.get(name, 'const element')}* {name}" for name in p.parameters)
    columns = [
        f"const int at = ((group * {t.column_tiles} + w) * 32 + lane) * {t.columns_per_thread};",
        f"const int col = at < {p.columns - t.columns_per_thread} ? at : {p.columns - t.columns_per_thread};",
        f"const bool valid = at < {p.columns};",
        *p.addressing.cpp(),
    ]
    lines = [
        *prologue(p.element, _tables(p), f"struct Sums {{ float v[{t.rows * t.columns_per_thread}]; }};"),
        "static __device__ inline void store(element* to, float x) {",
        f"  *to = {'__float2half_rn(x)' if p.element == 2 else 'x'};",
        "}",
        f'extern "C" __global__ void __launch_bounds__({t.threads}) {ENTRY}({parameters}) {{',
        "  DYN_SHARED(unsigned char, shared);" if p.shared_bytes else "",
        "  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;",
        f"  const int g = warp % {t.parts}, gw = warp / {t.parts};",
        f"  const int w = gw / {t.row_tiles}, tile = blockIdx.y * {t.row_tiles} + gw % {t.row_tiles};",
        f"  const int part = tile * {t.parts} + g;",
        f"  for (int group = blockIdx.x; group < {p.column_groups}; group += gridDim.x) {{",
        *["    " + line for line in columns],
        *["    " + line for line in _stage(p)],
        "    Sums a = {};",
        *["    " + line for line in _walk(p)],
        *["    " + line for line in (_reduce(p) if p.reduces else _store(p))],
        "  }",
        "}",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def prologue(element: int, tables: Mapping[str, ArrayLike], *types: str) -> list[str]:
    """Includes, the type `element`, `tables` as constants (one 0 where empty), further `types`, and `widen`."""
    half, lines = element == 2, []
    for name, values in tables.items():
        listed = ",".join(map(str, np.asarray(values).reshape(-1).tolist())) or "0"
        lines.append(f"static const {'unsigned' if name == 'kBits' else 'int'} {name}[] = {{{listed}}};")
    return [
        '#include "nnz.cuh"',
        "#include <cuda_fp16.h>" if half else "",
        f"typedef {'__half' if half else 'float'} element;",
        *lines,
        *types,
        "static __device__ inline float widen(element x) {",
        f"  return {'__half2float(x)' if half else 'x'};",
        "}",
    ]


def _tables(p: Program) -> dict[str, ArrayLike]:
    """One entry per loaded column, one per multiply-add, and where each body's entries and values start."""
    bodies, staged = p.schedule.bodies, p.schedule.tiling.staged
    columns = [k for body in bodies for k in body.columns.tolist()]
    places = [p.addressing.locate(k) for k in columns]
    tables: dict[str, ArrayLike] = {
        "kStart": np.cumsum([0, *(body.columns.size for body in bodies)]),
        "kMultiply": np.cumsum([0, *(body.rows.size for body in bodies)])[:-1],
        "kValue": [body.position for body in bodies],
        "kPointer": [pointer for pointer, _ in places],
        "kOffset": [k * p.stage_width for k in columns] if staged else [elements for _, elements in places],
        "kCount": np.concatenate([np.diff(body.first) for body in bodies]),
        "kRow": np.concatenate([body.rows for body in bodies]),
    }
    if p.values == "code":
        tables["kBits"] = np.concatenate([body.values for body in bodies]).view(np.uint32)
    return tables if p.reduces else tables | row_tables(p.schedule)


def row_tables(schedule: Schedule) -> dict[str, ArrayLike]:
    """The row of each accumulator, and each tile's rows of zeros."""
    empty = schedule.empty
    starts = np.cumsum([0, *(rows.size for rows in empty)])
    return {"kSlots": schedule.slots, "kEmpty": np.concatenate(empty), "kEmptyStart": starts}


def _stage(p: Program) -> list[str]:
    if not p.schedule.tiling.staged:
        return []
    width, last, run = p.stage_width, p.columns - 1, p.addressing.run
    column = f"(x < {last} ? x : {last})"
    image = "" if run == p.columns else f"{column} / {run} * {p.schedule.k} + "
    pixel = column if run == p.columns else f"{column} % {run}"
    return [
        "element* staged = reinterpret_cast<element*>(shared);",
        f"for (int i = threadIdx.x; i < {p.schedule.k * width}; i += {p.schedule.tiling.threads}) {{",
        f"  const int x = group * {width} + i % {width};",
        f"  staged[i] = b[(long long)({image}i / {width}) * {run} + {pixel}];",
        "}",
        "__syncthreads();",
    ]


def _walk(p: Program) -> list[str]:
    v = p.schedule.tiling.columns_per_thread
    if p.schedule.tiling.staged:
        source = f"staged + kOffset[i] + (w * 32 + lane) * {v}"
    else:
        source = "p[kPointer[i]] + kOffset[i]"
    value = "values[kValue[part] + m - kMultiply[part]]" if p.values == "buffer" else "__uint_as_float(kBits[m])"
    return [
        "int m = kMultiply[part];",
        "for (int i = kStart[part]; i < kStart[part + 1]; ++i) {",
        f"  const element* from = {source};",
        "  for (const int end = m + kCount[i]; m < end; ++m) {",
        f"    const float value = {value};",
        f"    for (int c = 0; c < {v}; ++c) {{",
        f"      float& sum = a.v[kRow[m] * {v} + c];",
        "      sum = nnz::fma_rn(widen(from[c]), value, sum);",
        "    }",
        "  }",
        "}",
    ]


def _store(p: Program) -> list[str]:
    v, rows, stride = p.schedule.tiling.columns_per_thread, p.schedule.tiling.rows, p.addressing.row_stride
    return [
        f"for (int i = 0; i < {rows}; ++i) {{",
        f"  const int row = kSlots[tile * {rows} + i];",
        "  if (row < 0 || !valid) continue;",
        f"  for (int j = 0; j < {v}; ++j) store(&c[(long long)row * {stride} + outcol + j], a.v[i * {v} + j]);",
        "}",
        "for (int i = kEmptyStart[tile]; valid && i < kEmptyStart[tile + 1]; ++i) {",
        "  const int row = kEmpty[i];",
        f"  for (int j = 0; j < {v}; ++j) store(&c[(long long)row * {stride} + outcol + j], 0.0f);",
        "}",
    ]


def _reduce(p: Program) -> list[str]:
    t = p.schedule.tiling
    v, vector, units = t.columns_per_thread, p.vector, p.units
    slot = f"tile * {t.rows} + u * {p.rows_per_unit} + i / {v}"
    return [
        f"float* sums = reinterpret_cast<float*>(shared + {p.stage_bytes});",
        f"for (int u = 0; u < {units}; ++u)",
        f"  for (int i = 0; i < {vector}; ++i)",
        f"    sums[((warp * {units} + u) * 32 + lane) * {vector} + i] = a.v[u * {vector} + i];",
        "__syncthreads();",
        f"for (int u = g; u < {units}; u += {t.parts})",
        f"  for (int i = 0; i < {vector}; ++i) {{",
        f"    float part_sums[{t.parts}];",
        f"    for (int q = 0; q < {t.parts}; ++q)",
        f"      part_sums[q] = sums[(((gw * {t.parts} + q) * {units} + u) * 32 + lane) * {vector} + i];",
        f"    for (int n = {t.parts}; n > 1; n = (n + 1) / 2)",
        "      for (int q = 0; q + (n + 1) / 2 < n; ++q) part_sums[q] += part_sums[q + (n + 1) / 2];",
        f"    const int row = rows[{slot}];",
        "    if (row >= 0 && valid)",
        f"      store(&c[(long long)row * {p.addressing.row_stride} + outcol + i % {v}], part_sums[0]);",
        "  }",
        "__syncthreads();",
    ]
