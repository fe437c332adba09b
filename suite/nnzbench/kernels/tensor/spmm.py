"""Kernels `tensor_spmm` and `tensor_spmm_tf32`: A is loaded sparse, expanded in registers, and multiplied there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.tensor.spmm_tilings import Tiling, tilings
from nnzbench.kernels.tensor.strips import FORMS, FP8_FORMS, STEP_COLUMNS, STRIP_ROWS, Form, stored_dense
from nnzbench.plans.architectures import architecture, block_shared_bytes
from nnzbench.plans.chain import SharedWork
from nnzbench.plans.plan import Arg, Array, Launch, Plan, Unsupported, from_bf16, plans_that_fit
from nnzbench.problems.operands import F8_SCALE, Operands
from nnzbench.problems.problem import ITEM_BYTES, Problem

_OTHER_SHARED = 2 << 10
"""Of a multiprocessor's shared memory what a block takes beside its dynamic part: barriers, the system's own."""
_LEAST_STAGES, _MOST_STAGES = 2, 4


def make_plan(problem: Problem, operands: Operands, tiling: Tiling, shared: SharedWork | None = None) -> Plan:
    """The plan of one tiling for `problem`.

    `operands.dense["b"]` is (k, n), in fp16, in fp32 rounded to bf16, of FP8 in fp32 that fp16 holds exactly, or under
    TF32 in fp32 as it is. `shared` is what the problem's plans share.
    """
    shared = shared or SharedWork()
    elapsed = shared.timer()
    packed = tiling.packed(operands.sparse, shared)
    if tiling.early and (tiling.slices > packed.panels or tiling.slices * packed.panels >= 1 << 31):
        raise Unsupported(f"{tiling} has {tiling.slices} slices for {packed.panels} panels")
    dense = operands.dense["b"]
    b = dense if tiling.tf32 else shared.once("b", lambda: stored_dense(dense, problem.dtype))
    tiles = -(-problem.n // tiling.block_n)
    sums = tiles * packed.strips * STRIP_ROWS * tiling.block_n * tiling.slices if tiling.slices > 1 else 0
    buffers: dict[str, Array] = {
        "panel_chunks": packed.panel_chunks,
        "starts": packed.slice_starts(tiling.slices),
        "offsets": packed.offsets,
        "stream": packed.stream,
        "b": b,
        "partial": np.zeros(max(sums, 4), dtype=np.float32),
        "arrived": np.zeros(max(tiles * packed.strips * tiling.parts, 1), dtype=np.int32),
        "c": np.empty((problem.m, problem.n), dtype=b.dtype),
    }
    sizes = (problem.m, problem.n, problem.k, packed.strips, packed.panels, packed.slot_bytes, int(tiling.separate))
    if tiling.early:
        buffers["heads"] = packed.first_chunks(tiling.slices)
    args: tuple[Arg, ...] = (*sizes, *buffers, 1 / F8_SCALE) if tiling.fp8 else sizes
    then: tuple[Launch, ...] = ()
    if tiling.separate and tiling.slices > 1:
        sums_tiles = tiles * packed.strips * tiling.sums
        add_args = (problem.m, problem.n, packed.strips, tiling.slices, sums_tiles, "partial", "c")
        then = (Launch("tensor_spmm_add", (-(-sums_tiles // 8), 1, 1), (256, 1, 1), add_args),)
    return tiling.plan(
        "tensor_spmm",
        (-(-packed.strips // tiling.warps), tiling.slices, tiles),
        args,
        buffers,
        "c",
        defines={
            "FILL": math.gcd(problem.n * tiling.element_bytes // 2, 8),
            "BF16": int(problem.dtype == "bf16"),
            "HALVES": int(tiling.form == "halves"),
            "BITMAP": int(tiling.form == "bitmap"),
            "BIAS": 0,
            **({} if tiling.tf32 else {"TOKENS": 0}),
        },
        shared_bytes=tiling.ring_bytes(packed.slot_bytes),
        then=then,
        math="tf32" if tiling.tf32 else "f8" if tiling.fp8 else "",
        generate_ms=elapsed(),
        features="a" if tiling.wide else "",
        unpermute=from_bf16 if problem.dtype == "bf16" else None,
    )


def plans(problem: Problem, operands: Operands, arch: str, choices: Iterable[Tiling]) -> Iterator[Plan]:
    """The plan of each tiling whose rings fit in shared memory. Raises `Unsupported` where none does."""
    shared = SharedWork()

    def make(tiling: Tiling) -> Plan:
        room = block_shared_bytes(arch) // tiling.blocks - _OTHER_SHARED - tiling.ring_bytes(0)
        packed = tiling.packed(operands.sparse, shared, room // (_LEAST_STAGES * tiling.warps))
        stages = room // (tiling.warps * packed.slot_bytes)
        return make_plan(problem, operands, replace(tiling, stages=min(stages, _MOST_STAGES)), shared)

    yield from plans_that_fit(choices, make, "no tiling")


_FEWEST_STEPS = 1e-4
_STEP_WEIGHTS = STRIP_ROWS * STEP_COLUMNS
_STEP_BYTES: Mapping[Form, int] = {"words": 32 * (4 + 1), "halves": 32 * (4 + 2), "bitmap": 32 * 4}
"""Of each lane its selection, and a bit per register, or per element of one; or its bitmaps."""
_CHUNK_STEPS = 8
_CHUNK_BYTES = 32 * 2
"""Of each lane where its words start."""


def _rounds(density: float) -> Iterator[tuple[float, float]]:
    """Steps of each round per step of columns as they come, and the share of their elements that are there.

    A group of four keeps two. One column is left over where one will do for all rows of a strip with three: it is in
    each of them, and no row has four; else two are. The next round has each such column of a strip once.
    """
    steps = 1.0
    while steps > _FEWEST_STEPS:
        yield steps, density
        three, four = density**3 * (1 - density), density**4  # of one row, each of four such patterns
        two = 1 - 4 * three - four
        # by how many of the four columns would do for all rows, each alone
        one_does = sum(-math.comb(4, n) * (-1) ** n * (two + (4 - n) * three) ** STRIP_ROWS for n in range(1, 5))
        used = (2 - two**STRIP_ROWS - one_does) / 4
        steps *= used
        density = (three + four / 2) / used if used > 0 else 0.0


def words_per_weight(density: float) -> float:
    """Words of two neighbouring elements that lanes take from their queues, per weight, zeros counted."""
    return sum(steps * (1 - (1 - share) ** 4) / 4 for steps, share in _rounds(density))


def bytes_per_weight(density: float, form: Form, value_bytes: int = 2) -> float:
    """Bytes of the packed matrix per weight, zeros counted: entries, bits, selections, starts, and gathered columns."""
    steps = sum(steps for steps, _ in _rounds(density))
    per_step = _STEP_BYTES[form] + _CHUNK_BYTES / _CHUNK_STEPS
    entries = value_bytes * (2 * words_per_weight(density) if form == "words" else density)
    return entries + (steps * per_step + (steps - 1) * 2 * STEP_COLUMNS) / _STEP_WEIGHTS


def structure_bytes(problem: Problem, nnz: int) -> int:
    """Bytes of the packed matrix beyond its nonzeros' values, in the smallest of its forms."""
    weights = problem.m * problem.k
    if weights == 0:
        return 0
    value_bytes = ITEM_BYTES[problem.dtype]
    forms = FORMS if value_bytes > 1 else FP8_FORMS
    least = min(bytes_per_weight(nnz / weights, form, value_bytes) for form in forms)
    return round(weights * least) - value_bytes * nnz


