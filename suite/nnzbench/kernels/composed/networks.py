"""The whole networks of Sputnik's paper, dense and sparse, as one plan each.

MobileNetV1 at batch 1 (table IV and figure 12): first convolution, 13 pairs of depthwise and 1x1 convolution with bias
and ReLU, average pooling, classifier. The first 1x1 convolution and the classifier are dense in both networks.

The Transformer, forward (table III): three layers of eight heads with the norm before each part, ReLU between the
feed-forward products, no dropout; embedding and output layer are left out, as the paper leaves them open. Heads run one
after another in both networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from nnzbench.kernels.composed import steps
from nnzbench.kernels.composed.steps import DENSE, DENSE_ABOUT, MATHS, Make, Network
from nnzbench.kernels.registry import About, register
from nnzbench.kernels.sputnik import PAPER
from nnzbench.kernels.sputnik.layers import bias_relu_plan, depthwise_plan, masked_softmax_plan, softmax_plan
from nnzbench.kernels.sputnik.sddmm import heuristic_strip, rule_strip, sddmm_plan
from nnzbench.kernels.sputnik.spmm import Tile, heuristic_tile, rule_tile, spmm_plan
from nnzbench.matrices.formats import CSR
from nnzbench.plans.architectures import sm_count
from nnzbench.plans.chain import SharedWork, Step, chain
from nnzbench.plans.plan import Array, Plan, Unsupported
from nnzbench.problems.networks import HEADS, LAYERS, Block, MobileNet, blocks_of
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
        sparse = spmm_plan(weights, columns, tile, bias=bias)
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


def _sparse_mobilenet(problem: Problem, operands: Operands, arch: str) -> dict[str, Make]:
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


def _dense_mobilenet(problem: Problem, operands: Operands, arch: str) -> dict[str, Make]:
    """1x1 convolutions by cuBLAS, bias and ReLU after each; zeros are multiplied like any other weight."""
    net = MobileNet.of(problem.source)
    return {"default": lambda name: mobilenet_plan(name, net, operands, None)}


register(  # only the first convolution is a dense product here: fp32 alone
    Network("sparse_mobilenet", f"{PAPER}, table IV", frozenset({"mobilenet"}), _sparse_mobilenet, MATHS[:1]),
    About("paper", "sparse MobileNetV1", paper_variants="f32_heuristic$", rank=272),
)
register(
    Network("dense_mobilenet", DENSE, frozenset({"mobilenet"}), _dense_mobilenet),
    replace(DENSE_ABOUT, label="dense MobileNetV1", rank=273),
)


class SparseHeads:
    """Attention of one head out of the buffers `q`, `k` and `v` into `context` by the paper's three kernels.

    `arch` chooses strip and tile by our rule, the empty one by the paper's heuristic.
    """

    def __init__(self, mask: CSR, features: int, arch: str = "") -> None:
        unset, rows = mask.with_values(np.zeros(mask.nnz, np.float32)), steps.scratch(mask.m, features)
        strip, tile, shared = heuristic_strip(features, 4), heuristic_tile(features, 4), SharedWork()
        if arch:
            strip = rule_strip(unset, features, 4, sm_count(arch))
            tile = rule_tile(unset, features, 4, sm_count(arch))
        self._plans = [
            sddmm_plan(unset, rows, rows, strip, shared=shared),
            softmax_plan(unset, items=32),
            spmm_plan(unset, rows, tile, shared=shared),
        ]

    def steps(self, scores: str) -> list[Step]:
        """Scores and weights take one value per position of the mask; the mask's structure is held once."""
        common = {"indices": "mask.indices"}
        weights = f"{scores}.weights"
        sampled, softmax, context = self._plans
        return [
            Step(sampled, {**common, "strips": "mask.strips", "a": "q", "b": "k", "d": scores}),
            Step(softmax, {"rows": "mask.rows", "x": scores, "y": weights}),
            Step(context, {**common, "rows": "mask.tiles", "values": weights, "b": "v", "c": "context"}),
        ]


