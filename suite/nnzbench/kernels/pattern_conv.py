"""Kernel `pattern_conv`: PatDNN's convolution by pattern-pruned 3x3 filters, on CUDA.

Niu et al.: "PatDNN: Achieving Real-Time DNN Execution on Mobile Devices with Pattern-based Weight Pruning", ASPLOS
2020. The paper's generated code is for processors and GPUs of phones, and its authors published none for CUDA: storage,
orders and what is eliminated are the paper's; which thread computes what is this project's. `pattern_conv.cu` has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nnzbench.core.architectures import architecture, block_shared_bytes, sm_count
from nnzbench.core.plan import Array, Int64s, Plan, SharedWork, Unsupported, plans_that_fit
from nnzbench.core.tiles import TileConfiguration
from nnzbench.data.matrices.encodings import Kernels, reordered, structure_bytes
from nnzbench.data.matrices.formats import MatrixError, prefix_sums
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.rows import convolved, first_of_each, vector_width

CANDIDATES = 10
"""Tilings that tuning tries."""
_ROWS = (2, 4, 7, 8, 14)
_PATTERN_SHIFT = 12
_PATTERNS = 8
"""Of a layer, where only their order of size counts."""
_ITEM = 4
"""Weights of a kernel."""


@dataclass(frozen=True)
class PatternTiling(TileConfiguration):
    """Shape of a block's work; `pattern_conv.cu` explains the sizes."""

    lanes: int = 32
    rows: int = 4
    warps: int = 8
    filters: int = 1
    channels: int = 16
    stages: int = 2
    sorted: bool = True
    reuse: bool = True

    @property
    def name(self) -> str:
        size = f"{self.lanes}x{self.rows}_w{self.warps}_c{self.channels}"
        return size + f"_f{self.filters}" * (self.filters > 1) + "_s1" * (self.stages == 1)

    @property
    def height(self) -> int:
        return 32 // self.lanes * self.rows


PLAIN = PatternTiling(sorted=False, reuse=False)
STEPS = {
    "no_opt": PLAIN,
    "reorder": replace(PLAIN, sorted=True),
    "lre_kernel": replace(PLAIN, sorted=True, reuse=True),
    "lre": replace(PLAIN, sorted=True, reuse=True, filters=2),
}
"""What the paper adds step by step, at one tiling for all layers; its last step is to tune that."""


