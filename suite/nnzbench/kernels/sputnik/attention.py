"""Kernel `sparse_attention`: softmax(Q K^T) V with scores at the mask's positions alone, in three launches.

Gale, Zaharia, Young, Elsen: "Sparse GPU Kernels for Deep Learning", SC 2020, section VII-C. Sampled products, sparse
softmax and SpMM run one after another over shared buffers; scores and weights take one value per position of the mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nnzbench.kernels.registry import register
from nnzbench.kernels.roles import About
from nnzbench.kernels.sputnik.sddmm import Strip, candidates, heuristic_strip, sddmm_plan
from nnzbench.kernels.sputnik.softmax import softmax_plan
from nnzbench.kernels.sputnik.spmm import Tile, heuristic_tile, oracle_tiles, spmm_plan
from nnzbench.matrices.formats import CSR
from nnzbench.plans.chain import Step, chain
from nnzbench.plans.plan import Array, Plan, Unsupported
from nnzbench.plans.shared_work import SharedWork
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

_STEPS_TRIED = 4
"""Strips and tiles tried of each kind: the heuristic's and the first other candidates."""


def attention_plan(
    mask: CSR,
    q: Array,
    keys: Array,
    v: Array,
    strip: Strip,
    tile: Tile,
    label: str = "",
    shared: SharedWork | None = None,
) -> Plan:
    """The plan of one choice of strip and tile; `q` (m, d), `keys` and `v` (k, d), the factor of scores in `q`.

    All float32 or all float16; scores and weights are stored in that type, and all sums are fp32. `shared` is what
    plans of one mask share. Raises `Unsupported` where the mask is empty.
    """
    if mask.nnz == 0:
        raise Unsupported("the mask has no positions")
    unset = mask.with_values(np.zeros(mask.nnz, dtype=q.dtype))
    shared = shared or SharedWork()
    scores = sddmm_plan(unset, q, keys, strip, shared=shared)
    softmax = softmax_plan(unset, items=32)
    context = spmm_plan(unset, v, tile, shared=shared)
    common = {"indices": "indices"}
    name = "_".join(part for part in (label, strip.name, tile.name) if part)
    return chain(
        name,
        (
            Step(scores, {**common, "a": "q", "b": "keys", "d": "scores"}),
            Step(softmax, {"x": "scores", "y": "weights"}),
            Step(context, {**common, "values": "weights", "b": "v", "c": "context"}),
        ),
    )


@dataclass(frozen=True)
class SparseAttention:
    """Attention at the positions of a mask: heuristics first, then combinations of the steps' candidates."""

    name: str = "sparse_attention"
    paper: str = "Gale, Zaharia, Young, Elsen: Sparse GPU Kernels for Deep Learning, SC 2020, section VII-C"
    ops: frozenset[str] = frozenset({"attention"})
    dtypes: frozenset[str] = frozenset({"f32", "f16"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """The heuristics' plan (`heuristic_...`), then the other pairs of strip and tile.

        Raises `Unsupported` where no score but those above the diagonal is left out.
        """
        if problem.sparsity == 0:
            raise Unsupported("attention to every key is left to the dense kernels")
        q, keys, v = (operands.dense[name] for name in ("q", "k", "v"))
        features, size = q.shape[1], q.dtype.itemsize
        first_strip, first_tile = heuristic_strip(features, size), heuristic_tile(features, size)
        strips = [first_strip, *candidates(features, size)][:_STEPS_TRIED]
        tiles = [first_tile, *(tile for tile in oracle_tiles(features, size) if tile != first_tile)][:_STEPS_TRIED]
        shared = SharedWork()
        for strip in strips:
            for tile in tiles:
                label = "heuristic" if (strip, tile) == (first_strip, first_tile) else ""
                yield attention_plan(operands.sparse, q, keys, v, strip, tile, label, shared)


register(SparseAttention(), About("paper"))
