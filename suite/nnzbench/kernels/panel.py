"""Kernel `panel`: SpMM that streams panels of B through shared memory past rows of C kept in registers.

Superseded by `ring`, it is in no experiment's list, and stays for the records that name it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnzbench.architectures import architecture, block_shared_bytes, sm_count
from nnzbench.dealing import bundled, deal_rows
from nnzbench.kernel import Launch, Plan, Unsupported, register
from nnzbench.matrices.formats import CSR
from nnzbench.operands import Operands
from nnzbench.problem import Problem

_PAIR = np.dtype([("offset", "<u4"), ("value", "<f4")])


@dataclass(frozen=True)
class Tiling:
    """Compile-time shape of `panel_spmm.cu`; the names are its defines."""

    lanes: int
    vec: int
    warps: int
    row_steps: int
    block_k: int
    stages: int
    producers: int = 0

    @property
    def sub(self) -> int:
        """Rows that one warp advances side by side."""
        return 32 // self.lanes

    @property
    def block_n(self) -> int:
        """Columns per block."""
        return self.lanes * self.vec

    @property
    def block_m(self) -> int:
        """Rows per block."""
        return self.warps * self.row_steps * self.sub

    def shared_bytes(self, segment_units: int) -> int:
        """Dynamic shared memory per block: in each stage a panel with its row of zeros, and a segment."""
        return self.stages * (4 * (self.block_k + 1) * self.block_n + 16 * (segment_units + 2 * self.sub))

    def __str__(self) -> str:
        text = f"m{self.block_m}_n{self.block_n}_k{self.block_k}_w{self.warps}_v{self.vec}_s{self.stages}"
        return f"{text}_p{self.producers}" if self.producers else text


@dataclass(frozen=True)
class Packed:
    """A matrix in the stream order of one tiling; see the header of `panel_spmm.cu`."""

    segments: NDArray[np.int32]
    """(groups * chunks + 1,) first unit of each group's chunks."""
    spans: NDArray[np.uint8]
    """(groups, chunks, warps, span bytes): each warp's first unit in the segment, then its units per row step."""
    row_ids: NDArray[np.int32]
    stream: NDArray[np.float32]
    """(units, 4) words: two {byte offset, value} pairs each."""
    fill: float
    """Stored pairs per nonzero: what balancing and padding cost."""


def _deal_side_by_side(lengths: NDArray[np.int64], tiling: Tiling, groups: int) -> NDArray[np.int64]:
    """(groups * warps, row_steps, sub): sub-rows that advance together are neighbours in length."""
    hands = groups * tiling.warps
    bundles, longest = bundled(lengths, hands * tiling.row_steps, tiling.sub)
    return bundles[deal_rows(longest, hands, tiling.row_steps)]


