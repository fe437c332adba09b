"""Kernel `delta_spmv`: sparse matrix times one to four vectors in 16-bit types, from 22 or 20 bits a nonzero.

Chunks of 16 entries of a row, whose columns are steps of 5 or 3 bits (`delta_spmv.cu`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnzbench.core.architectures import architecture, block_shared_bytes, sm_count
from nnzbench.core.plan import Array, Int32s, Int64s, Plan, SharedWork, Uint32s, Unsupported, from_bf16
from nnzbench.core.tiles import TileConfiguration
from nnzbench.data.matrices.formats import CSR, prefix_sums, ranks
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
_BLOCK_NONZEROS = 1 << 20
"""That are packed at a time."""


class Form(NamedTuple):
    """Of steps: the bits of one, and among how many chunks a row's entries are dealt in turn."""

    bits: int = 5
    dealt: int = 1


def pays(problem: Problem, nnz: int) -> Form | None:
    """The form that is tried beside the plain one: by the log in `docs/performance/delta-spmv.md`.

    Where bytes are what a product costs, steps of 3 bits save 5 to 9 % of them up to two thirds of zeros. Where loads
    of x are, fewer of them ask the same bank at once if entries are dealt, up to six zeros in ten.
    """
    density = nnz / max(1, problem.m * problem.k)
    if problem.dtype == "f8" or problem.n > 2:
        return Form(dealt=8) if density >= 0.4 else None
    return Form(bits=3) if density >= 1 / 3 else None


def pack(matrix: CSR, form: Form = Form()) -> dict[str, Array]:  # noqa: B008
    """Packs a matrix of 16-bit values, whatever they mean; entries of 0.0 and -0.0 count as absent.

    The buffers of `delta_spmv.cu`, whose header explains them: `offsets` (m + 1,), and of each chunk `low` and `high`,
    eight values each, and places, two words `near` and, of 5 bits, one `far`.

    Raises `ValueError` for more than `MOST_COLUMNS` columns.
    """
    if matrix.k > MOST_COLUMNS:
        raise ValueError(f"columns are kept in 16 bits, and {matrix.k} are more than {MOST_COLUMNS}")
    counts, values, words = map(np.concatenate, zip(*over_rows(matrix, partial(_rows, form)), strict=True))
    held = {"low": values[:, :8], "high": values[:, 8:], "near": words[:, :2], "far": words[:, 2:].reshape(-1)}
    offsets = {"offsets": prefix_sums(counts).astype(np.int32)}
    return {**offsets, **{name: np.ascontiguousarray(part) for name, part in held.items()}}


_Part = tuple[Int64s, NDArray[np.uint16], Uint32s]
Packed = TypeVar("Packed")


def over_rows(matrix: CSR, packed: Callable[[CSR, int, int], Packed]) -> list[Packed]:
    """What `packed` makes of the rows from one number to another, of all rows in order; several at a time."""
    ends = np.searchsorted(matrix.offsets, np.arange(_BLOCK_NONZEROS, matrix.nnz + _BLOCK_NONZEROS, _BLOCK_NONZEROS))
    rows = np.unique(np.concatenate([[0], np.minimum(ends, matrix.m), [matrix.m]]))
    blocks = list(pairwise(rows.tolist())) or [(0, 0)]
    return over_parts(lambda part: packed(matrix, *blocks[part[0].start]), (len(blocks),), 1)


def entries(matrix: CSR, first: int, last: int) -> tuple[Int32s, Int32s, NDArray[np.uint16]]:
    """Of what is not zero in rows `first` to `last - 1`, whose first is row 0 here: row, column and value."""
    held = slice(matrix.offsets[first], matrix.offsets[last])
    values = np.ascontiguousarray(matrix.values[held]).view(np.uint16)
    there = (values & 0x7FFF) != 0
    row = np.repeat(np.arange(last - first, dtype=np.int32), matrix.row_lengths[first:last])
    column = matrix.indices[held].astype(np.int32, copy=False)
    if not there.all():
        row, column, values = row[there], column[there], values[there]
    return row, column, values


