"""Sparse 1x1 convolutions with bias and ReLU, as between the depthwise layers of MobileNetV1.

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
