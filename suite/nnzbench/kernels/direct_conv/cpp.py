"""Emits a convolution as CUDA C++ that reads the schedule as tables: what the cpu device runs in place of PTX.

Same launch, buffers and order of multiply-adds as `nnzbench.kernels.direct_conv.ptx`, without staging.
"""

from __future__ import annotations

from nnzbench.kernels.codegen.cpp import prologue, row_tables
from nnzbench.kernels.codegen.schedule import tables
from nnzbench.kernels.direct_conv.program import ENTRY, ConvProgram


def emit(program: ConvProgram) -> str:
    """The CUDA C++ text."""
    p, tile, t, s = program, program.tile, program.tile.tiling, program.tile.shape
    lines = [
        *prologue(p.element, {**tables(p.schedule.bodies), **row_tables(p.schedule)}),
        f'extern "C" __global__ void __launch_bounds__({t.threads})',
        f"{ENTRY}(const element* in, element* out, int first, int count) {{",
        "  const int thread = threadIdx.x;",
        f"  const int group = first + blockIdx.x {f'/ {tile.tiles}' if t.grouped else '% count'};",
        f"  const int tile = blockIdx.x {f'% {tile.tiles}' if t.grouped else '/ count'};",
        f"  const int image = tile / {tile.across * tile.down} * {t.images} + thread / {t.height * t.width};",
        f"  const int y = tile / {tile.across} % {tile.down} * {t.height} + thread / {t.width} % {t.height};",
        f"  const int x = tile % {tile.across} * {t.width} + thread % {t.width};",
        f"  if (thread >= {t.outputs} || image >= {s.batch} || y >= {s.out_height} || x >= {s.out_width}) return;",
        f"  float a[{t.rows_per_lane}] = {{}};",
        "  for (int c = k_body_start[group]; c < k_body_start[group + 1]; ++c) {",
        f"    const int channel = k_columns[c] / {s.r * s.s}, tap = k_columns[c] % {s.r * s.s};",
        f"    const int iy = y * {s.stride} + tap / {s.s} - {s.pad_h}, ix = x * {s.stride} + tap % {s.s} - {s.pad_w};",
        f"    const bool inside = iy >= 0 && iy < {s.height} && ix >= 0 && ix < {s.width};",
        f"    const long long from = ((long long)image * {s.channels} + channel) * {tile.plane} + iy * {s.width} + ix;",
        "    const float value = inside ? widen(in[from]) : 0.0f;",
        "    for (int m = k_first[c]; m < k_first[c + 1]; ++m)",
        "      a[k_rows[m]] = nnz::fma_rn(value, k_values[m], a[k_rows[m]]);",
        "  }",
        f"  element* const to = out + (long long)image * {s.filters * p.out_plane} + y * {s.out_width} + x;",
        f"  for (int r = 0; r < {t.rows_per_lane}; ++r) {{",
        f"    const int row = k_slots[group * {t.rows_per_lane} + r];",
        f"    if (row >= 0) to[(long long)row * {p.out_plane}] = element(a[r]);",
        "  }",
        "  for (int e = k_empty_start[group]; e < k_empty_start[group + 1]; ++e)",
        f"    to[(long long)k_empty[e] * {p.out_plane}] = element(0.0f);",
        "}",
    ]
    return "\n".join(lines) + "\n"
