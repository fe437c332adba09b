"""Sputnik's sparse Transformer and the dense one, forward, as one plan each (its table III).

Three layers of eight heads with the norm before each part, ReLU between the feed-forward products, no dropout;
embedding and output layer are left out, as the paper leaves them open. Heads run one after another in both networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nnzbench.kernels.composed import steps
from nnzbench.kernels.composed.steps import DENSE, DENSE_ABOUT, MATHS, Make, Network
from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import About
from nnzbench.kernels.sputnik import PAPER
from nnzbench.kernels.sputnik.attention import masked_softmax_plan, softmax_plan
from nnzbench.kernels.sputnik.sddmm import heuristic_strip, rule_strip, sddmm_plan
from nnzbench.kernels.sputnik.spmm import heuristic_tile, rule_tile, spmm_plan
from nnzbench.matrices.formats import CSR
from nnzbench.plans.architectures import sm_count
from nnzbench.plans.chain import SharedWork, Step, chain
from nnzbench.plans.plan import Array, Plan, Unsupported
from nnzbench.problems.networks import HEADS, LAYERS
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem


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


def _sparse(problem: Problem, operands: Operands, arch: str) -> dict[str, Make]:
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


def _dense(problem: Problem, operands: Operands, arch: str) -> dict[str, Make]:
    """Every score computed, the mask applied in the softmax: the same function, in the same two ways."""
    mask, dense, features = operands.sparse, operands.dense, problem.n
    return {
        "default": lambda name: transformer_plan(name, dense, DenseHeads(mask, features), False),
        "default_together": lambda name: transformer_plan(name, dense, DenseHeads(mask, features), True),
    }


_OPS = frozenset({"transformer"})
register(
    Network("sparse_transformer", f"{PAPER}, table III", _OPS, _sparse),
    About("paper", "sparse Transformer", frozenset(MATHS), paper_variants="t?f32_heuristic$", rank=270),
)
register(
    Network("dense_transformer", DENSE, _OPS, _dense),
    replace(DENSE_ABOUT, label="dense Transformer", rank=271),
)
