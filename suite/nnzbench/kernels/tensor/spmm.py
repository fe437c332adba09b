"""Kernels `tensor_spmm` and `tensor_spmm_tf32`: A is loaded sparse, expanded in registers, and multiplied there."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from nnzbench.core.architectures import architecture, block_shared_bytes, sm_count
from nnzbench.core.plan import Arg, Array, Launch, Plan, SharedWork, Unsupported, from_bf16, plans_that_fit
from nnzbench.core.tiles import TileConfiguration
from nnzbench.data.matrices.formats import CSR, prefix_sums
from nnzbench.data.problems.operands import F8_SCALE, Operands
from nnzbench.data.problems.problem import ITEM_BYTES, Problem
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.rows import entries_of, power_of_two_at_least
from nnzbench.kernels.tensor.strips import (
    DEALT_FORMS,
    FORMS,
    FP8_FORMS,
    MOST_BYTES,
    STEP_COLUMNS,
    STRIP_ROWS,
    Form,
    Strips,
    chunk_columns,
    pack,
    require_room,
    stored_dense,
    stored_weights,
    strip_count,
)

_PANEL_COST = 24
"""Columns that take as long as what each panel costs beside its columns: gathered ones and waiting for copies."""
_SLICE_COST = 128
"""Columns that take as long as what each slice adds."""
_ORDERED_COLUMNS = 64
"""Columns per block from which `_cost` tells the likeliest shape better than a fixed order (five tables, one H200)."""
_SHARED_COLUMNS = 32
"""Columns per block from which the last warp to arrive should not add all slices of K by itself (one H200)."""
_FEW_COLUMNS, _MANY_SLICES = 16, 8
"""Columns per block at which that depends on the slices, and how many are many (one H200)."""
_WIDE_COLUMNS = 32
"""Columns per block from which warps multiply four together, where they can (one H200)."""
_PAIRS_DENSITY = 0.15
"""Below which dense tiles of neighbours are seldom faster (one H200)."""
_OTHER_SHARED = 2 << 10
"""Of a multiprocessor's shared memory what a block takes beside its dynamic part: barriers, the system's own."""
_LEAST_STAGES, _MOST_STAGES = 2, 4
_SHAPED_FOR = 227 << 10
"""Shared memory of the blocks that the shapes were measured with."""


@dataclass(frozen=True)
class TensorTiling(TileConfiguration):
    """Compile-time shape of `tensor_spmm.cu`, whose header explains the defines of the same names, and the slices."""

    DEFINES: ClassVar = {"slices": "", "separate": "", "form": "", "dealt": ""}
    block_n: int
    warps: int
    map_words: int
    stages: int
    panel_k: int
    panels: int
    blocks: int
    """Per multiprocessor."""
    slices: int
    """Of K, each with blocks of its own."""
    separate: bool = False
    wide: bool = False
    bulk: bool = True
    ahead: int = 4
    tf32: bool = False
    form: Form = "words"
    early: bool = False
    """Each warp's first chunk from a place that it need not look up."""
    spread: bool = False
    """The warps of a strip share the adding of slices, where all blocks run at once."""
    dealt: bool = False
    """Packed words lie so that lanes seldom meet in a bank; of form "words" in 16-bit types."""
    fp8: bool = False
    """Values are e4m3, B and C fp16."""

    @property
    def element_bytes(self) -> int:
        return 4 if self.tf32 else 2

    @property
    def sums(self) -> int:
        return STRIP_ROWS // 16 * (self.block_n // 8)

    @property
    def parts(self) -> int:
        """Counters of arrived warps that a strip has."""
        return self.sums if self.spread else 1

    @property
    def chunk_columns(self) -> int:
        return chunk_columns(self.map_words, self.packed_form)

    @property
    def packed_form(self) -> Form:
        return "tf32" if self.tf32 else self.form

    @property
    def shortest_panel(self) -> int:
        """Whole chunks, and of its rows' pieces of 16 bytes each thread copies one at least."""
        return max(self.chunk_columns, 32 * self.warps // (self.block_n * self.element_bytes // 16))

    def packed(self, matrix: CSR, shared: SharedWork, most_bytes: int = MOST_BYTES) -> Strips:
        """The matrix packed for this tiling, once for all tilings and problems that need the same.

        Raises `Unsupported` where a chunk has more than `most_bytes`.
        """
        sizes, form, how = (self.map_words, self.panel_k), self.packed_form, (self.dealt, self.fp8)
        multiple = self.warps if self.wide else 1

        def made() -> Strips:
            values = stored_weights(matrix.values, "f8" if self.fp8 else form)
            return pack(matrix.with_values(values), *sizes, multiple, form, *how, most_bytes)

        key = ("tensor_spmm", *sizes, strip_count(matrix.m, multiple), form, *how)
        packed = shared.once_for(matrix, key, made)
        require_room(packed.slot_bytes, most_bytes)
        return packed

    def ring_bytes(self, slot_bytes: int) -> int:
        """Dynamic shared memory per block: B's panels, every warp's ring of slots, and room to align them."""
        rings = self.panels * self.panel_k * self.block_n * self.element_bytes + self.warps * self.stages * slot_bytes
        return rings + (1024 if self.wide else 128)

    @property
    def name(self) -> str:
        text = f"n{self.block_n}_m{STRIP_ROWS * self.warps}_k{self.chunk_columns}.{self.stages}"
        text += f"_p{self.panel_k}.{self.panels}_b{self.blocks}_s{self.slices}"
        text += "_e4m3" * self.fp8 + f"_{self.form}" * (self.form != "words") + "_add" * self.separate
        return text + "_wide" * self.wide + "_early" * self.early + "_spread" * self.spread + "_dealt" * self.dealt


class Shape(NamedTuple):
    """What tilings are made of: fields of `TensorTiling`, `panel_k` being the most that a panel may have."""

    block_n: int
    warps: int
    map_words: int
    panel_k: int
    panels: int
    blocks: int
    form: Form = "words"
    early: bool = False
    """Whether its first tiling is also tried `early`."""


# by columns at most, the likeliest first, the last one for small matrices and architectures with little shared memory
_SHAPES = {
    8: (
        Shape(8, 8, 2, 1024, 2, 2, early=True), Shape(8, 8, 2, 1024, 2, 2, "bitmap", early=True),
        Shape(8, 8, 1, 1024, 2, 2, "bitmap"), Shape(8, 8, 4, 1024, 2, 2, "halves"), Shape(8, 8, 1, 1024, 2, 2),
        Shape(8, 8, 2, 1024, 2, 2, "halves"), Shape(8, 4, 1, 512, 2, 1),
    ),
    16: (
        Shape(16, 8, 1, 1024, 2, 2, early=True), Shape(16, 8, 1, 1024, 2, 2, "bitmap", early=True),
        Shape(16, 8, 2, 512, 2, 2, "bitmap"), Shape(16, 8, 2, 1024, 2, 2, "halves"), Shape(16, 8, 2, 512, 2, 2),
        Shape(16, 8, 1, 512, 2, 2), Shape(16, 4, 1, 256, 2, 1),
    ),
    32: (
        Shape(32, 8, 1, 512, 2, 2), Shape(32, 16, 2, 512, 2, 1), Shape(32, 16, 1, 512, 2, 1),
        Shape(32, 8, 1, 512, 2, 2, "bitmap"), Shape(32, 16, 1, 512, 2, 1, "bitmap"), Shape(32, 4, 1, 256, 2, 1),
    ),
    64: (
        Shape(64, 8, 2, 256, 2, 1, "pairs"), Shape(64, 8, 2, 512, 2, 1), Shape(64, 8, 1, 512, 2, 1),
        Shape(64, 4, 1, 128, 2, 1),
    ),
    128: (
        Shape(128, 8, 2, 256, 2, 1, "pairs"), Shape(128, 8, 2, 256, 2, 1), Shape(64, 16, 1, 512, 2, 1),
        Shape(128, 8, 1, 256, 2, 1), Shape(128, 4, 1, 128, 2, 1),
    ),
}  # fmt: skip
_TF32_SHAPES = {
    8: (Shape(8, 8, 4, 512, 2, 2, early=True), Shape(8, 4, 2, 256, 2, 1)),
    16: (Shape(16, 8, 4, 256, 2, 2, early=True), Shape(16, 4, 2, 128, 2, 1)),
    32: (Shape(32, 8, 4, 128, 2, 2, early=True), Shape(32, 16, 4, 256, 2, 1, early=True), Shape(32, 4, 2, 128, 2, 1)),
    64: (Shape(64, 8, 4, 128, 2, 1, early=True), Shape(64, 4, 1, 64, 2, 1)),
}
_NARROW = Shape(32, 4, 1, 512, 2, 2)
"""For more columns than 64, too, where a matrix is so small that blocks are few: with slices of K, and without any."""
_SMALL = 1 << 22
"""Weights of such a matrix at most."""


def _panel_columns(k: int, slices: int, shortest: int, longest: int) -> int:
    """The panel under which the slice with most panels has the fewest columns: a multiple of the shortest."""

    def cost(columns: int) -> tuple[int, int]:
        panels = -(-k // columns)
        most = -(-panels // min(slices, panels))
        return most * (columns + _PANEL_COST), -columns

    return min(range(shortest, longest + 1, shortest), key=cost)


def _row_blocks(tiling: TensorTiling, m: int, n: int) -> int:
    """Blocks of one slice."""
    return max(1, -(-m // (STRIP_ROWS * tiling.warps)) * -(-n // tiling.block_n))


def _cost(tiling: TensorTiling, m: int, k: int, n: int, arch: str) -> float:
    """What a tiling is expected to take, in columns that a warp goes through beside another one."""
    waves = -(-_row_blocks(tiling, m, n) * tiling.slices // (sm_count(arch) * tiling.blocks))
    panel = tiling.panel_k + _PANEL_COST * (tiling.form != "pairs")  # nothing is gathered there
    columns = -(-max(1, -(-k // tiling.panel_k)) // tiling.slices) * panel
    return waves * columns * (1 + tiling.warps * tiling.blocks / 2) + _SLICE_COST * tiling.slices


def _with_room(tiling: TensorTiling, matrix: CSR, block_bytes: int) -> TensorTiling:
    """The tiling with panels as long as fit beside its rings where blocks have less memory than shapes were measured
    with: of as many blocks, else of one, with a single panel, and with no more than 8 warps. Unchanged if none fits."""
    if block_bytes >= _SHAPED_FOR:
        return tiling
    slot_bytes = _slot_bytes(tiling, matrix.nnz / max(1, matrix.m * matrix.k))
    of = tiling.blocks, tiling.panels, tiling.warps
    for blocks, panels, warps in (of, (1, *of[1:]), (1, 1, of[2]), (1, 1, min(8, of[2]))):
        one = replace(tiling, blocks=blocks, panels=panels, warps=warps, stages=_LEAST_STAGES, panel_k=0)
        room = block_bytes // blocks - _OTHER_SHARED - one.ring_bytes(slot_bytes)
        longest = min(tiling.panel_k, room // (panels * one.block_n * one.element_bytes))
        if longest >= one.shortest_panel:
            return replace(one, stages=0, panel_k=longest)
    return tiling


def _of_shape(shape: Shape, n: int, matrix: CSR, arch: str, math: str, slices: int | None = None) -> list[TensorTiling]:
    """The tilings of one shape, without stages, the likelier first, of at most so many slices.

    All blocks of a tiling with slices run at once.
    """
    tf32, fp8 = math == "tf32", math == "f8"
    if fp8 and shape.form not in FP8_FORMS:
        return []
    dealt = shape.form in DEALT_FORMS and not (tf32 or fp8)
    known = {"stages": 0, "slices": 1, "tf32": tf32, "fp8": fp8, "early": False, "dealt": dealt}
    tiling = _with_room(TensorTiling(**{**shape._asdict(), **known}), matrix, block_shared_bytes(arch))
    if tiling.panel_k < tiling.shortest_panel:
        return []
    most = slices or max(1, sm_count(arch) * tiling.blocks // _row_blocks(tiling, matrix.m, n))
    columns = _panel_columns(matrix.k, most, tiling.shortest_panel, tiling.panel_k)
    last = replace(tiling, panel_k=columns, slices=min(most, max(1, -(-matrix.k // columns))))
    if last.slices == 1:
        return [last]
    separate = replace(last, separate=True)
    if shape.block_n >= _SHARED_COLUMNS:
        spread = replace(last, spread=True)
        return [spread] if shape.form == "pairs" else [spread, separate]
    if shape.block_n == _FEW_COLUMNS and last.slices >= _MANY_SLICES and not tf32:
        return [replace(last, spread=True), separate, last]
    return [last, separate] if tf32 else [last]


def tilings(problem: Problem, matrix: CSR, arch: str, math: str = "") -> list[TensorTiling]:
    """Tilings worth trying, without stages, the likeliest first; `math` where it is not the problem's type."""
    math = math or problem.dtype
    shapes = _TF32_SHAPES if math == "tf32" else _SHAPES
    known = architecture(arch)
    hopper, bulk = "wgmma" in known.accelerated and math != "tf32", known.has("bulk_copy")
    given = shapes[min(max(shapes), max(min(shapes), power_of_two_at_least(problem.n)))]
    able = [shape for shape in given if hopper or shape.form != "pairs"]
    of_shapes = [(shape, _of_shape(shape, problem.n, matrix, arch, math)) for shape in able]
    of_shapes = [(shape, some) for shape, some in of_shapes if some]
    if min(shape.block_n for shape in given) >= _ORDERED_COLUMNS:
        late = "pairs" if matrix.nnz < _PAIRS_DENSITY * matrix.m * matrix.k else ""
        of_shapes.sort(key=lambda one: (one[0].form == late, _cost(one[1][0], matrix.m, matrix.k, problem.n, arch)))
    if given is _SHAPES[max(_SHAPES)] and matrix.m * matrix.k <= _SMALL:
        narrow = (_of_shape(_NARROW, problem.n, matrix, arch, math, slices) for slices in (1, None))
        of_shapes += [(_NARROW, some) for some in narrow]
    found: dict[TensorTiling, None] = {}
    again: list[TensorTiling] = []  # seldom faster: behind all others, but of FP8, where starting is more of the time
    for shape, some in of_shapes:
        wide = hopper and shape.block_n >= _WIDE_COLUMNS
        some = [replace(tiling, wide=wide, bulk=bulk) for tiling in some]
        found |= dict.fromkeys(some)
        if shape.early:
            again.append(replace(some[0], early=True))
    return [*again, *found] if math == "f8" else [*found, *again]


_STAGES = re.compile(r"\.\d+(?=_p)")


def make_plan(problem: Problem, operands: Operands, tiling: TensorTiling, shared: SharedWork | None = None) -> Plan:
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
            **({"PAIRS": 1} if tiling.form == "pairs" else {}),
            **({} if tiling.tf32 else {"TOKENS": 0}),
        },
        shared_bytes=tiling.ring_bytes(packed.slot_bytes),
        then=then,
        math="tf32" if tiling.tf32 else "f8" if tiling.fp8 else "",
        generate_ms=elapsed(),
        features="a" if tiling.wide else "",
        unpermute=from_bf16 if problem.dtype == "bf16" else None,
    )


def plans(
    problem: Problem, operands: Operands, arch: str, choices: Iterable[TensorTiling], variant: str = ""
) -> Iterator[Plan]:
    """The plan of each tiling whose rings fit in shared memory, or of those that may be a `variant`'s: but for its
    stages, which follow from the weights. Raises `Unsupported` where none does."""
    shared = SharedWork()
    if variant:
        choices = [one for one in choices if _STAGES.sub("", one.name) == _STAGES.sub("", variant)]

    def make(tiling: TensorTiling) -> Plan:
        room = block_shared_bytes(arch) // tiling.blocks - _OTHER_SHARED - tiling.ring_bytes(0)
        packed = tiling.packed(operands.sparse, shared, room // (_LEAST_STAGES * tiling.warps))
        stages = room // (tiling.warps * packed.slot_bytes)
        return make_plan(problem, operands, replace(tiling, stages=min(stages, _MOST_STAGES)), shared)

    yield from plans_that_fit(choices, make, "no tiling")


_PAIRED = 8
"""Rows of gates before as many of what they let through, of the 16 that a tile of sums has."""


def gated(problem: Problem, operands: Operands, arch: str, variant: str, factor: float) -> Iterator[Plan]:
    """The plan of a product whose first half of rows are gates, with SwiGLU of `factor` times its rows as the result:
    that of the tiling of the product's own `variant`. Raises `Unsupported` where there is none."""
    half = operands.sparse.m // 2
    sparse = paired(operands.sparse)
    whole, made = replace(problem, m=sparse.m), replace(operands, sparse=sparse)
    for plan in plans(whole, made, arch, tilings(whole, sparse, arch), variant):
        first, *then = (replace(one, args=(half, *one.args[1:])) for one in plan.launches)
        scale = factor * math.prod(arg for arg in first.args if isinstance(arg, float))
        first = replace(first, args=(*(arg for arg in first.args if not isinstance(arg, float)), float(scale)))
        buffers = {**plan.buffers, plan.output: plan.buffers[plan.output][:half]}
        yield replace(plan, defines={**plan.defines, "SWIGLU": 1}, buffers=buffers, launches=(first, *then))


def paired(matrix: CSR) -> CSR:
    """The matrix with rows as `SWIGLU` of `tensor_spmm.cu` has them, out of gates above as many of what they let
    through; those that fill up the last 16 are empty."""
    half = np.arange(matrix.m // 2)
    gates = half // _PAIRED * 2 * _PAIRED + half % _PAIRED
    place = np.concatenate([gates, gates + _PAIRED])
    lengths = np.zeros(-(-half.size // _PAIRED) * 2 * _PAIRED, dtype=np.int64)
    lengths[place] = matrix.row_lengths
    at = entries_of(matrix, np.argsort(place))
    return CSR(lengths.size, matrix.k, prefix_sums(lengths).astype(np.int32), matrix.indices[at], matrix.values[at])


_FEWEST_STEPS = 1e-4
_STEP_WEIGHTS = STRIP_ROWS * STEP_COLUMNS
_STEP_BYTES: Mapping[Form, int] = {"words": 32 * (4 + 1), "halves": 32 * (4 + 2), "bitmap": 32 * 4}
"""Of each lane its selection, and a bit per register, or per element of one; or its bitmaps."""
_DEVIATIONS = 4.5
"""By which the fullest of so many chunks is above their average."""
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


def _slot_bytes(tiling: TensorTiling, density: float) -> int:
    """Of the largest of some ten thousand chunks, where as many weights are nonzeros everywhere."""
    weights, one = STRIP_ROWS * tiling.chunk_columns, 1 if tiling.fp8 else tiling.element_bytes
    if tiling.tf32:
        entries, share, heads = weights, density, weights // 8
    else:
        heads = weights // _STEP_WEIGHTS * _STEP_BYTES[tiling.form]
        words = tiling.form == "words"
        entries, share, one = (weights // 4, 1 - (1 - density) ** 4, 2 * one) if words else (weights, density, one)
    most = entries * share + _DEVIATIONS * math.sqrt(entries * share * (1 - share))
    return math.ceil(one * most) + heads + _CHUNK_BYTES


def structure_bytes(problem: Problem, nnz: int) -> int:
    """Bytes of the packed matrix beyond its nonzeros' values, in the smallest of its forms."""
    weights = problem.m * problem.k
    if weights == 0:
        return 0
    value_bytes = ITEM_BYTES[problem.dtype]
    forms = FORMS if value_bytes > 1 else FP8_FORMS
    least = min(bytes_per_weight(nnz / weights, form, value_bytes) for form in forms)
    return round(weights * least) - value_bytes * nnz


@kernel("nnzbench", "spmm", "f16 bf16 f8", About("own", structure_bytes=structure_bytes, rank=135), by_name=True)
def tensor_spmm(problem: Problem, operands: Operands, arch: str, variant: str = "") -> Iterator[Plan]:
    """Own SpMM on tensor cores for matrices without structure: one plan per tiling whose rings fit in shared memory.

    Of FP8 A's values alone are kept as e4m3; B is fp16.

    Raises `Unsupported` before sm_80, whose tensor cores have no 2:4 instruction, and where none fits.
    """
    if not architecture(arch).has("mma_sparse"):
        raise Unsupported(f"tensor cores of {arch} do not multiply 2:4 tiles")
    yield from plans(problem, operands, arch, tilings(problem, operands.sparse, arch), variant)


def tf32_structure_bytes(problem: Problem, nnz: int) -> int:
    """A bit an element, and of 32 x 128 elements 64 bytes where lanes' values start and 4 where the chunk does."""
    return problem.m * problem.k // 8 + 68 * -(-problem.m // STRIP_ROWS) * -(-problem.k // 128)


_TF32 = About("own", maths=frozenset({"tf32"}), structure_bytes=tf32_structure_bytes, rank=136)


@kernel("nnzbench", "spmm", "f32", _TF32, by_name=True)
def tensor_spmm_tf32(problem: Problem, operands: Operands, arch: str, variant: str = "") -> Iterator[Plan]:
    """Own SpMM on tensor cores for fp32 matrices without structure; its rows are of class `tf32`.

    Raises `Unsupported` before sm_80, whose tensor cores have no TF32, and where no tiling's rings fit.
    """
    if not architecture(arch).has("mma_tf32"):
        raise Unsupported(f"tensor cores of {arch} do not multiply in TF32")
    yield from plans(problem, operands, arch, tilings(problem, operands.sparse, arch, "tf32"), variant)
