"""Sputnik's SDDMM: dot products of dense rows at the nonzeros of a sparse pattern.

Gale, Zaharia, Young, Elsen: "Sparse GPU Kernels for Deep Learning", SC 2020, section VI.
`kernels_cu/sputnik_sddmm.cu` says who computes what.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nnzbench.kernel import Array, Launch, Plan, Unsupported, register
from nnzbench.matrices.formats import CSR
from nnzbench.operands import Operands
from nnzbench.problem import Problem
from nnzbench.sparse_rows import padded, row_strips, vector_width

SOURCE = "sputnik_sddmm.cu"


@dataclass(frozen=True)
class Strip:
    """One tile configuration; the fields are the defines of the `.cu` file."""

    items: int
    """Outputs per strip."""
    width: int
    """Threads per strip."""
    vector: int
    """Elements per load along k."""
    strips: int
    """Strips per block."""

    @property
    def name(self) -> str:
        return f"s{self.items}_w{self.width}_v{self.vector}_y{self.strips}"


def heuristic_strip(k: int, itemsize: int) -> Strip:
    """The paper's choice (section VII): 32 outputs per strip, the widest vectors that k allows."""
    vector = vector_width(k, itemsize)
    return Strip(32, max(8, 32 // vector), vector, 4)


def candidates(k: int, itemsize: int) -> list[Strip]:
    """Strip configurations worth timing: short strips give small patterns enough blocks, narrow ones suit small k."""
    vector = vector_width(k, itemsize)
    shapes = (
        (32, 32, 1),
        (32, 32, 4),
        (32, 16, 4),
        (32, 16, 8),
        (16, 8, 8),
        (16, 8, 16),
        (16, 16, 2),
        (8, 8, 4),
        (64, 32, 2),
    )
    strips = [
        Strip(items, width, vector, rows) for items, width, rows in shapes if width * vector < 2 * k or width == 8
    ]
    return [strip for strip in dict.fromkeys(strips) if strip != heuristic_strip(k, itemsize)]


def sddmm_plan(
    pattern: CSR,
    a: Array,
    b: Array,
    strip: Strip,
    label: str = "",
    load_balancing: bool = True,
    vector: bool = True,
) -> Plan:
    """The plan of D = (A B^T) at `pattern`'s nonzeros; `a` is (m, k), `b` (n, k), both float32 or both float16.

    `load_balancing` starts long strips first; without `vector` every load is of one element. Raises `Unsupported` where
    there is nothing to compute.
    """
    k = a.shape[1]
    if pattern.nnz == 0:
        raise Unsupported("the pattern has no nonzeros")
    if not vector:
        strip = replace(strip, vector=1)
    half = a.dtype == np.float16
    short_index = half and pattern.k <= 65535
    strips = row_strips(pattern, strip.items, load_balancing)
    count = len(strips)
    defines = {
        "BLOCK_WIDTH": strip.width,
        "BLOCK_STRIPS": strip.strips,
        "STRIP": strip.items,
        "VECTOR": strip.vector,
        "F16": int(half),
        "INDEX16": int(short_index),
    }
    buffers: dict[str, Array] = {
        "strips": strips,
        "indices": padded(pattern.indices.astype(np.uint16 if short_index else np.int32)),
        "a": np.ascontiguousarray(a),
        "b": np.ascontiguousarray(b),
        "d": np.zeros(pattern.nnz, dtype=a.dtype),
    }
    grid = (-(-count // strip.strips), 1, 1)
    arguments = (count, k, "strips", "indices", "a", "b", "d")
    launch = Launch("sputnik_sddmm", grid, (strip.width, strip.strips, 1), arguments)
    parts = [label, strip.name]
    if half:
        parts.append("i16" if short_index else "i32_n_above_65535")
    return Plan(
        variant="_".join(part for part in parts if part),
        language="cuda",
        source=SOURCE,
        defines=defines,
        buffers=buffers,
        output="d",
        launches=(launch,),
        math="f16" if half else "f32",
    )


@dataclass(frozen=True)
class SputnikSddmm:
    """D = (A B^T) sampled by a pattern: the paper's strip first, then the other candidates."""

    name: str = "sputnik_sddmm"
    paper: str = "Gale, Zaharia, Young, Elsen: Sparse GPU Kernels for Deep Learning, SC 2020, section VI"
    ops: frozenset[str] = frozenset({"sddmm"})
    dtypes: frozenset[str] = frozenset({"f32", "f16"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """The heuristic's plan (`heuristic_...`), then one per candidate."""
        a, b = operands.dense["a"], operands.dense["b"]
        yield sddmm_plan(operands.sparse, a, b, heuristic_strip(a.shape[1], a.dtype.itemsize), "heuristic")
        for strip in candidates(a.shape[1], a.dtype.itemsize):
            yield sddmm_plan(operands.sparse, a, b, strip)


@dataclass(frozen=True)
class SputnikSddmmAblation:
    """The heuristic's SDDMM, complete and with one optimisation removed at a time (the paper's table II)."""

    name: str = "sputnik_sddmm_ablation"
    paper: str = "Gale, Zaharia, Young, Elsen: Sparse GPU Kernels for Deep Learning, SC 2020, table II"
    ops: frozenset[str] = frozenset({"sddmm"})
    dtypes: frozenset[str] = frozenset({"f32", "f16"})

    def plans(self, problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
        """Variants `complete`, `no_load_balancing`, `no_vector`."""
        pattern, a, b = operands.sparse, operands.dense["a"], operands.dense["b"]
        strip = heuristic_strip(a.shape[1], a.dtype.itemsize)
        yield sddmm_plan(pattern, a, b, strip, "complete")
        yield sddmm_plan(pattern, a, b, strip, "no_load_balancing", load_balancing=False)
        yield sddmm_plan(pattern, a, b, strip, "no_vector", vector=False)


register(SputnikSddmm())
register(SputnikSddmmAblation())
