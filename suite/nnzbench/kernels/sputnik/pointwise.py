"""Sparse 1x1 convolutions with bias and ReLU, and the 3x3 depthwise ones between them in MobileNetV1.

Gale, Zaharia, Young, Elsen: "Sparse GPU Kernels for Deep Learning", SC 2020, section VII-D. Images of one layer are a
channels x pixels matrix (CHW), so the convolution is an SpMM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from nnzbench.kernels.registry import kernel
from nnzbench.kernels.roles import About
from nnzbench.kernels.row_stream import row_stream
from nnzbench.kernels.sputnik import PAPER
from nnzbench.kernels.sputnik.spmm import labelled_tiles, spmm_plan
from nnzbench.plans.chain import Step, chain
from nnzbench.plans.plan import Array, Plan, Unsupported
from nnzbench.plans.tiles import TileConfiguration
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem


@dataclass(frozen=True)
class Outputs(TileConfiguration):
    """`outputs` neighbouring outputs per thread."""

    stride: int
    outputs: int
    threads: int

    @property
    def name(self) -> str:
        return f"o{self.outputs}_t{self.threads}"


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

    threads: int = 128

    @property
    def name(self) -> str:
        return f"t{self.threads}"


def bias_relu_plan(bias: Array, product: Array) -> Plan:
    """Bias and ReLU as a launch of their own, where a kernel has not fused them (`kernels_cu/bias_relu.cu`).

    In place over `product` (m, n) float32, with `bias` (m,).
    """
    m, n = product.shape
    tile, buffers = Columns(), {"bias": np.asarray(bias, np.float32), "c": product}
    return tile.plan("bias_relu", (-(-n // tile.threads), m, 1), (n,), buffers)


def _require_sparse(problem: Problem) -> None:
    if problem.sparsity == 0:
        raise Unsupported("this layer's weights are dense")


@kernel(f"{PAPER}, section VII-D", "pointwise", "f32", About("paper"))
def sputnik_bias_relu(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Sputnik's SpMM with bias and ReLU fused: the heuristic's plan (`heuristic_...`), then one per other tile.

    Raises `Unsupported` for dense layers.
    """
    _require_sparse(problem)
    b, bias = operands.dense["b"], operands.dense["bias"]
    for tile, label in labelled_tiles(b.shape[1], b.dtype.itemsize):
        yield spmm_plan(operands.sparse, b, tile, label, bias=bias, relu=True)


@kernel("nnzbench", "pointwise", "f32", About("own"))
def row_stream_bias_relu(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """The likeliest plans of `row_stream`, with bias and ReLU as a second launch.

    Raises `Unsupported` for dense layers.
    """
    _require_sparse(problem)
    for product in islice(row_stream.plans(problem, operands, arch), _ROW_STREAM_PLANS):
        after = bias_relu_plan(operands.dense["bias"], product.buffers[product.output])
        yield chain(product.variant, (Step(product, {product.output: "c"}), Step(after, {"c": "c"})))