def _rows(form: Form, matrix: CSR, first: int, last: int) -> _Part:
    """Of rows `first` to `last - 1` how many chunks each has, and of each chunk its values and its words of places."""
    strand, column, values = entries(matrix, first, last)
    dealt, longest = form.dealt, (1 << form.bits) - 1
    furthest = dealt + longest  # columns from an entry to the next one of its strand, of which a row has `dealt`
    if dealt > 1:
        strand = strand * dealt + ranks(np.bincount(strand)) % dealt
        order = np.argsort(strand, kind="stable")
        strand, column, values = strand[order], column[order], values[order]
    gap = np.diff(column, prepend=-1) - 1
    gap[np.diff(strand, prepend=-1) != 0] = dealt - 1  # a chunk has its first column
    between = gap // furthest  # zeros that stand before the entry
    gap -= between * furthest + (dealt - 1)
    upto = prefix_sums(between + 1)  # entries before each, of all strands
    strands = prefix_sums(np.bincount(strand, minlength=(last - first) * dealt))
    of_strand = np.diff(upto[strands])
    each = (-(-of_strand // CHUNK)).reshape(-1, dealt).max(axis=1)  # chunks of a row's strands
    chunks = np.repeat(each, dealt)
    filled = CHUNK * (np.cumsum(chunks) - chunks) - (np.cumsum(of_strand) - of_strand)
    place = upto[1:] - 1 + np.repeat(filled, np.diff(strands))

    size = CHUNK * int(chunks.sum())
    out, step, at = np.zeros(size, np.uint16), np.zeros(size, np.uint32), np.zeros(size, np.uint32)
    out[place], step[place], at[place] = values, np.maximum(gap, 0), column
    far = np.flatnonzero(between > 0)
    nth = ranks(between[far])
    zero = np.repeat(place[far] - between[far], between[far]) + nth
    step[zero] = longest
    at[zero] = np.repeat(column[far - 1], between[far]) + furthest * (nth + 1)
    late = np.maximum(-gap[far], 0).astype(np.uint32)  # the last zero stands earlier, where it would be too near
    step[place[far] - 1] -= late
    at[place[far] - 1] -= late

    steps, ends = step.reshape(-1, CHUNK), range(1 + 15 // form.bits, CHUNK + 1, 30 // form.bits)
    words = np.stack([_together(steps[:, max(1, end - 30 // form.bits) : end], form.bits) for end in ends], axis=1)
    words[:, 0] = at[::CHUNK] | words[:, 0] << np.uint32(16)
    if dealt == 1:
        return each, out.reshape(-1, CHUNK), words
    of_row = each * dealt
    nth = ranks(of_row)
    turn = np.arange(nth.size) - nth + nth % dealt * np.repeat(each, of_row) + nth // dealt  # one of each strand
    return of_row, out.reshape(-1, CHUNK)[turn], words[turn]


def _together(steps: Uint32s, bits: int) -> Any:
    """Steps in one word, the first in the lowest bits."""
    word = steps[:, 0].copy()
    for at in range(1, steps.shape[1]):
        word |= steps[:, at] << np.uint32(bits * at)
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
    problem: Problem,
    operands: Operands,
    arch: str,
    lanes: int,
    blocks: int,
    shared: SharedWork | None = None,
    form: Form = Form(),  # noqa: B008
) -> Plan:
    """The plan of `DeltaTiling(lanes, blocks)`; `operands.dense["b"]` is (k, n), as `stored_dense` takes it.

    Raises `Unsupported` where x does not fit in shared memory.
    """
    shared = shared or SharedWork()
    elapsed = shared.timer()
    n = operands.dense["b"].shape[1]
    bytes_of_x = -(-2 * power_of_two_at_least(n) * (problem.k + CHUNK * form.dealt) // 16) * 16
    if bytes_of_x > block_shared_bytes(arch):
        raise Unsupported(f"{n} vectors of {problem.k} do not fit in the shared memory of {arch}")
    bf16 = problem.dtype == "bf16"
    sparse = operands.sparse
    fp8 = problem.dtype == "f8"
    held = shared.once_for(
        sparse,
        ("delta_spmv", fp8, form),
        lambda: pack(sparse.with_values(stored_weights(sparse.values, problem.dtype)), form),
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
    other = {} if form == Form() else {"BITS": form.bits, "DEALT": form.dealt}
    return DeltaTiling(lanes, blocks).plan(
        "delta_spmv",
        (min(resident * sm_count(arch), needed), 1, 1),
        (*sizes, *buffers, 1 / F8_SCALE) if fp8 else sizes,
        buffers,
        "y",
        defines={"BF16": int(bf16), "FP8": int(fp8), "BIAS": 0, **several, **other},
        label="e4m3" * fp8,
        marks=(f"s{form.bits}" * (form.bits != 5), f"d{form.dealt}" * (form.dealt > 1)),
        math="f8" * fp8,
        shared_bytes=bytes_of_x,
        generate_ms=elapsed(),
        unpermute=from_bf16 if bf16 else None,
    )


def structure_bytes(problem: Problem, nnz: int) -> int:
    """12 bytes for 16 nonzeros and 4 a row, without the zeros that stand between or fill up. Steps of 3 bits take 8, so
    that their limit is up to a tenth too high."""
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
    columns, other = power_of_two_at_least(problem.n), pays(problem, operands.sparse.nnz)
    chunks = max(1, operands.sparse.nnz // (CHUNK * problem.m))
    most = min(32, power_of_two_at_least(chunks))
    each = dict.fromkeys((most, max(1, most // 2)))
    for blocks in _BLOCKS:
        if blocks * _WARPS > architecture(arch).warps or blocks * columns > _MOST_SUMS:
            continue
        for lanes in each:
            yield make_plan(problem, operands, arch, lanes, blocks, shared)
    if other:
        for lanes in each:
            yield make_plan(problem, operands, arch, lanes, _BLOCKS[0], shared, other)


def gated(problem: Problem, operands: Operands, arch: str, variant: str, factor: float) -> Iterator[Plan]:
    """Plans of a product whose first half of rows are gates, with SwiGLU of `factor` times its rows as the result.

    They are those of 16 lanes a row at most, as gate and other are of one warp, whatever the `variant`. None for more
    than one column.
    """
    for plan in delta_spmv.plans(problem, operands, arch) if problem.n == 1 else ():
        (launch,) = plan.launches
        lanes = launch.args[2]
        assert isinstance(lanes, int)
        if lanes <= 16:
            buffers = {**plan.buffers, plan.output: plan.buffers[plan.output][: problem.m // 2]}
            launches = (replace(launch, args=(*launch.args, float(factor))),)
            yield replace(plan, defines={**plan.defines, "SWIGLU": 1}, buffers=buffers, launches=launches)
