"""Sputnik's SpMM: row splitting with 1-D tiles, subwarps, aligned vector loads and a row swizzle.

Gale, Zaharia, Young, Elsen: "Sparse GPU Kernels for Deep Learning", SC 2020, section V. `kernels_cu/sputnik_spmm.cu`
says who computes what; this module chooses tiles and launch geometry.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.architectures import sm_count
from nnzbench.core.plan import Array, Dim3, Int32s, Int64s, Plan, SharedWork, Unsupported
from nnzbench.core.tiles import MOST_GRID_Y, TileConfiguration
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels import cost_rule
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.rows import Storage, padded, power_of_two_at_least, row_records, transpose, vector_width
from nnzbench.kernels.sputnik import PAPER

_OWN_REGISTERS = 40
"""Registers of a thread beside its loads of B in flight: 32 to 64 in the tiles compiled for sm_90."""


@dataclass(frozen=True)
class Tile(TileConfiguration):
    """What a block computes of C, and how."""

    DEFINES: ClassVar = {
        **{"y": "BLOCK_ITEMS_Y", "x": "BLOCK_ITEMS_X", "k": "BLOCK_ITEMS_K"},
        **{"width": "BLOCK_WIDTH", "ahead": "ITEMS_AHEAD"},
    }
    y: int
    """Rows per block."""
    x: int
    """Columns per tile."""
    width: int
    """Threads per row."""
    vector_b: int
    """Elements per access to B and C."""
    vector_a: int = 4
    """Elements per load of values and indices."""
    k: int = 32
    """Entries staged per step."""
    ahead: int = 16
    """Entries whose B loads are issued before their arithmetic."""
    prefetch: bool = False
    """Next tile of A is loaded during arithmetic (not in the paper)."""
    rows_fastest: bool = False
    """Consecutive blocks take consecutive rows of one column tile (the paper: column tiles of the same rows)."""

    @property
    def name(self) -> str:
        text = f"y{self.y}_x{self.x}_w{self.width}_v{self.vector_b}"
        text += f"_va{self.vector_a}" * (self.vector_a != self.vector_b)
        text += f"_k{self.k}" * (self.k != 32) + f"_a{self.ahead}" * (self.ahead != 16)
        return text + "_pf" * self.prefetch + "_rf" * self.rows_fastest

    @property
    def block(self) -> Dim3:
        return self.width, self.y, 1


@dataclass(frozen=True)
class Switches:
    """The paper's optimisations (its table II), each of which can be turned off."""

    load_balancing: bool = True
    vector: bool = True
    residue_unroll: int = 32
    """Most entries of a row's last tile whose loads are in flight together: as of the others, or four as published."""
    prescale: bool = True


ALL_ON = Switches()


