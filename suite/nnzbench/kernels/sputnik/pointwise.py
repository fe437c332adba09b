"""Sparse 1x1 convolutions with bias and ReLU, as between the depthwise layers of MobileNetV1.

Gale, Zaharia, Young, Elsen: "Sparse GPU Kernels for Deep Learning", SC 2020, section VII-D. Images of one layer are a
channels x pixels matrix (CHW), so the convolution is an SpMM.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from nnzbench.kernels.registry import kernel
from nnzbench.kernels.roles import About
from nnzbench.kernels.row_stream import row_stream
from nnzbench.kernels.sputnik import PAPER
from nnzbench.kernels.sputnik.bias_relu import bias_relu_plan
from nnzbench.kernels.sputnik.spmm import labelled_tiles, spmm_plan
from nnzbench.plans.chain import Step, chain
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

_ROW_STREAM_PLANS = 8
"""Plans tried of `row_stream`, which come by rank: a model has tens of layers."""


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
