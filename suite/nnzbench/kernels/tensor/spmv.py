"""Kernel `delta_spmv`: sparse matrix times one to four vectors in 16-bit types, from a format of 22 bits a nonzero.

Chunks of 16 entries of a row, whose columns are steps of 5 bits (`delta_spmv.cu`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.architectures import architecture, block_shared_bytes, sm_count
from nnzbench.core.plan import Array, Int32s, Int64s, Plan, SharedWork, Uint32s, Unsupported, from_bf16
from nnzbench.core.tiles import TileConfiguration
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import F8_SCALE, Operands
from nnzbench.data.problems.parts import over_parts
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.rows import power_of_two_at_least
from nnzbench.kernels.tensor.split_k import samples
from nnzbench.kernels.tensor.strips import stored_dense, stored_weights

CHUNK = 16
MOST_COLUMNS = 1 << 16
MOST_VECTORS = 4
_LONGEST = 32
"""Columns from an entry to the next one."""
_BLOCK_NONZEROS = 1 << 20
"""That are packed at a time."""
_STEPS = 5
"""Bits of a step."""


def pack(matrix: CSR) -> dict[str, Array]:
    """Packs a matrix of 16-bit values, whatever they mean; entries of 0.0 and -0.0 count as absent.

    The buffers of `delta_spmv.cu`, whose header explains them: `offsets` (m + 1,), and of each chunk `low` and `high`,
    eight values each, and places, two words `near` and one `far`.

    Raises `ValueError` for more than `MOST_COLUMNS` columns.
    """
    if matrix.k > MOST_COLUMNS:
        raise ValueError(f"columns are kept in 16 bits, and {matrix.k} are more than {MOST_COLUMNS}")
    parts = over_rows(matrix, _rows)
    counts = np.concatenate([np.zeros(1, np.int64), *(count for count, _, _ in parts)])
    values = np.concatenate([np.zeros((0, CHUNK), np.uint16), *(value for _, value, _ in parts)])
    words = np.concatenate([np.zeros((0, 3), np.uint32), *(word for _, _, word in parts)])
    held = {"low": values[:, :8], "high": values[:, 8:], "near": words[:, :2], "far": words[:, 2]}
    offsets = {"offsets": np.cumsum(counts).astype(np.int32)}
    return {**offsets, **{name: np.ascontiguousarray(part) for name, part in held.items()}}


_Part = tuple[Int64s, NDArray[np.uint16], Uint32s]
Packed = TypeVar("Packed")


def over_rows(matrix: CSR, packed: Callable[[CSR, int, int], Packed]) -> list[Packed]:
    """What `packed` makes of the rows from one number to another, of all rows in order; several at a time."""
    ends = np.searchsorted(matrix.offsets, np.arange(_BLOCK_NONZEROS, matrix.nnz + _BLOCK_NONZEROS, _BLOCK_NONZEROS))
    rows = np.unique(np.concatenate([[0], np.minimum(ends, matrix.m), [matrix.m]]))
    blocks = list(pairwise(rows.tolist()))
    return over_parts(lambda part: packed(matrix, *blocks[part[0].start]), (len(blocks),), 1)


def entries(matrix: CSR, first: int, last: int) -> tuple[Int32s, Int32s, NDArray[np.uint16], Int32s]:
    """Of what is not zero in rows `first` to `last - 1`, whose first is row 0 here: row, column and value, and how many
    zeros lie before it in its row."""
    held = slice(matrix.offsets[first], matrix.offsets[last])
    values = np.ascontiguousarray(matrix.values[held]).view(np.uint16)
    there = (values & 0x7FFF) != 0
    row = np.repeat(np.arange(last - first, dtype=np.int32), matrix.row_lengths[first:last])
    column = matrix.indices[held].astype(np.int32, copy=False)
    if not there.all():
        row, column, values = row[there], column[there], values[there]
    gap = np.diff(column, prepend=-1) - 1
    begins = np.diff(row, prepend=-1) != 0
    gap[begins] = column[begins]
    return row, column, values, gap


def _rows(matrix: CSR, first: int, last: int) -> _Part:
    """Of rows `first` to `last - 1` how many chunks each has, and of each chunk its values and its words of places."""
    row, column, values, gap = entries(matrix, first, last)
    gap[np.diff(row, prepend=-1) != 0] = 0  # a chunk has its first column
    between = gap >> _STEPS  # zeros that stand before the entry
    upto = np.concatenate([np.zeros(1, np.int64), np.cumsum(between + 1)])  # entries before each, of all rows
    rows = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=last - first))])
    of_row = np.diff(upto[rows])
    chunks = -(-of_row // CHUNK)
    filled = CHUNK * (np.cumsum(chunks) - chunks) - (np.cumsum(of_row) - of_row)
    place = upto[1:] - 1 + np.repeat(filled, np.diff(rows))

    size = CHUNK * int(chunks.sum())
    out, step, at = np.zeros(size, np.uint16), np.zeros(size, np.uint32), np.zeros(size, np.uint32)
    out[place], step[place], at[place] = values, gap & _LONGEST - 1, column
    far = np.flatnonzero(between > 0)
    nth = np.arange(between[far].sum()) - np.repeat(np.cumsum(between[far]) - between[far], between[far])
    zero = np.repeat(place[far] - between[far], between[far]) + nth
    step[zero] = _LONGEST - 1
    at[zero] = np.repeat(column[far - 1], between[far]) + _LONGEST * (nth + 1)

    steps, words = step.reshape(-1, CHUNK), np.empty((size // CHUNK, 3), np.uint32)
    words[:, 0] = at[::CHUNK] | _together(steps[:, 1:4]) << np.uint32(16)
    words[:, 1] = _together(steps[:, 4:10])
    words[:, 2] = _together(steps[:, 10:])
    return chunks, out.reshape(-1, CHUNK), words


def _together(steps: Uint32s) -> Any:
    """Steps of 5 bits in one word, the first in the lowest bits."""
    word = steps[:, 0].copy()
    for at in range(1, steps.shape[1]):
        word |= steps[:, at] << np.uint32(_STEPS * at)
    return word


_WARPS = 16
_BLOCKS = (2, 3)
"""Per multiprocessor: registers for loads against warps that wait for them."""
_MOST_SUMS = 8
"""Of a lane, times the blocks: twelve do not fit in its registers."""


@dataclass(frozen=True)
class DeltaTiling(TileConfiguration):
    """Lanes of a row, a power of two up to 32, and blocks per multiprocessor."""

    NAME: ClassVar = "l{0.lanes}_b{0.blocks}"
    DEFINES: ClassVar = {"lanes": "", "warps": ""}
    lanes: int
    blocks: int
    warps: int = _WARPS


def make_plan(
    problem: Problem, operands: Operands, arch: str, lanes: int, blocks: int, shared: SharedWork | None = None
) -> Plan:
    """The plan of `DeltaTiling(lanes, blocks)`; `operands.dense["b"]` is (k, n), as `stored_dense` takes it.

    Raises `Unsupported` where x does not fit in shared memory.
    """
    shared = shared or SharedWork()
    elapsed = shared.timer()
    n = operands.dense["b"].shape[1]
    bytes_of_x = -(-2 * power_of_two_at_least(n) * (problem.k + CHUNK) // 16) * 16
    if bytes_of_x > block_shared_bytes(arch):
        raise Unsupported(f"{n} vectors of {problem.k} do not fit in the shared memory of {arch}")
    bf16 = problem.dtype == "bf16"
    sparse = operands.sparse
    fp8 = problem.dtype == "f8"
    held = shared.once_for(
        sparse, ("delta_spmv", fp8), lambda: pack(sparse.with_values(stored_weights(sparse.values, problem.dtype)))
    )
    if fp8:
        both = np.concatenate([held["low"], held["high"]], axis=1).astype(np.uint8)
        held = {name: both if name == "low" else held[name] for name in ("offsets", "low", "near", "far")}
    resident = min(blocks, block_shared_bytes(arch) // bytes_of_x)
    needed = -(-problem.m // (_WARPS * 32 // lanes))
    x = stored_dense(operands.dense["b"], problem.dtype)
    buffers = {**held, "x": x, "y": np.empty((problem.m, n), dtype=x.dtype)}
    several = {"COLUMNS": n, "TOKENS": 0} if n > 1 else {}
    sizes = (problem.m, n, problem.k, lanes) if several else (problem.m, problem.k, lanes)
    return DeltaTiling(lanes, blocks).plan(
        "delta_spmv",
        (min(resident * sm_count(arch), needed), 1, 1),
        (*sizes, *buffers, 1 / F8_SCALE) if fp8 else sizes,
        buffers,
        "y",
        defines={"BF16": int(bf16), "FP8": int(fp8), "BIAS": 0, **several},
        label="e4m3" * fp8,
        math="f8" * fp8,
        shared_bytes=bytes_of_x,
        generate_ms=elapsed(),
        unpermute=from_bf16 if bf16 else None,
    )


def gated(plan: Plan, factor: float) -> Plan:
    """The plan of a product whose first half of rows are gates, with SwiGLU of `factor` times its rows as the result.

    Raises `Unsupported` for plans of 32 lanes a row, as gate and other are of one warp, and for more than one column.
    """
    (launch,) = plan.launches
    m, _, lanes = launch.args[:3]
    if "COLUMNS" in plan.defines or not isinstance(m, int) or not isinstance(lanes, int) or lanes > 16:
        raise Unsupported(f"{plan.variant} has no two rows of a vector in a warp")
    buffers = {**plan.buffers, plan.output: plan.buffers[plan.output][: m // 2]}
    launches = (replace(launch, args=(*launch.args, float(factor))),)
    return replace(plan, defines={**plan.defines, "SWIGLU": 1}, buffers=buffers, launches=launches)


def structure_bytes(problem: Problem, nnz: int) -> int:
    """12 bytes for 16 nonzeros and 4 a row, without the zeros that stand between or fill up."""
    return 12 * -(-nnz // CHUNK) + 4 * (problem.m + 1)


_ABOUT = About("own", rank=137, structure_bytes=structure_bytes, samples=samples((16, 512, 2)))


@kernel("nnzbench", "spmm spmv", "f16 bf16 f8", _ABOUT)
def delta_spmv(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """Own product of a sparse matrix and a few vectors: plans by lanes for a row and blocks per multiprocessor.

    Raises `Unsupported` for more than four columns of B, for empty outputs, and for long rows.
    """
    if not 0 < problem.n <= MOST_VECTORS:
        raise Unsupported(f"{MOST_VECTORS} columns of B at most, not {problem.n}")
    if problem.m == 0:
        raise Unsupported("the output is empty")
    if problem.k > MOST_COLUMNS:
        raise Unsupported(f"columns are kept in 16 bits, and {problem.k} are more than {MOST_COLUMNS}")
    shared = SharedWork()
    columns = power_of_two_at_least(problem.n)
    chunks = max(1, operands.sparse.nnz // (CHUNK * problem.m))
    most = min(32, power_of_two_at_least(chunks))
    for blocks in _BLOCKS:
        if blocks * _WARPS > architecture(arch).warps or blocks * columns > _MOST_SUMS:
            continue
        for lanes in dict.fromkeys((most, max(1, most // 2))):
            yield make_plan(problem, operands, arch, lanes, blocks, shared)
