"""Emits a program as CUDA C++ that reads the same schedule as tables: what the cpu device runs in place of PTX.

Same launch, buffers and order of multiply-adds as `codegen.ptx`, without staging; the straight-line code becomes a
loop, as a hundred thousand statements would take the host compiler minutes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from nnzbench.kernels.codegen.program import ENTRY, Program
from nnzbench.kernels.codegen.schedule import Schedule, tables


def emit(program: Program) -> str:
    """The CUDA C++ text."""
    p, t = program, program.schedule.tiling
    v = t.columns_per_thread
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
        *prologue(p.element, held if p.reduces else held | row_tables(p.schedule)),
        f'extern "C" __global__ void __launch_bounds__({t.threads}) {ENTRY}({parameters}) {{',
        "  DYN_SHARED(float, sums);" if p.reduces else "",
        "  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;",
        f"  const int g = warp % {t.parts}, gw = warp / {t.parts};",
        f"  const int w = gw / {t.row_tiles}, tile = blockIdx.y * {t.row_tiles} + gw % {t.row_tiles};",
        f"  const int part = tile * {t.parts} + g;",
        f"  for (int group = blockIdx.x; group < {p.column_groups}; group += gridDim.x) {{",
        f"    const int at = ((group * {t.column_tiles} + w) * 32 + lane) * {v};",
        f"    const int col = at < {p.columns - v} ? at : {p.columns - v};",
        f"    const bool valid = at < {p.columns};",
        *["    " + line for line in p.addressing.cpp()],
        f"    float a[{t.rows * v}] = {{}};",
        "    for (int i = k_body_start[part]; i < k_body_start[part + 1]; ++i) {",
        "      const element* from = p[k_pointer[i]] + k_offset[i];",
        "      for (int m = k_first[i]; m < k_first[i + 1]; ++m) {",
        f"        const float value = {value};",
        f"        for (int c = 0; c < {v}; ++c) {{",
        f"          float& sum = a[k_rows[m] * {v} + c];",
        "          sum = nnz::fma_rn(widen(from[c]), value, sum);",
        "        }",
        "      }",
        "    }",
        *["    " + line for line in (_reduce(p) if p.reduces else _store(p))],
        "  }",
        "}",
    ]
    return "\n".join(line for line in lines if line) + "\n"


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


def _store(p: Program) -> list[str]:
    v, rows, stride = p.schedule.tiling.columns_per_thread, p.schedule.tiling.rows, p.addressing.row_stride
    return [
        f"for (int i = 0; i < {rows}; ++i) {{",
        f"  const int row = k_slots[tile * {rows} + i];",
        "  if (row < 0 || !valid) continue;",
        f"  for (int j = 0; j < {v}; ++j) c[(long long)row * {stride} + outcol + j] = element(a[i * {v} + j]);",
        "}",
        "for (int i = k_empty_start[tile]; valid && i < k_empty_start[tile + 1]; ++i)",
        f"  for (int j = 0; j < {v}; ++j) c[(long long)k_empty[i] * {stride} + outcol + j] = element(0.0f);",
    ]


def _reduce(p: Program) -> list[str]:
    """Sums as [warp][unit][lane] vectors in shared memory, of which each part adds up every `parts`-th unit."""
    t = p.schedule.tiling
    v, vector, units = t.columns_per_thread, p.vector, p.units
    return [
        f"for (int i = 0; i < {t.rows * v}; ++i)",
        f"  sums[((warp * {units} + i / {vector}) * 32 + lane) * {vector} + i % {vector}] = a[i];",
        "__syncthreads();",
        f"for (int u = g; u < {units}; u += {t.parts})",
        f"  for (int i = 0; i < {vector}; ++i) {{",
        f"    float part_sums[{t.parts}];",
        f"    for (int q = 0; q < {t.parts}; ++q)",
        f"      part_sums[q] = sums[(((gw * {t.parts} + q) * {units} + u) * 32 + lane) * {vector} + i];",
        f"    for (int n = {t.parts}; n > 1; n = (n + 1) / 2)",
        "      for (int q = 0; q + (n + 1) / 2 < n; ++q) part_sums[q] += part_sums[q + (n + 1) / 2];",
        f"    const int row = rows[tile * {t.rows} + u * {p.rows_per_unit} + i / {v}];",
        "    if (row >= 0 && valid)",
        f"      c[(long long)row * {p.addressing.row_stride} + outcol + i % {v}] = element(part_sums[0]);",
        "  }",
        "__syncthreads();",
    ]
