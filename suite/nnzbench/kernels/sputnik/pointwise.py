"""Sparse 1x1 convolutions with bias and ReLU, as between the depthwise layers of MobileNetV1.

Gale, Zaharia, Young, Elsen: "Sparse GPU Kernels for Deep Learning", SC 2020, section VII-D. Images of one layer are a
channels x pixels matrix (CHW), so the convolution is an SpMM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from nnzbench.kernels import row_stream
from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import About
from nnzbench.kernels.sputnik.bias_relu import bias_relu_plan
from nnzbench.kernels.sputnik.spmm import heuristic_tile, oracle_tiles, spmm_plan
from nnzbench.plans.chain import Step, chain
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

_ROW_STREAM_PLANS = 8
"""Plans tried of `row_stream`, which come by rank: a model has tens of layers."""


def _require_sparse(problem: Problem) -> None:
    if problem.sparsity == 0:
        raise Unsupported("this layer's weights are dense")


@dataclass(frozen=True)
class SputnikPointwise:
    """Sputnik's SpMM with bias and ReLU fused: the paper's heuristic first, then the oracle's candidates."""

    name: str = "sputnik_bias_relu"
    paper: str = "Gale, Zaharia, Young, Elsen: Sparse GPU Kernels for Deep Learning, SC 2020, section VII-D"
    ops: frozenset[str] = frozenset({"pointwise"})
    dtypes: frozenset[str] = frozenset({"f32"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """The heuristic's plan (`heuristic_...`), then one per tile. Raises `Unsupported` for dense layers."""
        _require_sparse(problem)
        b, bias = operands.dense["b"], operands.dense["bias"]
        first = heuristic_tile(b.shape[1], b.dtype.itemsize)
        yield spmm_plan(operands.sparse, b, first, "heuristic", bias=bias, relu=True)
        for tile in oracle_tiles(b.shape[1], b.dtype.itemsize):
            if tile != first:
                yield spmm_plan(operands.sparse, b, tile, bias=bias, relu=True)


@dataclass(frozen=True)
class RowStreamPointwise:
    """The streaming SpMM, with bias and ReLU as a second launch."""

    name: str = "row_stream_bias_relu"
    paper: str = "nnzbench"
    ops: frozenset[str] = frozenset({"pointwise"})
    dtypes: frozenset[str] = frozenset({"f32"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """The likeliest plans of `row_stream`, each with bias and ReLU. Raises `Unsupported` for dense layers."""
        _require_sparse(problem)
        for product in islice(row_stream.RowStream().plans(problem, operands, arch), _ROW_STREAM_PLANS):
            after = bias_relu_plan(operands.dense["bias"], product.buffers[product.output])
            yield chain(product.variant, (Step(product, {product.output: "c"}), Step(after, {"c": "c"})))


register(SputnikPointwise(), About("paper"))
register(RowStreamPointwise(), About("own"))
