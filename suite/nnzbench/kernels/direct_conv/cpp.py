"""Emits a convolution as CUDA C++ that walks the same tables: what the cpu device runs in place of PTX.

Same launch, buffers, staging and order of multiply-adds as `nnzbench.kernels.direct_conv.ptx`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nnzbench.kernels.direct_conv.program import ENTRY, ConvProgram


def emit(program: ConvProgram) -> str:
    """The CUDA C++ text."""
    p, tile, t, s = program, program.tile, program.tile.tiling, program.tile.shape
    half = p.element == 2
    lines = [
        '#include "nnz.cuh"',
        "#include <cuda_fp16.h>" if half else "",
        f"typedef {'__half' if half else 'float'} element;",
        *_tables(p),
        "static __device__ inline float widen(element x) {",
        f"  return {'__half2float(x)' if half else 'x'};",
        "}",
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


def _array(kind: str, name: str, values: Iterable[int]) -> str:
    listed = ",".join(map(str, values)) or "0"
    return f"static const {kind} {name}[] = {{{listed}}};"


def _tables(p: ConvProgram) -> list[str]:
    run, first = [0], [0]
    offset: list[int] = []
    row: list[int] = []
    bits: list[int] = []
    for runs in p.runs:
        run += [len(offset) + r.last for r in runs]
        body = runs[0].body
        offset += (p.tile.offset(body.columns)[1] // p.element).tolist()
        first += (body.first[1:] + len(row)).tolist()
        row += body.rows.tolist()
        bits += body.values.view(np.uint32).tolist()
    empty = p.schedule.empty
    return [
        _array("int", "kRun", run),
        _array("int", "kOffset", offset),
        _array("int", "kFirst", first),
        _array("int", "kRow", row),
        _array("unsigned", "kBits", bits),
        _array("int", "kSlots", p.schedule.slots.reshape(-1).tolist()),
        _array("int", "kEmpty", np.concatenate(empty).tolist()),
        _array("int", "kEmptyStart", np.cumsum([0, *[e.size for e in empty]]).tolist()),
    ]
