"""Sputnik's sparse Transformer and the dense one, forward, as one plan each (its table III).

Three layers of eight heads with the norm before each part, ReLU between the feed-forward products, no dropout;
embedding and output layer are left out, as the paper leaves them open. Heads run one after another in both networks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nnzbench.devices import Device
from nnzbench.kernels.networks import steps
from nnzbench.kernels.networks.prepare import MATHS, Make, network_candidates
from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import About
from nnzbench.kernels.sputnik.masked_softmax import masked_softmax_plan
from nnzbench.kernels.sputnik.sddmm import heuristic_strip, rule_strip, sddmm_plan
from nnzbench.kernels.sputnik.softmax import softmax_plan
from nnzbench.kernels.sputnik.spmm import heuristic_tile, rule_tile, spmm_plan
from nnzbench.matrices.formats import CSR
from nnzbench.plans.architectures import sm_count
from nnzbench.plans.chain import Step, chain
from nnzbench.plans.plan import Array, Candidate, Plan, Unsupported
from nnzbench.plans.shared_work import SharedWork
from nnzbench.problems.networks import HEADS, LAYERS
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem


class Heads(Protocol):
    """Attention of one head out of the buffers `q`, `k` and `v` into `context`."""

    def steps(self, scores: str) -> list[Step]:
        """The scores, in a buffer of that name, their softmax, and its product with the values."""
        ...


class SparseHeads:
    """The paper's three kernels; `arch` chooses strip and tile by our rule, the empty one by the paper's heuristic."""

    def __init__(self, mask: CSR, features: int, arch: str = "") -> None:
        size = 4
        unset = mask.with_values(np.zeros(mask.nnz, np.float32))
        rows = steps.scratch(mask.m, features)
        strip, tile = heuristic_strip(features, size), heuristic_tile(features, size)
        if arch:
            strip = rule_strip(unset, features, size, sm_count(arch))
            tile = rule_tile(unset, features, size, sm_count(arch))
        shared = SharedWork()
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


def transformer_plan(variant: str, dense: Mapping[str, Array], heads: Heads, together: bool) -> Plan:
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


@dataclass(frozen=True)
class SparseTransformer:
    """Attention at the positions of the mask alone."""

    name: str = "sparse_transformer"
    paper: str = "Gale, Zaharia, Young, Elsen: Sparse GPU Kernels for Deep Learning, SC 2020, table III"
    ops: frozenset[str] = frozenset({"transformer"})
    dtypes: frozenset[str] = frozenset({"f32"})

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """By the paper's heuristics and by our rule, heads one after another; then with all heads' scores held."""
        mask, dense, features = operands.sparse, operands.dense, problem.n
        if mask.nnz == 0:
            raise Unsupported("the mask has no positions")

        def make(variant: str, arch: str, together: bool) -> Make:
            return lambda: transformer_plan(variant, dense, SparseHeads(mask, features, arch), together)

        yield from network_candidates(
            device,
            {
                "heuristic": make("heuristic", "", False),
                "rule": make("rule", device.arch, False),
                "heuristic_together": make("heuristic_together", "", True),
            },
        )


@dataclass(frozen=True)
class DenseTransformer:
    """Every score computed, the mask applied in the softmax: the same function."""

    name: str = "dense_transformer"
    paper: str = "NVIDIA cuBLAS and kernels of this suite"
    ops: frozenset[str] = frozenset({"transformer"})
    dtypes: frozenset[str] = frozenset({"f32"})

    def candidates(self, problem: Problem, operands: Operands, device: Device) -> Iterator[Candidate]:
        """Heads one after another over one buffer of scores, and with all heads' scores held, as the paper's model."""
        mask, dense, features = operands.sparse, operands.dense, problem.n

        def make(variant: str, together: bool) -> Make:
            return lambda: transformer_plan(variant, dense, DenseHeads(mask, features), together)

        yield from network_candidates(
            device, {"default": make("default", False), "default_together": make("default_together", True)}
        )


register(
    SparseTransformer(),
    About("paper", "sparse Transformer", frozenset(MATHS), paper_variants="t?f32_heuristic$", rank=270),
)
register(
    DenseTransformer(),
    About(
        "library",
        "dense Transformer",
        frozenset(MATHS),
        "dense",
        reference=True,
        nothing_to_tune=True,
        rank=271,
    ),
)
