"""Cases that every kernel of matrices has to pass, for test_conformance.py: a kernel with its tiling, as each form of
its program wants one, and awkward sizes, types, sanitizers and schedules. Not a test file.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from kernel_problems import coded_operands, sampled, v_two_m, whole
from on_cpu import execute, matrix, spmm_operands, spmm_problem

from nnzbench.core.plan import Array, Plan
from nnzbench.data.matrices import prune
from nnzbench.data.matrices.encodings import Coded
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.matrices.prune import BalancedMatrix
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels import aspt, balanced, eie, merge_spmm, row_stream
from nnzbench.kernels.registry import Kernel, kernels
from nnzbench.kernels.ring import sddmm as ring_sddmm
from nnzbench.kernels.ring import spmm as ring
from nnzbench.kernels.sputnik import sddmm as sputnik_sddmm
from nnzbench.kernels.sputnik import spmm as sputnik
from nnzbench.kernels.tensor import macko, spmv, venom
from nnzbench.kernels.tensor import spmm as tensor
from nnzbench.kernels.tensor.spmm import TensorTiling as Tensor


def _row_stream(problem: Problem, data: Operands, how: tuple[int, ...]) -> Plan:
    longest = int(data.sparse.row_lengths.max(initial=0))
    return row_stream.make_plan(problem, data, row_stream.fit(*how, longest))


def _of_paper(name: str) -> Callable[[Problem, Operands, int], Plan]:
    """The plan that shares k out to so many parts."""

    def make(problem: Problem, data: Operands, parts: int) -> Plan:
        kernel = kernels()[name]
        assert isinstance(kernel, Kernel)
        return next(one for one in kernel.plans(problem, data, "sm_90") if one.variant.endswith(f"_s{parts}"))

    return make


def _balanced(problem: Problem, data: Operands, how: tuple[int, Any, int | None]) -> Plan:
    """Ranges, tiling and group of ranges; without a tiling the paper's mapping."""
    ranges, tiling, group = how
    held, x = BalancedMatrix.from_csr(data.sparse, ranges), data.dense["b"]
    if tiling is None:
        return balanced.paper_plan(held, x, "sm_80", 2)
    if isinstance(tiling, balanced.WideTiling):
        return balanced.wide_plan(held, x, tiling, "sm_80")
    group = group or balanced.group_of(held, x.shape[1], "sm_80")
    plan = balanced.rows_plan(held, balanced.pack_rows(held, group), x, tiling, "sm_80")
    assert plan is not None
    return plan


MAKE: dict[str, Callable[[Problem, Operands, Any], Plan]] = {
    "ring": ring.make_plan,
    "row_stream": _row_stream,
    "sputnik": lambda problem, data, how: sputnik.spmm_plan(data.sparse, data.dense["b"], how),
    "aspt": lambda problem, data, how: aspt.spmm_plan(data.sparse, data.dense["b"]),
    "merge": lambda problem, data, how: merge_spmm.merge_plan(data.sparse, data.dense["b"]),
    "row_split": lambda problem, data, how: merge_spmm.row_split_plan(data.sparse, data.dense["b"]),
    "eie": lambda problem, data, how: eie.make_plan(Coded.of(data.sparse), data.dense["b"], how, "sm_80"),
    "balanced": _balanced,
    "tensor_spmm": tensor.make_plan,
    "delta_spmv": lambda problem, data, how: spmv.make_plan(
        problem, data, "sm_90", how[0], 2, None, spmv.Form(*how[1:])
    ),
    "macko": lambda problem, data, how: next(macko.macko.plans(problem, data, "sm_90")),
    "venom": lambda problem, data, how: venom.make_plan(problem, data, how[0], venom.VenomTiling(*how[1:])),
    "flash_llm": _of_paper("flash_llm"),
    "spinfer": _of_paper("spinfer"),
    "ring_sddmm": ring_sddmm.make_plan,
    "sputnik_sddmm": lambda problem, data, how: sputnik_sddmm.sddmm_plan(data.sparse, *data.dense.values(), how),
}
TENSOR = ("tensor_spmm", "delta_spmv", "macko", "venom", "flash_llm", "spinfer")
"""In 16-bit types, with sums in an order of their own: tried with whole numbers, whose sums are exact."""