def heuristic_tile(n: int, itemsize: int) -> Tile:
    """The paper's choice (section VII): columns per tile = n rounded up to a power of two, at most 64.

    Vectors are the widest that n allows; a subwarp is as wide as one vector load of a 32-entry tile of A. All 32
    entries of a step are loaded ahead where their columns fill at most 64 registers of a lane, as for odd n.
    """
    x = min(64, power_of_two_at_least(n))
    vector = min(vector_width(n, itemsize), x)
    width = min(32 // min(vector, 4), x // vector)
    ahead = 32 if 32 * x // width * itemsize <= 4 * 64 else 16
    return Tile(y=max(4, 32 // width), x=x, width=width, vector_b=vector, vector_a=min(4, vector), ahead=ahead)


def _scalar(tile: Tile) -> Tile:
    """The same block shape without vector instructions: one element per load, subwarps as wide as they get."""
    width = min(32, tile.x)
    return replace(tile, width=width, vector_a=1, vector_b=1, y=max(tile.y * tile.width, 32) // width)


# Candidates beside the heuristic, by the widest vector access that n allows. Wide tiles re-use staged entries most;
# narrow ones and few rows per block give small problems enough blocks for all SMs; 32 entries ahead are one trip to
# memory for a short row, at the price of half the warps; rows fastest keeps a column tile of B in L1.
_TILES: dict[int, tuple[Tile, ...]] = {
    4: (
        Tile(2, 64, 16, 4), Tile(8, 64, 16, 4), Tile(2, 64, 16, 4, prefetch=True), Tile(2, 64, 16, 4, ahead=32),
        Tile(8, 64, 16, 4, rows_fastest=True), Tile(4, 32, 8, 4), Tile(4, 32, 8, 4, prefetch=True),
        Tile(16, 32, 8, 4, prefetch=True, rows_fastest=True), Tile(8, 16, 4, 4, prefetch=True),
        Tile(1, 64, 32, 2, ahead=32, prefetch=True), Tile(1, 128, 32, 4, prefetch=True), Tile(4, 128, 32, 4),
        Tile(4, 128, 32, 4, ahead=32), Tile(4, 128, 32, 4, rows_fastest=True),
        Tile(4, 64, 32, 2, prefetch=True, rows_fastest=True), Tile(1, 32, 32, 1, ahead=32, prefetch=True),
    ),
    2: (
        Tile(1, 64, 32, 2, ahead=32, prefetch=True), Tile(4, 64, 32, 2), Tile(2, 32, 16, 2, ahead=32, prefetch=True),
        Tile(4, 16, 8, 2, prefetch=True), Tile(8, 8, 4, 2, prefetch=True), Tile(1, 32, 32, 1, ahead=32, prefetch=True),
    ),
    1: (
        Tile(1, 64, 32, 1, ahead=32), Tile(1, 64, 32, 1, ahead=32, prefetch=True), Tile(4, 64, 32, 1, prefetch=True),
        Tile(1, 32, 32, 1, prefetch=True), Tile(1, 32, 32, 1, ahead=32, prefetch=True),
        Tile(1, 32, 32, 1, k=64, ahead=32, prefetch=True), Tile(2, 16, 16, 1, ahead=32, prefetch=True),
        Tile(4, 8, 8, 1, ahead=32, prefetch=True), Tile(32, 1, 1, 1),
    ),
}  # fmt: skip


def oracle_tiles(n: int, itemsize: int) -> list[Tile]:
    """Tile configurations worth timing for `n` columns; tiles mostly past column n, or a sliver of it, are left out."""
    widest = vector_width(n, itemsize)
    tiles = [tile for tile in _TILES[min(4, widest)] if tile.x < 2 * n and 16 * tile.x >= min(n, 64)]
    if n in (4, 8):  # wide vectors leave a row one lane or two
        tiles += [Tile(64 // n, n, n // 2, 2, prefetch=True), Tile(32 // n, n, n, 1, ahead=32, prefetch=True)]
    if widest == 8:
        wide = [tile for tile in tiles if tile.vector_b == 4 and tile.width >= 8]
        tiles += [
            replace(tile, width=tile.width // 2, y=tile.y * 2, vector_b=8, ahead=tile.ahead // 2) for tile in wide
        ]
    return tiles


def tile_features(tile: Tile, lengths: Int64s, n: int, itemsize: int, sms: int) -> dict[str, float]:
    """What `cost_rule` weighs: what a tile does with rows of these lengths, per multiprocessor where work adds up."""
    longest, mean = float(lengths.max(initial=0)), float(lengths.mean()) if lengths.size else 0.0
    column_tiles = -(-n // tile.x)
    warps = column_tiles * tile.width / 32  # per row
    loads = tile.x / (tile.width * tile.vector_b) * max(1.0, tile.vector_b * itemsize / 4)  # 128-byte wavefronts
    entries = 4.0 * float((-(-lengths // 4)).sum())  # residues are computed in fours
    blocks = -(-lengths.size // tile.y) * column_tiles
    threads = max(32, tile.y * tile.width)
    registers = _OWN_REGISTERS + tile.ahead * tile.x // tile.width * itemsize // 4  # the B loads in flight
    resident = max(1, min(32, 2048 // threads, 65536 // (registers * threads)))
    return {
        "launch": 1.0,
        "wavefronts": entries * warps * loads / sms,
        "entries": entries * warps / sms,
        "rows": lengths.size * warps / sms,
        "blocks": blocks / sms,
        "waves": -(-blocks // (sms * resident)) * math.ceil(mean / tile.ahead),
        "longest_staged": 0.0 if tile.prefetch else longest / tile.k,
        "longest_prefetched": longest / tile.k if tile.prefetch else 0.0,
    }


def rule_tile(matrix: CSR, n: int, itemsize: int, sms: int) -> Tile:
    """Our own choice: of the heuristic's tile and the oracle's candidates, the one of least predicted cost."""
    lengths = matrix.row_lengths
    tiles = dict.fromkeys((heuristic_tile(n, itemsize), *oracle_tiles(n, itemsize)))
    return cost_rule.cheapest("sputnik_tile", tiles, lambda tile: tile_features(tile, lengths, n, itemsize, sms))


def warp_steps(records: Int32s, tile: Tile) -> Int32s:
    """`row_records` filled up to whole blocks (row -1, no entries); the last column becomes the steps of a slot's warp.

    A step stages `k` entries of A. The 32 / width rows of a warp all take as many as the one that needs most.
    """
    slots = np.zeros((-(-len(records) // tile.y) * tile.y, 4), dtype=np.int32)
    slots[:, 0] = -1
    slots[: len(records)] = records
    first, end = slots[:, 1], slots[:, 2]
    steps = np.where(first < end, -(-(end - first // tile.vector_a * tile.vector_a) // tile.k), 0)
    rows = 32 // tile.width
    slots[:, 3] = np.repeat(steps.reshape(-1, rows).max(axis=1), rows)
    return slots


def spmm_plan(
    matrix: CSR,
    b: Array,
    tile: Tile,
    label: str = "",
    switches: Switches = ALL_ON,
    bias: NDArray[np.float32] | None = None,
    positions: Int32s | None = None,
    shared: SharedWork | None = None,
) -> Plan:
    """The plan of C = A B with one tile (with a bias per row, ReLU too); `label` goes before the tile in its name.

    `b` is (k, n), float32 or float16, of the type of the matrix values. With `positions` (nnz,), entry i of the matrix
    has the value `matrix.values[positions[i]]`. `shared` is what plans of one pattern share. Raises `Unsupported` where
    the output is empty or no grid can hold it, and without pre-scaling where B has 2^31 elements or more: with it such
    a B is addressed in 64 bits, and the variant's name says so.
    """
    n = b.shape[1]
    if matrix.m == 0 or n == 0:
        raise Unsupported("the output is empty")
    storage = Storage.of(b.dtype, matrix.k)
    if not switches.vector:
        tile = _scalar(tile)
    short_offsets = matrix.k * n < 2**31
    if not switches.prescale and not short_offsets:
        raise Unsupported(f"without pre-scaling offsets are 32-bit products: k * n = {matrix.k * n} is not below 2^31")
    row_blocks, column_blocks = -(-matrix.m // tile.y), -(-n // tile.x)
    if min(row_blocks, column_blocks) > MOST_GRID_Y:
        raise Unsupported(f"{row_blocks} row tiles and {column_blocks} column tiles are more than a grid holds")
    tile = _turned(tile, matrix.m, n)
    defines = {
        "PRESCALE": int(switches.prescale and short_offsets),
        "OFFSET64": int(not short_offsets),
        "RESIDUE_UNROLL": int(min(tile.ahead, switches.residue_unroll)),
        "BIAS": int(bias is not None),
        "RELU": int(bias is not None),
        "GATHER": int(positions is not None),
        **storage.defines,
    }
    shared = shared or SharedWork()
    buffers: dict[str, Array] = {
        "rows": warp_steps(row_records(matrix, switches.load_balancing), tile),
        "values": padded(matrix.values),
        "indices": shared.once(("indices", storage), lambda: storage.indices(matrix.indices)),
        "b": np.ascontiguousarray(b),
        "c": np.zeros((matrix.m, n), dtype=b.dtype),
    }
    if positions is not None:
        buffers["positions"] = padded(positions)
    if bias is not None:
        buffers["bias"] = bias.astype(np.float32)
    entries = ("values", "indices", "positions" if positions is not None else "indices")
    args = (n, "rows", *entries, "b", "c", "bias" if bias is not None else "rows")
    grid = (row_blocks, column_blocks, 1) if tile.rows_fastest else (column_blocks, row_blocks, 1)
    marks = (storage.name("k"), "" if short_offsets else "unscaled_k_times_n_above_2e31")
    return tile.plan("sputnik_spmm", grid, args, buffers, "c", defines=defines, label=label, marks=marks)


def _turned(tile: Tile, m: int, n: int) -> Tile:
    """The tile, in the other order where the grid's y would hold more blocks of an m x n output than it can."""
    blocks = -(-n // tile.x) if tile.rows_fastest else -(-m // tile.y)
    return replace(tile, rows_fastest=not tile.rows_fastest) if blocks > MOST_GRID_Y else tile


def labelled_tiles(m: int, n: int, itemsize: int, ruled: Tile | None = None) -> Iterator[tuple[Tile, str]]:
    """Tiles to time for an m x n output and the label of each: our rule's choice, if given, the paper's, and the other
    `oracle_tiles`."""
    paper = heuristic_tile(n, itemsize)
    if ruled is not None:
        yield ruled, "rule"
    yield paper, "heuristic"
    chosen = {_turned(tile, m, n) for tile in (ruled, paper) if tile}
    for tile in dict.fromkeys(_turned(tile, m, n) for tile in oracle_tiles(n, itemsize)):
        if tile not in chosen:
            yield tile, ""


@kernel(f"{PAPER}, section V", "spmm", "f32 f16", About("paper", paper_variants="heuristic_", rank=10))
def sputnik(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """C = A B by row splitting: our rule's tile (`rule_...`), the paper's (`heuristic_...`), then `oracle_tiles`.

    In fp16 the paper scales no index ahead (section V-D), as `heuristic_unscaled_...` does; the others scale them.
    """
    b, shared = operands.dense["b"], SharedWork()
    n, itemsize = b.shape[1], b.dtype.itemsize
    ruled = rule_tile(operands.sparse, n, itemsize, sm_count(arch))
    for tile, label in labelled_tiles(problem.m, n, itemsize, ruled):
        yield spmm_plan(operands.sparse, b, tile, label, shared=shared)
        if label == "heuristic" and itemsize == 2 and operands.sparse.k * n < 2**31:
            yield spmm_plan(operands.sparse, b, tile, "heuristic_unscaled", Switches(prescale=False), shared=shared)


@kernel(f"{PAPER}, section IX", "spmm", "f32 f16", About("paper", study=True))
def sputnik_transposed(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """C = W^T B for a W kept in CSR, as training's backward pass needs it (the paper's section IX).

    The structure of W^T and the position of its entries in W are cached once per topology; the kernel gathers the
    values, so that nothing is rearranged when weights change. To be comparable, a problem's A is taken as W^T.
    """
    topology, positions = transpose(operands.sparse.transposed())
    b = operands.dense["b"]
    for tile, label in labelled_tiles(problem.m, b.shape[1], b.dtype.itemsize):
        yield spmm_plan(topology, b, tile, label, positions=positions)


ABLATION = {
    "complete": ALL_ON,
    **{f"no_{name}": Switches(**{name: False}) for name in ("load_balancing", "vector", "residue_unroll", "prescale")},
    "paper_residue": Switches(residue_unroll=4),
}
"""Optimisations of each variant of the ablation."""


@kernel(
    f"{PAPER}, table II",
    "spmm",
    "f32 f16",
    About("paper", nothing_to_tune=True, study=True, study_variants=lambda _: tuple(ABLATION)),
)
def sputnik_ablation(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """The heuristic's kernel, complete and with one optimisation removed at a time; `paper_residue` is what leaving the
    unrolling of residues out is held against."""
    b = operands.dense["b"]
    tile = heuristic_tile(b.shape[1], b.dtype.itemsize)
    for name, switches in ABLATION.items():
        yield spmm_plan(operands.sparse, b, tile, name, switches)
