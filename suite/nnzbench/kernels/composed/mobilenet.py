"""MobileNetV1 at batch 1, dense and with pruned 1x1 convolutions, as one plan each (Sputnik, table IV and figure 12).

First convolution, 13 pairs of depthwise and 1x1 convolution with bias and ReLU, average pooling, classifier. The first
1x1 convolution and the classifier are dense in both networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from nnzbench.kernels.composed import steps
from nnzbench.kernels.composed.steps import DENSE, DENSE_ABOUT, MATHS, Make, Network
from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import About
from nnzbench.kernels.sputnik import PAPER
from nnzbench.kernels.sputnik.pointwise import bias_relu_plan, depthwise_plan
from nnzbench.kernels.sputnik.spmm import Tile, heuristic_tile, rule_tile, spmm_plan
from nnzbench.matrices.formats import CSR
from nnzbench.plans.architectures import sm_count
from nnzbench.plans.chain import Step, chain
from nnzbench.plans.plan import Array, Plan, Unsupported
from nnzbench.problems.networks import Block, MobileNet, blocks_of
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

Choose = Callable[[CSR, int], Tile]
"""A tile for the weights of a 1x1 convolution and its positions."""


def mobilenet_plan(variant: str, net: MobileNet, operands: Operands, choose: Choose | None) -> Plan:
    """The whole network; sparse 1x1 convolutions take the tile that `choose` gives, all are dense without it."""
    dense = operands.dense
    first = steps.first_convolution(net.first, dense["image"], dense["first"], dense["first.bias"], "input0")
    made = [first]
    for number, (block, weights) in enumerate(zip(net.blocks, blocks_of(net, operands.sparse), strict=True)):
        names = {"x": f"input{number}", "y": f"inner{number}"}
        made.append(Step(_depthwise(block, dense, number), names))
        bias = dense[f"{number}.bias"]
        columns = steps.scratch(weights.k, block.positions)
        if choose is None or weights.nnz == weights.m * weights.k:
            made += _dense_pointwise(weights, columns, bias, number)
            continue
        tile = choose(weights, block.positions)
        sparse = spmm_plan(weights, columns, tile, bias=bias, relu=True)
        made.append(Step(sparse, {"b": names["y"], "c": f"input{number + 1}"}))
    last = net.blocks[-1]
    made.append(steps.average_pool((f"input{len(net.blocks)}", steps.scratch(last.filters, last.positions)), "pooled"))
    pooled = ("pooled", steps.scratch(last.filters))
    made.append(steps.classify(pooled, dense["classes"], dense["classes.bias"], "classes"))
    return chain(variant, made)


def _depthwise(block: Block, dense: Mapping[str, Array], number: int) -> Plan:
    shape = block.depthwise
    problem = Problem("", "", "depthwise", shape.channels, 9, block.positions, 0.0, "", conv=shape)
    held = {"x": steps.scratch(1, shape.channels, shape.height, shape.width), "bias": dense[f"{number}.depthwise.bias"]}
    return depthwise_plan(problem, Operands(CSR.from_dense(dense[f"{number}.depthwise"]), held, ""), 2, 128)


def _dense_pointwise(weights: CSR, columns: Array, bias: Array, number: int) -> list[Step]:
    """A library's product, then bias and ReLU in a launch of their own."""
    (k, n), output = columns.shape, f"input{number + 1}"
    operand = (f"weights{number}", np.ascontiguousarray(weights.to_dense()))
    after = bias_relu_plan(bias, steps.scratch(weights.m, n))
    return [
        steps.product((weights.m, k, n), operand, (f"inner{number}", columns), output),
        Step(after, {"c": output}),
    ]


def _sparse(problem: Problem, operands: Operands, arch: str) -> dict[str, Make]:
    """1x1 convolutions by Sputnik's SpMM with bias and ReLU fused: the paper's tile for each layer, then our rule's.

    Raises `Unsupported` for a dense network.
    """
    if problem.sparsity == 0:
        raise Unsupported("this network's weights are dense")
    net, sms = MobileNet.of(problem.source), sm_count(arch)
    return {
        "heuristic": lambda name: mobilenet_plan(name, net, operands, lambda weights, n: heuristic_tile(n, 4)),
        "rule": lambda name: mobilenet_plan(name, net, operands, lambda weights, n: rule_tile(weights, n, 4, sms)),
    }


def _dense(problem: Problem, operands: Operands, arch: str) -> dict[str, Make]:
    """1x1 convolutions by cuBLAS, bias and ReLU after each; zeros are multiplied like any other weight."""
    net = MobileNet.of(problem.source)
    return {"default": lambda name: mobilenet_plan(name, net, operands, None)}


_OPS = frozenset({"mobilenet"})
register(  # only the first convolution is a dense product here: fp32 alone
    Network("sparse_mobilenet", f"{PAPER}, table IV", _OPS, _sparse, MATHS[:1]),
    About("paper", "sparse MobileNetV1", paper_variants="f32_heuristic$", rank=272),
)
register(
    Network("dense_mobilenet", DENSE, _OPS, _dense),
    replace(DENSE_ABOUT, label="dense MobileNetV1", rank=273),
)