@dataclass(frozen=True)
class Staged:
    """How a tile's input lies in shared memory, in elements."""

    piece: int
    left: int
    pitch: int
    plane: int

    @staticmethod
    def of(shape: ConvShape, tiling: PatternTiling, itemsize: int) -> Staged:
        piece = vector_width(shape.width, itemsize)
        left = -(-shape.pad_w // piece) * piece
        columns = (tiling.lanes - 1) * shape.stride + 3 + left - shape.pad_w
        least = -(-columns // piece) * piece
        pitch = least
        if itemsize == 4 and tiling.lanes < 32:  # rows of lanes in banks of their own
            step = tiling.rows * shape.stride
            apart = (16,) if tiling.lanes == 16 else (8, 24)
            fits = (one for one in range(least, least * 3 // 2, piece) if one * step % 32 in apart)
            pitch = next(fits, least)
        return Staged(piece, left, pitch, ((tiling.height - 1) * shape.stride + 3) * pitch)


def pack(kernels: Kernels, order: Int64s, tiling: PatternTiling) -> dict[str, Array]:
    """FKW cut at chunks of input channels, the buffers of `pattern_conv.cu`; `order` has the filter of each place."""
    count, per_group = len(kernels.masks), tiling.filters
    groups = -(-kernels.filters // per_group)
    chunks = -(-kernels.channels // tiling.channels)
    group, member = np.divmod(np.argsort(order)[kernels.filter], per_group)
    chunk, within = np.divmod(kernels.channel, tiling.channels)
    lists = kernels.pattern if tiling.sorted else np.zeros_like(kernels.pattern)
    per_pattern = 3 if per_group == 2 else 1
    kind = np.zeros_like(lists)
    if per_group == 2:  # 0 in both filters of the group, 1 in the first, 2 in the second
        same = (group * kernels.channels + kernels.channel) * count + kernels.pattern
        _, which, many = np.unique(same, return_inverse=True, return_counts=True)
        kind = np.where(many[which] == 2, 0, 1 + member)
    slots = (count if tiling.sorted else 1) * per_pattern
    cell = (group * chunks + chunk) * slots + lists * per_pattern + kind
    sorting = np.lexsort((member, within, cell))
    starts = prefix_sums(np.bincount(cell, minlength=groups * chunks * slots))
    index = within if tiling.sorted else within | kernels.pattern << _PATTERN_SHIFT
    spare = 2  # requested and never used
    return {
        "order": np.pad(order, (0, groups * per_group - kernels.filters), constant_values=-1).astype(np.int32),
        "starts": starts.astype(np.int32),
        "index": np.pad(index[sorting], (0, spare)).astype(np.uint16),
        "weights": np.pad(kernels.values[sorting], ((0, spare), (0, 0))),
    }


def input_loads(kernels: Kernels, tiling: PatternTiling, stride: int = 1) -> int:
    """Loads of inputs to registers by a lane that computes `rows` outputs of every filter (the paper's figure 14b)."""
    taps = np.array([[mask >> bit & 1 for bit in range(9)] for mask in kernels.masks], bool).reshape(-1, 3, 3)
    each = np.full(len(kernels.masks), _ITEM * tiling.rows)
    if tiling.reuse:
        rows = np.arange(tiling.rows)[:, None] * stride + np.arange(3)
        for number, mask in enumerate(taps):
            each[number] = sum(np.unique(rows[:, mask[:, s]]).size for s in range(3))
    order = reordered(kernels) if tiling.sorted else np.arange(kernels.filters)
    group = np.argsort(order)[kernels.filter] // tiling.filters
    distinct = np.unique((group * kernels.channels + kernels.channel) * len(each) + kernels.pattern)
    return int(each[distinct % len(each)].sum())


def make_plan(
    problem: Problem,
    operands: Operands,
    tiling: PatternTiling,
    arch: str,
    label: str = "",
    shared: SharedWork | None = None,
) -> Plan:
    """The plan of one tiling. Raises `Unsupported` where the layer has no patterns, or a tile does not fit."""
    shape, shared = convolved(problem), shared or SharedWork()
    elapsed = shared.timer()
    kernels = shared.once("kernels", lambda: _kernels(shape, operands))
    order = shared.once("order", lambda: reordered(kernels)) if tiling.sorted else np.arange(kernels.filters)
    x = operands.dense["x"]
    tiling = replace(tiling, channels=min(tiling.channels, shape.channels))
    staged = Staged.of(shape, tiling, x.itemsize)
    shared_bytes = tiling.stages * tiling.channels * staged.plane * x.itemsize
    if shared_bytes > block_shared_bytes(arch):
        raise Unsupported(f"a tile takes {shared_bytes} bytes of shared memory, a block has {block_shared_bytes(arch)}")
    across, down = -(-shape.out_width // tiling.lanes), -(-shape.out_height // tiling.height)
    groups = -(-shape.filters // tiling.filters)
    chunks = -(-shape.channels // tiling.channels)
    packed = pack(kernels, order, tiling)
    sizes = (shape.channels, shape.height, shape.width, shape.filters, shape.out_height, shape.out_width)
    sixes = {letter: enumerate(kernels.masks[6 * at : 6 * at + 6]) for at, letter in enumerate("ABC")}
    masks = {f"MASKS_{letter}": sum(mask << 9 * at for at, mask in six) for letter, six in sixes.items()}
    packed["weights"] = packed["weights"].astype(x.dtype, copy=False)
    buffers = {"x": np.ascontiguousarray(x), **packed, "y": np.zeros(shape.output, x.dtype)}
    plan = tiling.plan(
        "pattern_conv",
        (across * down * shape.batch, -(-groups // tiling.warps), 1),
        (*buffers, *sizes, groups, chunks, across, down),
        buffers,
        defines={
            "PATTERNS": len(kernels.masks),
            **masks,
            "STRIDE": shape.stride,
            "PAD": shape.pad_w,
            "PIECE": staged.piece,
            "LEFT": staged.left,
            "PITCH": staged.pitch,
            "F16": int(problem.dtype == "f16"),
            "INDEX16": 1,
        },
        shared_bytes=shared_bytes,
    )
    return replace(plan, variant=label or f"tuned_{tiling.name}", generate_ms=elapsed())


def _kernels(shape: ConvShape, operands: Operands) -> Kernels:
    if (shape.r, shape.s) != (3, 3) or shape.groups != 1 or shape.pad_h != shape.pad_w or shape.pad_w > 1:
        raise Unsupported("patterns are of 3x3 filters over all channels, with no padding or a frame of one")
    if shape.stride > 2:
        raise Unsupported(f"patterns move by 1 or 2, not {shape.stride}")
    try:
        found = Kernels.of(operands.sparse)
    except MatrixError as error:
        raise Unsupported(str(error)) from error
    return found if found.masks else replace(found, masks=(15,))  # the program needs one, also of no kernels


def cycles(shape: ConvShape, kernels: int, tiling: PatternTiling, itemsize: int, arch: str) -> float:
    """Clocks of a launch by a rough count: loads from shared memory, multiplies and staging of the busiest SM."""
    staged = Staged.of(shape, tiling, itemsize)
    limits, shared = architecture(arch), tiling.stages * tiling.channels * staged.plane * itemsize
    resident = min(limits.shared_bytes // (shared + 1024), limits.warps // 2 // tiling.warps)
    if not resident or shared > limits.block_shared_bytes:
        return float("inf")
    groups = -(-shape.filters // tiling.filters)
    tiles = -(-shape.out_width // tiling.lanes) * -(-shape.out_height // tiling.height) * shape.batch
    blocks = tiles * -(-groups // tiling.warps)
    busiest = -(-blocks // sm_count(arch))
    apart = staged.pitch * tiling.rows * shape.stride % 32
    good = tiling.lanes == 32 or apart == 16 or (tiling.lanes == 8 and apart in (8, 24))
    conflicts = (1 if good or itemsize == 2 else 32 // tiling.lanes) * shape.stride
    chunks = -(-shape.channels // tiling.channels)
    of_warp = kernels / shape.filters * tiling.filters
    loads = (2.3 * (tiling.rows * shape.stride + 1) + 1) * conflicts + 2
    issue = (loads + 4 * tiling.rows + 15) / 4
    lists = chunks * _PATTERNS * (3 if tiling.filters == 2 else 1) * 2.0
    work = (of_warp * max(loads, issue) + lists + 40 * chunks) * tiling.warps
    staging = shape.channels * staged.plane * itemsize / 24
    together = min(resident, busiest)
    waiting = chunks * 600 / together / tiling.stages
    busy = work / min(1.0, together * tiling.warps / 20)
    return float(busiest * (busy + staging * (1.0 if tiling.stages == 1 else 0.7) + waiting) + 2000)


def tilings(shape: ConvShape, kernels: int, itemsize: int, arch: str) -> list[PatternTiling]:
    """The `CANDIDATES` most promising, of which no two have the same tile and count of filters."""
    grid = [
        PatternTiling(lanes, rows, warps, filters, min(channels, shape.channels), stages)
        for lanes in (32, 16, 8)
        for rows in _ROWS
        for warps in (4, 8, 16)
        for filters in (1, 2)
        for channels in (8, 16, 32, 64, 128)
        for stages in (1, 2)
        if stages == 1 or channels < shape.channels
    ]
    ranked = sorted(set(grid), key=lambda one: (cycles(shape, kernels, one, itemsize, arch), str(one)))
    return first_of_each(ranked, lambda one: (one.lanes, one.rows, one.filters))[:CANDIDATES]


def _structure_bytes(problem: Problem, nnz: int) -> int:
    """FKW's, of 8 patterns: their number hardly counts."""
    return structure_bytes(problem.m, nnz // _ITEM, _PATTERNS)


_SHAPE = ConvShape(2, 16, 14, 14, 32, 3, 3, 1, 1)
_SOURCE = "pattern:top8:uneven:0"
_SAMPLE = Problem("representative", f"conv2d {_SHAPE} {_SOURCE}", "conv2d", 32, 144, 392, 0.75, _SOURCE, conv=_SHAPE)


@kernel(
    "Niu et al.: PatDNN: Achieving Real-Time DNN Execution on Mobile Devices with Pattern-based Weight Pruning, "
    "ASPLOS 2020",
    "conv2d",
    "f32 f16",
    About("paper", "PatDNN on CUDA", structure_bytes=_structure_bytes, rank=165, samples=(_SAMPLE,)),
)
def pattern_conv(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """3x3 filters of 4-weight patterns: the most promising tiling, then the paper's steps, then other tilings.

    Raises `Unsupported` for weights without patterns, other filters, or an empty output.
    """
    shape, shared = convolved(problem), SharedWork()
    kernels = shared.once("kernels", lambda: _kernels(shape, operands))
    tuned = [("", one) for one in tilings(shape, kernels.filter.size, operands.dense["x"].itemsize, arch)]
    yield from plans_that_fit(
        [*tuned[:1], *STEPS.items(), *tuned[1:]],
        lambda one: make_plan(problem, operands, one[1], arch, one[0], shared),
        "no tiling fits",
    )