class DenseHeads:
    """Every score as a library computes it, a softmax over the mask's bits, and every weight times the values."""

    def __init__(self, mask: CSR, features: int) -> None:
        self._rows, self._square = steps.scratch(mask.m, features), steps.scratch(mask.m, mask.k)
        self._softmax = masked_softmax_plan(mask, self._square)

    def steps(self, scores: str) -> list[Step]:
        """Scores take a number for each pair of tokens; the mask is held once, as bits."""
        rows, square = self._rows, self._square
        (m, features), k = rows.shape, square.shape[1]
        return [
            steps.product((m, features, k), ("q", rows), ("k", rows), scores, transposed=True),
            Step(self._softmax, {"mask": "mask", "x": scores}),
            steps.product((m, k, features), (scores, square), ("v", rows), "context"),
        ]


def transformer_plan(variant: str, dense: Mapping[str, Array], heads: SparseHeads | DenseHeads, together: bool) -> Plan:
    """The whole network. With `together` the scores of all heads have room of their own, else one after another."""
    tokens, hidden = dense["x"].shape
    features, x = hidden // HEADS, ("x", dense["x"])
    normed, rows = ("normed", steps.scratch(tokens, hidden)), steps.scratch(tokens, features)
    made = [steps.copy(("input", dense["x"]), "x")]

    def weight(layer: int, name: str) -> tuple[str, Array]:
        return f"layer{layer}.{name}", dense[f"{layer}.{name}"]

    for layer in range(LAYERS):
        made.append(steps.layer_norm(x, weight(layer, "attention.gain"), weight(layer, "attention.shift"), "normed"))
        for head in range(HEADS):
            mine = {
                name: (f"layer{layer}.{name}{head}", dense[f"{layer}.{name}"][head]) for name in ("q", "k", "v", "o")
            }
            made += [steps.product((tokens, hidden, features), normed, mine[name], name) for name in ("q", "k", "v")]
            made += heads.steps(f"scores{head}" if together else "scores")
            made.append(steps.product((tokens, features, hidden), ("context", rows), mine["o"], "x", accumulate=True))
        made.append(
            steps.layer_norm(x, weight(layer, "feedforward.gain"), weight(layer, "feedforward.shift"), "normed")
        )
        up, down = weight(layer, "up"), weight(layer, "down")
        wide = up[1].shape[1]
        inside = ("inside", steps.scratch(tokens, wide))
        made += [
            steps.product((tokens, hidden, wide), normed, up, "inside"),
            steps.bias_relu_columns(inside, weight(layer, "bias")),
            steps.product((tokens, wide, hidden), inside, down, "x", accumulate=True),
        ]
    return chain(variant, made)


def _sparse_transformer(problem: Problem, operands: Operands, arch: str) -> dict[str, Make]:
    """Attention at the positions of the mask alone, by the paper's heuristics and by our rule.

    Heads run one after another; then with all heads' scores held, as in the paper's model.
    """
    mask, dense, features = operands.sparse, operands.dense, problem.n
    if mask.nnz == 0:
        raise Unsupported("the mask has no positions")
    return {
        "heuristic": lambda name: transformer_plan(name, dense, SparseHeads(mask, features), False),
        "rule": lambda name: transformer_plan(name, dense, SparseHeads(mask, features, arch), False),
        "heuristic_together": lambda name: transformer_plan(name, dense, SparseHeads(mask, features), True),
    }


def _dense_transformer(problem: Problem, operands: Operands, arch: str) -> dict[str, Make]:
    """Every score computed, the mask applied in the softmax: the same function, in the same two ways."""
    mask, dense, features = operands.sparse, operands.dense, problem.n
    return {
        "default": lambda name: transformer_plan(name, dense, DenseHeads(mask, features), False),
        "default_together": lambda name: transformer_plan(name, dense, DenseHeads(mask, features), True),
    }


register(
    Network("sparse_transformer", f"{PAPER}, table III", frozenset({"transformer"}), _sparse_transformer),
    About("paper", "sparse Transformer", frozenset(MATHS), paper_variants="t?f32_heuristic$", rank=270),
)
register(
    Network("dense_transformer", DENSE, frozenset({"transformer"}), _dense_transformer),
    replace(DENSE_ABOUT, label="dense Transformer", rank=271),
)
