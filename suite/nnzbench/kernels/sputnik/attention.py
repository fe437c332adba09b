"""Kernel `sparse_attention`: softmax(Q K^T) V with scores at the mask's positions alone, in three launches.

Gale, Zaharia, Young, Elsen: "Sparse GPU Kernels for Deep Learning", SC 2020, section VII-C. Sampled products, sparse
softmax and SpMM run one after another over shared buffers; scores and weights take one value per position of the mask.
Dense attention's softmax, over a bit mask, is `kernels_cu/masked_softmax.cu`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nnzbench.kernels.registry import kernel
from nnzbench.kernels.roles import About
from nnzbench.kernels.rows import row_records
from nnzbench.kernels.sputnik import PAPER
from nnzbench.kernels.sputnik.sddmm import Strip, candidates, heuristic_strip, sddmm_plan
from nnzbench.kernels.sputnik.spmm import Tile, labelled_tiles, spmm_plan
from nnzbench.matrices.formats import CSR
from nnzbench.plans.chain import SharedWork, Step, chain
from nnzbench.plans.plan import Array, Dim3, Plan, Unsupported
from nnzbench.plans.tiles import TileConfiguration
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

_MOST_ITEMS = 64


@dataclass(frozen=True)
class Rows(TileConfiguration):
    """`width` threads per row, `rows` rows per block, `items` entries kept per thread."""

    DEFINES: ClassVar = {"width": "BLOCK_WIDTH", "rows": "BLOCK_ROWS"}
    width: int = 32
    rows: int = 4
    items: int = 8

    @property
    def name(self) -> str:
        return f"w{self.width}_y{self.rows}_i{self.items}"

    @property
    def block(self) -> Dim3:
        return self.width, self.rows, 1


def softmax_plan(matrix: CSR, width: int = 32, rows: int = 4, items: int = 8) -> Plan:
    """The plan of the configuration `Rows(width, rows, items)`.

    Raises `Unsupported` where the matrix has no nonzeros.
    """
    if matrix.nnz == 0:
        raise Unsupported("the matrix has no nonzeros")
    values = np.ascontiguousarray(matrix.values)
    buffers = {"rows": row_records(matrix), "x": values, "y": np.zeros(matrix.nnz, values.dtype)}
    half = {"F16": int(values.dtype == np.float16)}
    grid = (-(-matrix.m // rows), 1, 1)
    return Rows(width, rows, items).plan("sparse_softmax", grid, (matrix.m,), buffers, defines=half)


@kernel(f"{PAPER}, section VII-C", "sparse_softmax", "f32 f16", About("paper", rank=30))
def sparse_softmax(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Narrow subwarps for short rows, whole warps with many entries per thread for long ones."""
    for width, rows, items in ((32, 4, 8), (32, 4, 32), (32, 1, 32), (16, 8, 8), (8, 16, 8)):
        yield softmax_plan(operands.sparse, width, rows, items)


@dataclass(frozen=True)
class MaskedRow(TileConfiguration):
    """A block to a row, `items` scores to a thread."""

    threads: int
    items: int

    @property
    def name(self) -> str:
        return f"t{self.threads}_i{self.items}"


def mask_bits(mask: CSR) -> NDArray[np.uint32]:
    """The mask's positions as bits, (m, ceil(k / 32)): column j is bit j % 32 of word j / 32."""
    words = -(-mask.k // 32)
    bits = np.zeros((mask.m, words), dtype=np.uint32)
    rows = np.repeat(np.arange(mask.m), mask.row_lengths)
    # a position occurs once, so that adding its bit is setting it
    np.add.at(bits, (rows, mask.indices // 32), np.uint32(1) << (mask.indices % 32).astype(np.uint32))
    return bits


def masked_softmax_plan(mask: CSR, scores: Array) -> Plan:
    """In place over `scores` (m, k) float32. Raises `Unsupported` for rows longer than a block can hold."""
    threads = min(512, max(32, -(-mask.k // 32) * 32))
    items = -(-mask.k // threads)
    if items > _MOST_ITEMS:
        raise Unsupported(f"a row of {mask.k} scores is more than a block holds")
    bits = mask_bits(mask)
    grid, sizes = (mask.m, 1, 1), (mask.k, bits.shape[1])
    return MaskedRow(threads, items).plan("masked_softmax", grid, sizes, {"mask": bits, "x": scores})


_STEPS_TRIED = 4
"""Strips and tiles tried of each kind: the heuristic's and the first other candidates."""


def attention_plan(
    mask: CSR, qkv: tuple[Array, Array, Array], strip: Strip, tile: Tile, label: str, shared: SharedWork
) -> Plan:
    """The plan of one choice of strip and tile; `qkv` are (m, d), (k, d), (k, d), the factor of scores in the first.

    All float32 or all float16; scores and weights are stored in that type, and all sums are fp32. `shared` is what
    plans of one mask share. Raises `Unsupported` where the mask is empty.
    """
    if mask.nnz == 0:
        raise Unsupported("the mask has no positions")
    q, keys, v = qkv
    unset = mask.with_values(np.zeros(mask.nnz, dtype=q.dtype))
    common = {"indices": "indices"}
    scores = {**common, "a": "q", "b": "keys", "d": "scores"}
    context = {**common, "values": "weights", "b": "v", "c": "context"}
    return chain(
        "_".join(filter(None, (label, strip.name, tile.name))),
        (
            Step(sddmm_plan(unset, q, keys, strip, shared=shared), scores),
            Step(softmax_plan(unset, items=32), {"x": "scores", "y": "weights"}),
            Step(spmm_plan(unset, v, tile, shared=shared), context),
        ),
    )


@kernel(f"{PAPER}, section VII-C", "attention", "f32 f16", About("paper"))
def sparse_attention(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """The heuristics' plan (`heuristic_...`), then other pairs of the steps' strips and tiles.

    Raises `Unsupported` where no score but those above the diagonal is left out.
    """
    if problem.sparsity == 0:
        raise Unsupported("attention to every key is left to the dense kernels")
    q, keys, v = (operands.dense[name] for name in ("q", "k", "v"))
    features, size = q.shape[1], q.dtype.itemsize
    strips = [heuristic_strip(features, size), *candidates(features, size)][:_STEPS_TRIED]
    tiles = [tile for tile, _ in labelled_tiles(features, size)][:_STEPS_TRIED]
    shared = SharedWork()
    for strip in strips:
        for tile in tiles:
            label = "heuristic" if (strip, tile) == (strips[0], tiles[0]) else ""
            yield attention_plan(operands.sparse, (q, keys, v), strip, tile, label, shared)
