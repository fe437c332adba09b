"""Emits a convolution as CUDA C++ that walks the same tables: what the cpu device runs in place of PTX.

Same launch, buffers, staging and order of multiply-adds as `nnzbench.kernels.direct_conv.ptx`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from nnzbench.kernels.codegen.cpp import prologue, row_tables
from nnzbench.kernels.direct_conv.program import ENTRY, ConvProgram


def emit(program: ConvProgram) -> str:
    """The CUDA C++ text."""
    p, tile, t, s = program, program.tile, program.tile.tiling, program.tile.shape
    lines = [
        *prologue(p.element, _tables(p)),
        f'extern "C" __global__ void __launch_bounds__({t.threads})',
        f"{ENTRY}(const element* in, element* out, int first, int count) {{",
        "  DYN_SHARED(element, staged);",
        "  const int thread = threadIdx.x;",
        f"  const int group = first + blockIdx.x {f'/ {tile.tiles}' if t.grouped else '% count'};",
        f"  const int tile = blockIdx.x {f'% {tile.tiles}' if t.grouped else '/ count'};",
        f"  const int image0 = tile / {tile.across * tile.down} * {t.images};",
        f"  const int y0 = tile / {tile.across} % {tile.down} * {t.height}, x0 = tile % {tile.across} * {t.width};",
        f"  for (int i = thread; i < {tile.shared_bytes // p.element}; i += {t.threads}) staged[i] = element(0.0f);",
        f"  const int own = thread < {t.outputs} ? thread : {t.outputs - 1};",
        f"  const int i = own / {t.height * t.width}, y = own / {t.width} % {t.height}, x = own % {t.width};",
        f"  const int lane = i * {tile.image_pitch} + y * {tile.pitch * s.stride} + x * {s.stride} + {tile.skew};",
        f"  float a[{t.rows_per_lane}] = {{}};",
        f"  for (int chunk = 0; chunk < {tile.chunks}; ++chunk) {{",
        f"    element* const stage = staged + chunk % {t.stages} * {tile.stage_bytes // p.element};",
        "    __syncthreads();",
        *["    " + line for line in _copy(p)],
        "    __syncthreads();",
        f"    const int run = group * {tile.chunks} + chunk;",
        "    for (int c = kRun[run]; c < kRun[run + 1]; ++c) {",
        "      const float value = widen(stage[lane + kOffset[c]]);",
        "      for (int m = kFirst[c]; m < kFirst[c + 1]; ++m)",
        "        a[kRow[m]] = nnz::fma_rn(value, __uint_as_float(kBits[m]), a[kRow[m]]);",
        "    }",
        "  }",
        f"  if (thread >= {t.outputs} || image0 + i >= {s.batch}) return;",
        f"  if (y0 + y >= {s.out_height} || x0 + x >= {s.out_width}) return;",
        f"  element* const to = out + (long long)(image0 + i) * {s.filters * p.out_plane}",
        f"                      + (y0 + y) * {s.out_width} + x0 + x;",
        f"  for (int r = 0; r < {t.rows_per_lane}; ++r) {{",
        f"    const int row = kSlots[group * {t.rows_per_lane} + r];",
        f"    if (row >= 0) to[(long long)row * {p.out_plane}] = element(a[r]);",
        "  }",
        "  for (int e = kEmptyStart[group]; e < kEmptyStart[group + 1]; ++e)",
        f"    to[(long long)kEmpty[e] * {p.out_plane}] = element(0.0f);",
        "}",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _copy(p: ConvProgram) -> list[str]:
    """Element by element what the program copies in pieces."""
    tile, t, s = p.tile, p.tile.tiling, p.tile.shape
    columns = tile.pieces_per_row * tile.piece
    channel = columns * tile.rows * t.images
    return [
        f"for (int e = thread; e < {t.chunk * channel}; e += {t.threads}) {{",
        f"  const int within = e / {channel}, image = e / {columns * tile.rows} % {t.images};",
        f"  const int row = e / {columns} % {tile.rows}, column = e % {columns} + {tile.first_column};",
        f"  const int c = chunk * {t.chunk} + within, n = image0 + image;",
        f"  const int iy = y0 * {s.stride} + row - {s.pad_h}, ix = x0 * {s.stride} + column - {tile.left};",
        f"  if (c >= {s.channels} || n >= {s.batch}) continue;",
        f"  if (iy < 0 || iy >= {s.height} || ix < 0 || ix >= {s.width}) continue;",
        f"  const long long from = ((long long)n * {s.channels} + c) * {tile.plane} + iy * {s.width} + ix;",
        f"  const int to = within * {tile.channel_pitch} + image * {tile.image_pitch} + row * {tile.pitch} + column;",
        "  stage[to] = in[from];",
        "}",
    ]


def _tables(p: ConvProgram) -> dict[str, ArrayLike]:
    run, first, loaded, multiplied = [0], [0], 0, 0
    bodies = [runs[0].body for runs in p.runs]
    for runs, body in zip(p.runs, bodies, strict=True):
        run += [loaded + r.last for r in runs]
        first += (body.first[1:] + multiplied).tolist()
        loaded, multiplied = loaded + body.columns.size, multiplied + body.rows.size
    return {
        "kRun": run,
        "kOffset": np.concatenate([p.tile.offset(body.columns)[1] // p.element for body in bodies]),
        "kFirst": first,
        "kRow": np.concatenate([body.rows for body in bodies]),
        "kBits": np.concatenate([body.values for body in bodies]).view(np.uint32),
        **row_tables(p.schedule),
    }
