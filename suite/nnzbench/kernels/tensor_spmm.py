"""Kernel `tensor_spmm`: SpMM that loads A sparse, expands it in registers and multiplies it on tensor cores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.arches import block_shared_bytes, sm_count
from nnzbench.kernel import Array, Launch, Plan, Unsupported, register
from nnzbench.matrices.formats import CSR
from nnzbench.operands import Operands
from nnzbench.problem import Problem
from nnzbench.shared_work import SharedWork
from nnzbench.tensor_strips import STRIP_ROWS, Strips, chunk_columns, pack


@dataclass(frozen=True)
class Tiling:
    """Compile-time shape of `tensor_spmm.cu`, whose header explains the defines of the same names, and the slices."""

    block_n: int
    warps: int
    map_words: int
    stages: int
    panel_k: int
    panels: int
    blocks: int
    """Per multiprocessor."""
    slices: int
    """Of K, each with blocks of its own."""
    ahead: int = 4
    separate: bool = False
    wide: bool = False
    bulk: bool = True

    @property
    def packing(self) -> tuple[int, int, int]:
        """What the packed matrix follows from: words of bits, columns of a panel, what the strips are a multiple of."""
        return self.map_words, self.panel_k, self.warps if self.wide else 1

    def shared_bytes(self, slot_bytes: int) -> int:
        """Dynamic shared memory per block: B's panels and every warp's ring of chunks, and what aligning them takes."""
        return (1024 if self.wide else 128) + self.panels * self.panel_k * self.block_n * 2 + self.warps * self.stages * slot_bytes

    def __str__(self) -> str:
        text = f"n{self.block_n}_m{STRIP_ROWS * self.warps}_k{chunk_columns(self.map_words)}.{self.stages}"
        return text + f"_p{self.panel_k}.{self.panels}_b{self.blocks}_s{self.slices}" + f"a{self.ahead}" + "_add" * self.separate + "_wide" * self.wide + "_bulk" * self.bulk


def make_plan(problem: Problem, operands: Operands, tiling: Tiling, shared: SharedWork | None = None) -> Plan:
    """The plan of one tiling for `problem`; `operands.dense["b"]` is (k, n), in fp16, or in fp32 rounded to bf16.

    `shared` is what the problem's plans share.
    """
    shared = shared or SharedWork()
    elapsed = shared.timer()
    bf16 = problem.dtype == "bf16"
    packed = shared.once(tiling.packing, lambda: _packed(operands.sparse, tiling))
    b = shared.once("b", lambda: _stored(operands.dense["b"]))
    tiles = -(-problem.n // tiling.block_n)
    sums = tiles * packed.strips * STRIP_ROWS * tiling.block_n * tiling.slices if tiling.slices > 1 else 0
    buffers: dict[str, NDArray[Any]] = {
        "panel_chunks": packed.panel_chunks,
        "offsets": packed.offsets,
        "stream": packed.stream,
        "b": b,
        "partial": np.zeros(max(sums, 4), dtype=np.float32),
        "arrived": np.zeros(max(tiles * packed.strips, 1), dtype=np.int32),
        "c": np.empty((problem.m, problem.n), dtype=b.dtype),
    }
    grid = (-(-packed.strips // tiling.warps), tiling.slices, tiles)
    args = (problem.m, problem.n, problem.k, packed.strips, packed.panels, packed.slot_bytes)
    names = ("panel_chunks", "offsets", "stream", "b", "partial", "arrived", "c")
    block = (32 * tiling.warps, 1, 1)
    launches = [Launch("tensor_spmm", grid, block, (*args, *names), tiling.shared_bytes(packed.slot_bytes))]
    if tiling.separate and tiling.slices > 1:
        sums_tiles = tiles * packed.strips * 2 * (tiling.block_n // 8)
        add_args = (problem.m, problem.n, packed.strips, tiling.slices, sums_tiles, "partial", "c")
        launches.append(Launch("tensor_spmm_add", (-(-sums_tiles // 8), 1, 1), (256, 1, 1), add_args))
    return Plan(
        variant=str(tiling),
        math="bf16" if bf16 else "f16",
        language="cuda",
        source="tensor_spmm.cu",
        defines={
            "BLOCK_N": tiling.block_n,
            "WARPS": tiling.warps,
            "MAP_WORDS": tiling.map_words,
            "STAGES": tiling.stages,
            "PANEL_K": tiling.panel_k,
            "PANELS": tiling.panels,
            "BLOCKS": tiling.blocks,
            "FILL": math.gcd(problem.n, 8),
            "AHEAD": tiling.ahead,
            "WIDE": int(tiling.wide),
            "SEPARATE": int(tiling.separate),
            "BULK": int(tiling.bulk),
            "BF16": int(bf16),
        },
        buffers=buffers,
        output="c",
        launches=tuple(launches),
        generate_ms=elapsed(),
        unpermute=_from_bf16 if bf16 else None,
    )


def _stored(array: Array) -> Array:
    """16-bit storage: fp16 as it is, fp32 that is rounded to bf16 as its upper half."""
    if array.dtype == np.float16:
        return array
    return (np.ascontiguousarray(array, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _from_bf16(stored: Array) -> Array:
    return (stored.astype(np.uint32) << 16).view(np.float32)


def _packed(matrix: CSR, tiling: Tiling) -> Strips:
    return pack(matrix.with_values(_stored(matrix.values)), *tiling.packing)
