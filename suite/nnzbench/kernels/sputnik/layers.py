"""Layers of Sputnik's two networks: sparse attention and softmax; 1x1 and depthwise convolutions with bias and ReLU.

Gale, Zaharia, Young, Elsen: "Sparse GPU Kernels for Deep Learning", SC 2020, sections VII-C and VII-D. In attention,
softmax(Q K^T) V with scores at the mask's positions alone, sampled products, sparse softmax and SpMM run one after
another over shared buffers; scores and weights take one value per position of the mask. Dense attention's softmax, over
a bit mask, is `kernels_cu/masked_softmax.cu`. Images of one layer are a channels x pixels matrix (CHW), so that a 1x1
convolution is an SpMM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from nnzbench.core.plan import Array, Dim3, Plan, SharedWork, Step, Uint32s, Unsupported, chain
from nnzbench.core.tiles import TileConfiguration
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.row_stream import row_stream
from nnzbench.kernels.rows import row_records
from nnzbench.kernels.sputnik import PAPER
from nnzbench.kernels.sputnik.sddmm import Strip, candidates, heuristic_strip, sddmm_plan
from nnzbench.kernels.sputnik.spmm import Tile, labelled_tiles, spmm_plan

_MOST_ITEMS = 64


@dataclass(frozen=True)
class Rows(TileConfiguration):
    """`width` threads per row, `rows` rows per block, `items` entries kept per thread."""

    NAME: ClassVar = "w{0.width}_y{0.rows}_i{0.items}"
    DEFINES: ClassVar = {"width": "BLOCK_WIDTH", "rows": "BLOCK_ROWS"}
    width: int = 32
    rows: int = 4
    items: int = 8

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

    NAME: ClassVar = "t{0.threads}_i{0.items}"
    threads: int
    items: int


def mask_bits(mask: CSR) -> Uint32s:
    """The mask's positions as bits, (m, ceil(k / 32)): column j is bit j % 32 of word j / 32."""
    there = np.zeros((mask.m, -(-mask.k // 32) * 32), bool)
    there[mask.rows, mask.indices] = True
    return np.packbits(there, axis=1, bitorder="little").view(np.uint32)


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


def attention_plans(
    mask: CSR, q: Array, keys: Array, v: Array, strip: Strip, tile: Tile, shared: SharedWork
) -> tuple[Plan, Plan, Plan]:
    """Scores, their softmax, and the context; `q` (m, d), the factor of scores in it, `keys` and `v` (k, d).

    All float32 or all float16; scores and weights are stored in that type, and all sums are fp32. `shared` is what
    plans of one mask share. Raises `Unsupported` where the mask is empty.
    """
    if mask.nnz == 0:
        raise Unsupported("the mask has no positions")
    unset = mask.with_values(np.zeros(mask.nnz, dtype=q.dtype))
    scores, context = sddmm_plan(unset, q, keys, strip, shared=shared), spmm_plan(unset, v, tile, shared=shared)
    return scores, softmax_plan(unset, items=32), context


_BETWEEN = (
    {"indices": "indices", "a": "q", "b": "keys", "d": "scores"},
    {"x": "scores", "y": "weights"},
    {"indices": "indices", "values": "weights", "b": "v", "c": "context"},
)
"""Names of the buffers of `attention_plans` that they share."""


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
    tiles = [tile for tile, _ in labelled_tiles(problem.m, features, size)][:_STEPS_TRIED]
    shared = SharedWork()
    for strip in strips:
        for tile in tiles:
            label = ["heuristic"] if (strip, tile) == (strips[0], tiles[0]) else []
            made = attention_plans(operands.sparse, q, keys, v, strip, tile, shared)
            yield chain("_".join([*label, strip.name, tile.name]), list(map(Step, made, _BETWEEN)))


@dataclass(frozen=True)
class Outputs(TileConfiguration):
    """`outputs` neighbouring outputs per thread."""

    NAME: ClassVar = "o{0.outputs}_t{0.threads}"
    stride: int
    outputs: int
    threads: int


def depthwise_plan(problem: Problem, operands: Operands, outputs: int, threads: int) -> Plan:
    """The plan of one configuration, `Outputs`.

    Raises `Unsupported` for other filters than 3x3 with padding 1 and stride 1 or 2.
    """
    c = problem.conv
    if c is None or c.groups != c.channels or (c.r, c.s, c.pad_h, c.pad_w) != (3, 3, 1, 1) or c.stride not in (1, 2):
        raise Unsupported(f"{problem.shape} is not a 3x3 depthwise convolution with padding 1 and stride 1 or 2")
    planes = c.batch * c.channels
    work = planes * c.out_height * -(-c.out_width // outputs)
    if work + threads >= 2**31:
        raise Unsupported("the image is too large for 32-bit indices")
    buffers = {
        "x": operands.dense["x"],
        "weights": np.ascontiguousarray(operands.sparse.to_dense()),
        "bias": operands.dense["bias"],
        "y": np.zeros((c.batch, c.channels, c.out_height, c.out_width), np.float32),
    }
    sizes = (planes, c.channels, c.height, c.width, c.out_height, c.out_width)
    return Outputs(c.stride, outputs, threads).plan("depthwise_conv", (-(-work // threads), 1, 1), sizes, buffers)


@kernel(f"{PAPER}, section VII-D", "depthwise", "f32", About("paper"))
def depthwise_conv(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Each channel convolved with its own filter, bias and ReLU fused.

    Several outputs per thread share loads, one fills the GPU for small images.
    """
    for outputs, threads in ((1, 128), (2, 128), (4, 128), (4, 64)):
        yield depthwise_plan(problem, operands, outputs, threads)


_ROW_STREAM_PLANS = 8
"""Plans tried of `row_stream`, which come by rank: a model has tens of layers."""


@dataclass(frozen=True)
class Columns(TileConfiguration):
    """A thread per column of a row."""

    NAME: ClassVar = "t{0.threads}"
    threads: int = 128


def bias_relu_plan(bias: Array, product: Array) -> Plan:
    """Bias and ReLU as a launch of their own, where a kernel has not fused them (`kernels_cu/bias_relu.cu`).

    In place over `product` (m, n) float32, with `bias` (m,).
    """
    m, n = product.shape
    tile, buffers = Columns(), {"bias": np.asarray(bias, np.float32), "c": product}
    return tile.plan("bias_relu", (-(-n // tile.threads), m, 1), (n,), buffers)


@kernel(f"{PAPER}, section VII-D", "pointwise", "f32", About("paper"))
def sputnik_bias_relu(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Sputnik's SpMM with bias and ReLU fused: the heuristic's plan (`heuristic_...`), then one per other tile.

    Raises `Unsupported` for dense layers.
    """
    if problem.sparsity == 0:
        raise Unsupported("this layer's weights are dense")
    b, bias = operands.dense["b"], operands.dense["bias"]
    for tile, label in labelled_tiles(problem.m, b.shape[1], b.dtype.itemsize):
        yield spmm_plan(operands.sparse, b, tile, label, bias=bias)


@kernel("nnzbench", "pointwise", "f32", About("own"))
def row_stream_bias_relu(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """The likeliest plans of `row_stream`, with bias and ReLU as a second launch.

    Raises `Unsupported` for dense layers.
    """
    if problem.sparsity == 0:
        raise Unsupported("this layer's weights are dense")
    for product in islice(row_stream.plans(problem, operands, arch), _ROW_STREAM_PLANS):
        after = bias_relu_plan(operands.dense["bias"], product.buffers[product.output])
        yield chain(product.variant, (Step(product, {product.output: "c"}), Step(after, {"c": "c"})))