def pack(matrix: CSR, tiling: Tiling) -> Packed:
    """Orders the nonzeros of `matrix` as the warps of `tiling` meet them.

    Raises `Unsupported` where a row has more nonzeros in one chunk than a byte can count units.
    """
    groups = -(-matrix.m // tiling.block_m)
    chunks = -(-matrix.k // tiling.block_k)
    row_ids = _deal_side_by_side(matrix.row_lengths, tiling, groups)
    hands, steps, sub = row_ids.shape

    slot = np.empty(matrix.m, dtype=np.int64)  # the (warp, step, sub-row) that holds each row
    held = row_ids.ravel() >= 0
    slot[row_ids.ravel()[held]] = np.flatnonzero(held)
    rows = np.repeat(np.arange(matrix.m), matrix.row_lengths)
    chunk = matrix.indices // tiling.block_k
    segment = rows * chunks + chunk
    counts = np.bincount(segment, minlength=matrix.m * chunks).reshape(matrix.m, chunks)
    starts = np.concatenate([[0], np.cumsum(counts.ravel())[:-1]])
    position = np.arange(matrix.nnz) - starts[segment]

    in_slots = np.zeros((hands * steps * sub, chunks), dtype=np.int64)
    in_slots[slot] = counts
    units = -(-in_slots.reshape(hands, steps, sub, chunks).max(axis=2) // 2)  # (hands, steps, chunks)
    if units.size and units.max() > 255:
        raise Unsupported(f"a row has over 510 nonzeros in {tiling.block_k} columns")
    # (groups, chunks, warps, steps): the order in which a block meets its units
    units = units.reshape(groups, tiling.warps, steps, chunks).transpose(0, 3, 1, 2)
    ends = np.cumsum(units.ravel()) * sub
    first = (ends - units.ravel() * sub).reshape(units.shape)
    total = int(ends[-1]) if ends.size else 0
    segments = np.append(first[:, :, 0, 0].ravel(), total)

    hand, rest = np.divmod(slot[rows], steps * sub)
    step, lane_group = np.divmod(rest, sub)
    group, warp = np.divmod(hand, tiling.warps)
    unit = first[group, chunk, warp, step] + position // 2 * sub + lane_group
    stream = np.zeros(2 * max(total, 1), dtype=_PAIR)
    row_bytes = 4 * tiling.block_n
    stream["offset"] = tiling.block_k * row_bytes
    at = 2 * unit + position % 2
    stream["offset"][at] = (matrix.indices % tiling.block_k) * row_bytes
    stream["value"][at] = matrix.values

    spans = np.zeros((groups, chunks, tiling.warps, 4 + -(-steps // 4) * 4), dtype=np.uint8)
    starts_in_segment = first[..., 0] - first[:, :, :1, 0]
    spans[..., :4] = starts_in_segment.astype("<u4")[..., None].view(np.uint8)
    spans[..., 4 : 4 + steps] = units
    return Packed(
        segments=segments.astype(np.int32),
        spans=spans,
        row_ids=row_ids.astype(np.int32),
        stream=stream.view(np.float32).reshape(-1, 4),
        fill=2 * total / matrix.nnz if matrix.nnz else 1.0,
    )


# lanes, columns per lane, warps, row steps: what has won on an H200 for one size of product or another
_SHAPES = (
    (32, 4, 16, 4),
    (32, 4, 16, 2),
    (32, 4, 16, 8),
    (32, 4, 8, 4),
    (16, 4, 16, 4),
    (16, 4, 16, 2),
    (8, 4, 16, 4),
    (8, 4, 16, 2),
    (8, 4, 16, 1),
)
_SCALAR_SHAPES = ((32, 1, 16, 4), (32, 1, 16, 2))
"""For n that is no multiple of two, and for narrow products, where they win as well."""
_CHUNKS = {128: (64, 128), 64: (64, 128, 256), 32: (256,)}
"""Rows of B per chunk by tile width: wide tiles leave room for fewer."""
_LONG_K = 1024
"""From here on chunks are many enough that warps which only copy pay."""


def tilings(m: int, k: int, n: int, arch: str) -> Iterator[Tiling]:
    """Tilings worth trying: lanes that n fills, and enough blocks for every multiprocessor."""
    shapes = (_SHAPES if n % 2 == 0 else ()) + (_SCALAR_SHAPES if n % 2 or n < 256 else ())
    for lanes, vec, warps, row_steps in shapes:
        shape = Tiling(lanes, vec, warps, row_steps, 0, 3)
        blocks = -(-m // shape.block_m) * -(-n // shape.block_n)
        if shape.block_n >= 2 * max(n, 32) or shape.block_m >= 2 * m or blocks < sm_count(arch) // 4:
            continue
        longest = max(64, -(-k // 64) * 64)
        for block_k in dict.fromkeys(min(chunk, longest) for chunk in _CHUNKS[shape.block_n]):
            tiling = replace(shape, block_k=block_k, stages=3 if k > 2 * block_k else 2)
            yield tiling
            if architecture(arch).has("cp_async") and n % 4 == 0 and k >= _LONG_K and shape.block_n >= 64:
                yield replace(tiling, producers=4)


class Panel:
    """Own streaming SpMM for products whose B is re-used by 64 rows or more."""

    name = "panel"
    paper = "nnzbench"
    ops = frozenset({"spmm"})
    dtypes = frozenset({"f32"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """One plan per tiling; raises `Unsupported` where no tiling fills the GPU."""
        if operands.sparse.nnz == 0:
            raise Unsupported("the matrix has no nonzero")
        limit = block_shared_bytes(arch)
        found = False
        for tiling in tilings(problem.m, problem.k, problem.n, arch):
            plan = make_plan(problem, operands, tiling)
            if plan.launches[0].shared_bytes <= limit:
                found = True
                yield plan
        if not found:
            raise Unsupported(f"{problem.m}x{problem.k}x{problem.n} has too few tiles to fill the GPU")


def make_plan(problem: Problem, operands: Operands, tiling: Tiling) -> Plan:
    """The plan of one tiling for `problem`; `operands.dense["b"]` is (k, n)."""
    start = time.perf_counter()
    packed = pack(operands.sparse, tiling)
    b = operands.dense["b"]
    buffers: dict[str, NDArray[Any]] = {
        "segments": packed.segments,
        "spans": packed.spans,
        "row_ids": packed.row_ids,
        "stream": packed.stream,
        "b": b,
        "c": np.empty((problem.m, problem.n), dtype=np.float32),
    }
    fill = 4 if problem.n % 4 == 0 else 2 if problem.n % 2 == 0 else 1
    chunks = -(-problem.k // tiling.block_k)
    grid = (-(-problem.m // tiling.block_m), -(-problem.n // tiling.block_n), 1)
    block = (32 * (tiling.warps + tiling.producers), 1, 1)
    segment_units = int(np.diff(packed.segments).max(initial=0))
    args = (problem.k, problem.n, chunks, segment_units, "segments", "spans", "row_ids", "stream", "b", "c")
    return Plan(
        variant=str(tiling),
        language="cuda",
        source="panel_spmm.cu",
        defines={
            "LANES": tiling.lanes,
            "VEC": tiling.vec,
            "WARPS": tiling.warps,
            "ROW_STEPS": tiling.row_steps,
            "BLOCK_K": tiling.block_k,
            "STAGES": tiling.stages,
            "FILL": fill,
            "PRODUCERS": tiling.producers,
        },
        buffers=buffers,
        output="c",
        launches=(
            Launch(
                "panel_spmm",
                grid,
                block,
                args,
                tiling.shared_bytes(segment_units),
            ),
        ),
        generate_ms=1e3 * (time.perf_counter() - start),
    )


register(Panel())
