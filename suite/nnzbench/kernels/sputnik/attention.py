"""Kernel `sparse_attention`: softmax(Q K^T) V with scores at the mask's positions alone, in three launches.

Gale, Zaharia, Young, Elsen: "Sparse GPU Kernels for Deep Learning", SC 2020, section VII-C. Sampled products, sparse
softmax and SpMM run one after another over shared buffers; scores and weights take one value per position of the mask.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnzbench.kernels.registry import kernel
from nnzbench.kernels.roles import About
from nnzbench.kernels.sputnik import PAPER
from nnzbench.kernels.sputnik.sddmm import Strip, candidates, heuristic_strip, sddmm_plan
from nnzbench.kernels.sputnik.softmax import softmax_plan
from nnzbench.kernels.sputnik.spmm import Tile, labelled_tiles, spmm_plan
from nnzbench.matrices.formats import CSR
from nnzbench.plans.chain import Step, chain
from nnzbench.plans.plan import Array, Plan, Unsupported
from nnzbench.plans.shared_work import SharedWork
from nnzbench.problems.operands import Operands
from nnzbench.problems.problem import Problem

_STEPS_TRIED = 4
"""Strips and tiles tried of each kind: the heuristic's and the first other candidates."""


def attention_plan(
    mask: CSR, qkv: tuple[Array, Array, Array], strip: Strip, tile: Tile, label: str, shared: SharedWork
) -> Plan:
    """The plan of one choice of strip and tile; `qkv` are (m, d), (k, d), (k, d), the factor of scores in the first.

    All float32 or all float16; scores and weights are stored in that type, and all sums are fp32. `shared` is what
    plans of one mask share. Raises `Unsupported` where the mask is empty.
    """
    if mask.nnz == 0:
        raise Unsupported("the mask has no positions")
    q, keys, v = qkv
    unset = mask.with_values(np.zeros(mask.nnz, dtype=q.dtype))
    common = {"indices": "indices"}
    scores = {**common, "a": "q", "b": "keys", "d": "scores"}
    context = {**common, "values": "weights", "b": "v", "c": "context"}
    return chain(
        "_".join(filter(None, (label, strip.name, tile.name))),
        (
            Step(sddmm_plan(unset, q, keys, strip, shared=shared), scores),
            Step(softmax_plan(unset, items=32), {"x": "scores", "y": "weights"}),
            Step(spmm_plan(unset, v, tile, shared=shared), context),
        ),
    )


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
    tiles = [tile for tile, _ in labelled_tiles(features, size)][:_STEPS_TRIED]
    shared = SharedWork()
    for strip in strips:
        for tile in tiles:
            label = "heuristic" if (strip, tile) == (strips[0], tiles[0]) else ""
            yield attention_plan(operands.sparse, (q, keys, v), strip, tile, label, shared)