@kernel("nnzbench", "spmm", "f16 bf16 f8", About("own", structure_bytes=structure_bytes, rank=135))
def tensor_spmm(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Own SpMM on tensor cores for matrices without structure: one plan per tiling whose rings fit in shared memory.

    Of FP8 A's values alone are kept as e4m3; B is fp16.

    Raises `Unsupported` before sm_80, whose tensor cores have no 2:4 instruction, and where none fits.
    """
    if not architecture(arch).has("mma_sparse"):
        raise Unsupported(f"tensor cores of {arch} do not multiply 2:4 tiles")
    yield from plans(problem, operands, arch, tilings(problem, operands.sparse, arch))


def tf32_structure_bytes(problem: Problem, nnz: int) -> int:
    """A bit an element, and of 32 x 128 elements 64 bytes where lanes' values start and 4 where the chunk does."""
    return problem.m * problem.k // 8 + 68 * -(-problem.m // STRIP_ROWS) * -(-problem.k // 128)


_TF32 = About("own", maths=frozenset({"tf32"}), structure_bytes=tf32_structure_bytes, rank=136)


@kernel("nnzbench", "spmm", "f32", _TF32)
def tensor_spmm_tf32(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Own SpMM on tensor cores for fp32 matrices without structure; its rows are of class `tf32`.

    Raises `Unsupported` before sm_80, whose tensor cores have no TF32, and where no tiling's rings fit.
    """
    if not architecture(arch).has("mma_tf32"):
        raise Unsupported(f"tensor cores of {arch} do not multiply in TF32")
    yield from plans(problem, operands, arch, tilings(problem, operands.sparse, arch, "tf32"))
