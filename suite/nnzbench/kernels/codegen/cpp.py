"""Emits a program as CUDA C++ that reads the same schedule as tables: what the cpu device runs in place of PTX.

Same launch, buffers and order of multiply-adds as `codegen.ptx`, without shared memory: one warp has all parts of its
sums. The straight-line code becomes a loop, as a hundred thousand statements would take the host compiler minutes.
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