@dataclass(frozen=True)
class Case:
    """One plan of a kernel. `sizes` are those of the matrix and the columns of B, or the length of dot products."""

    kernel: str
    sizes: tuple[int, int, int]
    density: float
    how: Any = None
    dtype: str = "f32"
    build: str = "plain"
    order: str = "forward"
    rows: str = "some"
    """`some`: random with the last one empty and the middle one full; `none`: no nonzeros; `one`: the last alone."""

    def __str__(self) -> str:
        """Begins with the kernel: the planted mistakes name their tests so."""
        m, k, n = self.sizes
        how = getattr(self.how, "name", self.how)
        words = (self.kernel, f"{m}x{k}x{n}@{self.density:g}", how, self.dtype, self.rows, self.build, self.order)
        return "-".join(map(str, words))

    def operands(self) -> tuple[Problem, Operands]:
        """The problem and its operands."""
        m, k, n = self.sizes
        if self.kernel == "balanced":
            weights = np.random.default_rng(m + k).standard_normal((m, k), dtype=np.float32)
            data = spmm_operands(prune.balanced(weights, 1 - self.density, self.how[0]), n).cast(self.dtype)
            return spmm_problem(data), data
        if self.kernel == "venom" and self.rows == "some":
            sparse = v_two_m(m, k, *self.how[1::-1])
        elif self.rows == "some":
            sparse = matrix(m, k, self.density, empty=(m - 1,) if m > 1 else (), full=m // 2)
        else:
            dense = np.zeros((m, k), np.float32)
            dense[m - 1 :] = self.rows == "one"
            sparse = CSR.from_dense(dense)
        if "sddmm" in self.kernel:
            problem, data = sampled(sparse, n)
            return replace(problem, dtype=self.dtype), data.cast(self.dtype)
        if self.kernel in TENSOR:
            data = whole(sparse, n, self.dtype)
        elif self.kernel == "eie" and self.rows == "some":
            data = coded_operands(m, k, n, self.density, self.dtype, empty=(m - 1,) if m > 1 else (), full=m // 2)
        else:
            data = spmm_operands(sparse, n).cast(self.dtype)
        return spmm_problem(data, self.dtype), data

    def result(self, problem: Problem, data: Operands) -> tuple[Plan, Array]:
        """The plan and what it computes."""
        plan = MAKE[self.kernel](problem, data, self.how)
        return plan, execute(plan, self.build, self.order)


def cases(kernel: str, *some: tuple[Any, ...], **more: Any) -> list[Case]:
    """Of one kernel: sizes with the density at their end, and what follows in a `Case`."""
    return [Case(kernel, sizes[:3], sizes[3], *rest, **more) for sizes, *rest in some]


# lanes, columns per lane, warps, row sets, rows of B per chunk, window, ahead, stages
RING = (
    ring.RingSpmmTiling(8, 16, 8, 1, 16, 3, 2, 5),
    ring.RingSpmmTiling(4, 16, 4, 2, 32, 2, 1, 3),
    ring.RingSpmmTiling(4, 8, 4, 1, 16, 3, 2, 6, ksplit=2),
    ring.RingSpmmTiling(2, 16, 2, 1, 32, 2, 1, 4),
    ring.RingSpmmTiling(8, 4, 8, 1, 16, 1, 2, 3, ksplit=4),
    ring.RingSpmmTiling(16, 4, 4, 3, 24, 2, 1, 4),
    ring.RingSpmmTiling(32, 4, 4, 4, 16, 2, 2, 4),
    ring.RingSpmmTiling(4, 8, 8, 4, 16, 3, 2, 6, ksplit=4),
)
# edges of tiles and chunks, one column, one row, few and many nonzeros
SIZES = ((70, 130, 128, 0.1), (37, 65, 50, 0.2), (13, 64, 7, 0.5), (1, 300, 1, 0.1), (33, 40, 32, 1.0))
ORDERS = (("asan", "forward"), ("tsan", "forward"), ("plain", "random:5"))
CASES = cases("ring", *((one, RING[at + i]) for at, one in enumerate(SIZES) for i in (0, 2)))
CASES += cases("ring", *((one, RING[7 - at]) for at, one in enumerate(SIZES)))
CASES += cases("ring", *(((41, 90, 36, 0.05), one) for one in (*RING[:3], RING[-1])))
CASES += cases("ring", ((41, 90, 36, 0), RING[0]), rows="none")
CASES += cases("ring", *(((70, 150, 36, 0.2), RING[at], "f32", *how) for how in ORDERS for at in (1, 2, 7)))
# more warps than their sums have room for in a small ring
MANY_WARPS = ring.RingSpmmTiling(8, 8, 16, 2, 32, 2, 2, 2, ksplit=8)
CASES += cases("ring", ((40, 40, 64, 0.4), MANY_WARPS, "f32", "asan"))

# lanes, columns of a lane, entries of a piece, loads ahead
STREAM = {
    "f32": [(32, 4, 64, 8), (32, 2, 16, 4), (8, 2, 32, 4), (4, 4, 16, 16), (32, 1, 32, 16)],
    "f16": [(16, 8, 64, 8), (4, 8, 16, 16), (32, 4, 32, 16), (32, 2, 16, 4), (8, 1, 32, 16)],
}
HALF_SIZES = (*SIZES[1:4], (70, 130, 136, 0.1), (33, 40, 36, 1.0), (9, 50, 98, 0.2), (37, 65, 49, 0.2))
for dtype, some in STREAM.items():
    every = (*SIZES, (37, 65, 49, 0.2)) if dtype == "f32" else HALF_SIZES
    CASES += cases("row_stream", *((one, how) for one in every for how in some), dtype=dtype)
    CASES += cases("row_stream", *(((41, 190, 40, 0), some[at]) for at in (1, 4)), dtype=dtype, rows="none")
    CASES += cases("row_stream", *(((41, 190, 40, 0), some[at]) for at in (0, 1, 3, 4)), dtype=dtype, rows="one")
    CASES += cases(
        "row_stream", *(((37, 70, 40, 0.3), some[1], dtype, *how) for how in (*ORDERS, ("plain", "backward")))
    )
CASES += cases("row_stream", *(((11, 30, 7, 0.4), STREAM["f16"][3], "f16", build) for build in ("asan", "tsan")))

NARROW = sputnik.Tile(y=4, x=32, width=8, vector_b=4, ahead=8)
SCALAR = sputnik.Tile(y=2, x=16, width=16, vector_b=1, vector_a=4, ahead=8, prefetch=True, rows_fastest=True)
CASES += cases(
    "sputnik",
    ((1, 1, 8, 1.0), NARROW),
    ((1, 150, 36, 0.7), NARROW),
    ((37, 70, 100, 0.3), NARROW),
    ((6, 1, 12, 0.5), NARROW),
    ((5, 333, 68, 0.9), NARROW),
    *(((37, 70, n, 0.3), SCALAR) for n in (1, 7, 49, 100)),
    build="asan",
)
CASES += cases("sputnik", ((3, 5, 4, 0), NARROW), build="asan", rows="none")
CASES += cases(
    "sputnik", *(((9, 90, 36, 0.6), replace(NARROW, prefetch=ahead)) for ahead in (False, True)), build="tsan"
)

# one row, one column, an odd count of rows, K of many places, columns in several groups
CASES += cases(
    "eie",
    ((37, 203, 1, 0.15), eie.EieTiling(32, 4), "f32", "asan"),
    ((37, 203, 7, 0.15), eie.EieTiling(8, 4), "f32", "asan"),
    ((37, 203, 8, 0.15), eie.EieTiling(32, 4), "f16", "tsan"),
    ((1, 1, 1, 0.15), eie.EieTiling(32, 2)),
    ((3, 300, 2, 0.15), eie.EieTiling(16, 2, shifts=True), "f16"),
    ((65, 64, 16, 0.15), eie.EieTiling(8, 2)),
    ((33, 2000, 1, 0.15), eie.EieTiling(8, 2), "f16"),
    order="random:3",
)
CASES += cases("eie", ((5, 40, 1, 0), eie.EieTiling(32, 4)), rows="none")

QUEUE = balanced.RowsTiling("async", 2, 1, 3)
LOADS = balanced.RowsTiling("registers", 4, 1, 2)
BULK = balanced.RowsTiling("bulk", 2, 1, 3)
# kept 8, 10 and 13 (rows that share packs), 3, 2; k off the ranges; one row; few ranges; positions of two bytes
BALANCED = (
    ((37, 256 * 4, 1, 0.25), 32, None),
    ((37, 40 * 32, 2, 0.25), 32, LOADS),
    ((9, 52 * 32, 7, 0.25), 32, LOADS),
    ((1, 300, 8, 0.3), 32, LOADS),
    ((70, 333, 16, 0.2), 32, LOADS),
    ((33, 27, 3, 0.66), 9, LOADS),
    ((5, 2000, 1, 0.5), 3, LOADS),
    ((6, 64, 1, 0.5), 64, LOADS),
    ((7, 32 * 300, 1, 0.03), 32, None),
)
CASES += cases("balanced", *((one, (ranges, QUEUE, None)) for one, ranges, _ in BALANCED))
CASES += cases("balanced", *((one, (ranges, other, None)) for one, ranges, other in BALANCED))
WIDE = [balanced.WideTiling(*one) for one in ((8, 4, 2, 2), (32, 4, 2, 1), (16, 2, 2, 3), (8, 2, 2, 2))]
SHORT = ((37, 130, 66, 0.4), 32), ((13, 27, 49, 0.4), 9), ((5, 640, 24, 0.4), 32)
CASES += cases("balanced", *((one, (ranges, tiling, None)) for one, ranges in SHORT for tiling in WIDE[:3]))
CASES += cases(
    "balanced",
    ((21, 1024, 1, 0.5), (32, QUEUE, None), "f16"),
    ((21, 1024, 1, 0.5), (32, LOADS, None), "f16"),
    ((21, 1024, 8, 0.5), (32, QUEUE, None), "f16"),
    ((21, 1024, 8, 0.5), (32, None, None), "f16"),
    ((21, 64, 32, 0.5), (32, WIDE[0], None), "f16"),
    ((21, 64, 88, 0.5), (32, WIDE[0], None), "f16"),
    ((19, 4096, 4, 0.1), (32, QUEUE, 16)),  # X in several passes
    ((19, 4096, 4, 0.1), (32, QUEUE, 4)),
    ((19, 4096, 4, 0.1), (32, LOADS, 8), "f16"),
    ((9, 52 * 32, 7, 0.25), (32, BULK, 32), "f32", "asan", "backward"),
    ((37, 300, 1, 0.5), (15, BULK, 4), "f16", "tsan", "backward"),  # the last pass short of ranges
    ((7, 32 * 300, 2, 0.03), (32, replace(BULK, split=True), 8), "f32", "plain", "backward"),
    ((1001, 512, 2, 0.25), (32, replace(QUEUE, runs=4, chunk=2), None)),
    ((21, 1000, 2, 0.2), (32, QUEUE, 16), "f32", "plain", "backward"),
    ((21, 1000, 2, 0.2), (32, QUEUE, 16), "f32", "plain", "random:3"),
    ((21, 1000, 2, 0.2), (32, QUEUE, 16), "f32", "asan"),
    ((21, 1000, 2, 0.2), (32, QUEUE, 16), "f32", "tsan"),
    ((21, 1000, 2, 0.2), (32, None, None), "f32", "asan"),
    ((21, 1000, 2, 0.2), (32, LOADS, 8), "f32", "tsan"),
    ((21, 90, 50, 0.4), (32, WIDE[3], None), "f32", "asan"),
    ((21, 90, 50, 0.4), (32, WIDE[3], None), "f32", "tsan"),
)

# columns per block, warps, words of bits, stages, rows per panel, panels, blocks, slices
TILINGS = (
    Tensor(8, 4, 1, 3, 128, 2, 1, 2, bulk=False),
    Tensor(32, 4, 2, 2, 256, 2, 1, 1, wide=True),
    Tensor(32, 4, 1, 3, 128, 3, 1, 3, separate=True),
    Tensor(64, 4, 1, 2, 128, 2, 1, 2, wide=True, separate=True),
    Tensor(128, 4, 1, 2, 128, 2, 1, 2, wide=True),
    Tensor(128, 4, 2, 2, 256, 2, 1, 1, bulk=False),
    Tensor(8, 4, 4, 2, 256, 1, 1, 2, form="halves"),
    Tensor(32, 4, 2, 3, 128, 2, 1, 2, wide=True, form="halves"),
    Tensor(8, 4, 2, 2, 256, 1, 1, 2, form="bitmap"),
    Tensor(32, 4, 1, 3, 128, 2, 1, 2, wide=True, form="bitmap"),
    Tensor(8, 4, 1, 3, 128, 2, 1, 3, early=True, spread=True, dealt=True),
    Tensor(16, 4, 2, 2, 256, 2, 1, 2, bulk=False, form="halves", early=True),
    Tensor(32, 4, 2, 3, 256, 2, 1, 2, wide=True, early=True, spread=True, dealt=True),
    Tensor(128, 4, 1, 2, 128, 2, 1, 3, wide=True, early=True, spread=True),
    Tensor(8, 4, 2, 3, 256, 2, 1, 1, bulk=False, fp8=True),
    Tensor(16, 4, 1, 2, 128, 2, 1, 3, early=True, fp8=True),
    Tensor(32, 4, 1, 2, 128, 2, 1, 2, wide=True, fp8=True, separate=True),
    Tensor(128, 4, 2, 2, 128, 3, 1, 2, wide=True, form="pairs"),
    Tensor(64, 8, 1, 3, 128, 2, 1, 3, wide=True, form="pairs", dealt=True, spread=True),
    Tensor(32, 4, 2, 2, 128, 1, 1, 2, wide=True, form="pairs", early=True, separate=True),
)
TF32 = (
    Tensor(8, 4, 2, 2, 64, 2, 1, 2, bulk=False, tf32=True),
    Tensor(16, 4, 4, 3, 128, 2, 1, 1, tf32=True),
    Tensor(32, 4, 4, 2, 128, 2, 1, 3, separate=True, tf32=True),
    Tensor(64, 4, 1, 2, 64, 2, 1, 2, tf32=True),
    Tensor(32, 4, 2, 2, 64, 2, 1, 3, tf32=True, early=True, spread=True),
)
# edges of strips, steps and panels, one column, one row, copies of 2, 4, 8 and 16 bytes
TENSOR_CASES = (
    ((70, 300, 7, 0.1), 0), ((33, 520, 1, 0.2), 0), ((37, 65, 16, 0.3), 1), ((1, 300, 12, 0.5), 1),
    ((65, 390, 30, 0.25), 2), ((40, 129, 49, 0.2), 3), ((20, 257, 104, 0.4), 4), ((32, 64, 130, 1.0), 5),
    ((70, 520, 7, 0.3), 6), ((65, 390, 12, 0.6), 7), ((70, 520, 7, 0.3), 8), ((65, 390, 12, 0.6), 9),
    ((70, 390, 7, 0.2), 10), ((33, 520, 1, 0.2), 10), ((1, 300, 12, 0.5), 11), ((65, 700, 30, 0.25), 12),
    ((40, 390, 104, 0.3), 13), ((32, 640, 49, 1.0), 12), ((70, 520, 7, 0.3), 14), ((65, 390, 12, 0.6), 15),
    ((33, 300, 30, 1.0), 16), ((130, 700, 104, 0.3), 17), ((40, 129, 49, 1.0), 17), ((300, 390, 50, 0.2), 18),
    ((1, 300, 37, 0.5), 19), ((70, 390, 30, 0.3), 19), *(((41, 190, 16, 0.3), at) for at in (0, 1)),
)  # fmt: skip
CLEAN = ((0, 7, 300), (1, 16, 300), (2, 20, 300), (12, 30, 520), (15, 16, 300), (18, 50, 300), (19, 30, 300))


def tensor_dtype(tiling: Tensor) -> str:
    return "f8" if tiling.fp8 else "f32" if tiling.tf32 else "f16"


for sizes, at in TENSOR_CASES:
    CASES += cases("tensor_spmm", (sizes, TILINGS[at], tensor_dtype(TILINGS[at])))
for at, n, k in CLEAN:
    CASES += cases("tensor_spmm", *(((50, k, n, 0.35), TILINGS[at], tensor_dtype(TILINGS[at]), *how) for how in ORDERS))
CASES += cases("tensor_spmm", ((40, 200, 20, 0.3), TILINGS[3], "bf16"))
for rows in ("none", "one"):
    CASES += cases("tensor_spmm", *(((41, 190, 16, 0), TILINGS[at], "f16") for at in (0, 1)), rows=rows)
    CASES += cases("tensor_spmm", ((41, 190, 7, 0), TF32[0]), rows=rows)
TF32_CASES = ((0, (70, 300, 7, 0.1)), (0, (33, 520, 1, 0.2)), (1, (1, 300, 12, 0.5)), (2, (65, 390, 30, 0.25)))
TF32_CASES += ((3, (40, 129, 49, 0.2)), (3, (32, 64, 130, 1.0)), (4, (65, 390, 30, 0.25)))
CASES += cases("tensor_spmm", *((sizes, TF32[at]) for at, sizes in TF32_CASES))
CASES += cases("tensor_spmm", *(((50, 300, 7, 0.35), TF32[0], "f32", *how) for how in ORDERS))

# lanes: one row, steps beyond 32 columns, rows shorter than a chunk and of several rounds of all lanes
LANES = ((1, 300, 1, 0.5), (32,)), ((70, 1000, 1, 0.02), (1,)), ((33, 700, 1, 0.3), (4,)), ((300, 49, 1, 0.9), (2,))
LANES += (((41, 1100, 1, 0.95), (2, 3)), ((9, 7, 1, 0.3), (1,)))
FEW = ((70, 1001, 2, 0.02), (1,)), ((33, 4001, 3, 0.05), (4,)), ((300, 49, 4, 0.9), (2, 5, 8)), ((1, 301, 4, 0.5), (8,))
FORMS = ((4,), (4, 3), (8, 5, 8))
SHUFFLED = (("asan", "backward"), ("tsan", "forward"), ("plain", "random:5"))
CASES += cases("delta_spmv", *LANES, *FEW, dtype="f16")
CASES += cases("delta_spmv", *(((40, 600, n, 0.2), FORMS[n % 3], dtype) for n in (1, 2, 3) for dtype in ("bf16", "f8")))
CASES += cases(
    "delta_spmv",
    *(
        ((70, 331, n, 0.3), FORMS[(n + at) % 3], dtype, *how)
        for n in (1, 2, 3, 4)
        for dtype in ("f16", "f8")
        for at, how in enumerate(SHUFFLED)
    ),
)
# one row, rows that begin within eight entries or take several rounds, steps beyond 16 columns, more rows than a block
CASES += cases("macko", *((sizes,) for sizes, _ in LANES), dtype="f16")
CASES += cases("macko", *(((70, 331, 1, 0.3), None, "f16", *how) for how in SHUFFLED))
for rows in ("none", "one"):
    CASES += cases("macko", ((41, 900, 1, 0),), dtype="f16", rows=rows)
    CASES += cases("delta_spmv", *(((41, 900, n, 0), FORMS[n % 3], "f16") for n in (1, 2, 3)), rows=rows)
    for name, k in (("flash_llm", 128), ("spinfer", 128)):
        CASES += cases(name, ((256, k, 8, 0), 2 if rows == "none" else 1, "f16"), rows=rows)

# M; V, columns, rows and columns of a warp, stages: copies of 2, 4, 8 and 16 bytes, blocks and groups cut at the edges
VENOM = (
    ((150, 300, 33), (8, 64, 64, 32, 32, 3)), ((130, 203, 50), (10, 128, 64, 64, 64, 4)),
    ((1, 300, 12), (8, 64, 16, 32, 16, 4)), ((70, 90, 136), (16, 32, 128, 32, 64, 3)),
    ((64, 64, 8), (4, 64, 8, 32, 8, 2)), ((200, 520, 260), (16, 64, 256, 64, 64, 2)),
    ((33, 70, 1), (8, 32, 8, 32, 8, 3)), ((300, 331, 40), (8, 128, 32, 32, 32, 4)),
)  # fmt: skip
CASES += cases("venom", *(((*sizes, 0), how) for sizes, how in VENOM), dtype="f16")
CASES += cases("venom", *(((150, 331, n, 0), VENOM[0][1], "f16", *how) for n in (20, 33) for how in SHUFFLED))
CASES += cases("venom", ((41, 190, 16, 0), VENOM[2][1]), dtype="f16", rows="none")

# each form, k in one part, in equal ones and with a short last one
PARTS = {
    "flash_llm": (
        ((256, 64, 8, 0.45), 1), ((512, 320, 8, 0.2), 3), ((256, 192, 32, 0.3), 2), ((384, 128, 64, 0.4), 2),
        ((128, 128, 128, 0.3), 1), ((128, 64, 256, 0.2), 1),
    ),
    "spinfer": (
        ((64, 64, 8, 1.0), 1), ((128, 320, 8, 0.2), 3), ((192, 192, 32, 0.6), 2), ((64, 128, 64, 0.4), 2),
        ((128, 128, 128, 0.3), 1),
    ),
}  # fmt: skip
for name, forms in PARTS.items():
    CASES += cases(name, *forms, dtype="f16")
    CASES += cases(name, *(((256, 192, 8, 0.3), 2, "f16", *how) for how in SHUFFLED))

# lanes, floats per lane, warps, row sets, rows of B per chunk, window, ahead, stages; the last copies so far
# ahead that a warp must wait for the slowest to leave a chunk
RING_SDDMM = (
    ring_sddmm.RingSddmmTiling(8, 16, 4, 1, 16, 3, 2, 5),
    ring_sddmm.RingSddmmTiling(4, 8, 2, 2, 32, 2, 1, 4, drift=True, parts=2),
    ring_sddmm.RingSddmmTiling(8, 4, 4, 1, 16, 3, 2, 6, drift=True),
    ring_sddmm.RingSddmmTiling(16, 4, 4, 3, 24, 2, 1, 4, drift=True, parts=3),
    ring_sddmm.RingSddmmTiling(4, 16, 4, 1, 16, 1, 2, 3),
    ring_sddmm.RingSddmmTiling(32, 4, 2, 4, 16, 9, 9, 9, parts=1),
    ring_sddmm.RingSddmmTiling(8, 4, 4, 1, 16, 3, 4, 8, drift=True),
)
# edges of tiles, chunks and slices, one column, one row, dot products of length one
DOTS = (*SIZES[:4], (33, 40, 260, 1.0), (40, 1, 36, 0.5))


def fitted(tiling: ring_sddmm.RingSddmmTiling, columns: int) -> ring_sddmm.RingSddmmTiling:
    """`tiling` with fewer parts where the columns are too few."""
    return tiling if tiling.parts * tiling.block_k <= columns else replace(tiling, parts=1)


for at, sizes in enumerate(DOTS):
    CASES += cases("ring_sddmm", *((sizes, fitted(RING_SDDMM[(at + i) % 6], sizes[1])) for i in (0, 1)))
CASES += cases("ring_sddmm", *(((41, 190, 36, 0.05), one) for one in RING_SDDMM[:3]))
CASES += cases("ring_sddmm", ((9, 70, 32 * 33 + 4, 0.3), RING_SDDMM[2]))  # slices added up by several threads
for build, order in ORDERS:
    some = (6, 4) if build == "tsan" else (1, 2, 6, 4)
    CASES += cases("ring_sddmm", *(((40, 150, 36, 0.2), RING_SDDMM[at], "f32", build, order) for at in some))

VECTOR = sputnik_sddmm.Strip(items=16, width=8, vector=4, strips=4)
BY_COLUMNS = sputnik_sddmm.Strip(items=16, width=8, vector=4, strips=8, by_columns=True)
CASES += cases(
    "sputnik_sddmm",
    ((1, 1, 4, 1.0), VECTOR),
    ((1, 150, 32, 0.7), VECTOR),
    ((37, 70, 100, 0.3), VECTOR),
    ((37, 70, 7, 0.3), sputnik_sddmm.SCALAR),
    ((6, 19, 1, 0.5), sputnik_sddmm.SCALAR),
    ((37, 70, 100, 0.3), BY_COLUMNS),
    build="asan",
)
CASES += cases("sputnik_sddmm", ((9, 60, 36, 0.6), VECTOR), build="tsan")


ALONE = [
    *cases("ring", ((45, 290, 32, 0.1), RING[0])),
    *cases("row_stream", *(((45, 290, n, 0.1), STREAM[dtype][0], dtype) for dtype, n in (("f32", 32), ("f16", 31)))),
    *cases("sputnik", *(((45, 290, 36, 0.1), one) for one in (NARROW, SCALAR))),
    *cases("aspt", ((45, 290, 32, 0.1),)),
    *cases("merge", ((45, 290, 33, 0.1),)),
    *cases("row_split", ((45, 290, 33, 0.1),)),
    *cases("balanced", *(((8, 370, n, 0.2), (32, one, None)) for n, one in ((1, QUEUE), (1, LOADS), (1, None)))),
    *cases("balanced", ((8, 370, 40, 0.2), (32, balanced.WideTiling(8, 4, 2, 1), None))),
    *cases(
        "tensor_spmm",
        *(((45, 290, 11, 0.3), TILINGS[at], tensor_dtype(TILINGS[at])) for at in (0, 2, 3, 6, 8, 10, 14, 15, 17, 18)),
    ),
    *cases("tensor_spmm", ((45, 290, 11, 0.3), TF32[2])),
    *cases("delta_spmv", ((200, 700, 1, 0.02), (4,), "f16")),
]
