"""Sputnik's SDDMM: dot products of dense rows at the nonzeros of a sparse pattern.

Gale, Zaharia, Young, Elsen: "Sparse GPU Kernels for Deep Learning", SC 2020, section VI.
`kernels_cu/sputnik_sddmm.cu` says who computes what.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nnzbench.core.architectures import sm_count
from nnzbench.core.plan import Array, Dim3, Int64s, Plan, SharedWork, Unsupported
from nnzbench.core.tiles import TileConfiguration
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.kernels import cost_rule
from nnzbench.kernels.registry import About, kernel
from nnzbench.kernels.rows import Storage, StripOrder, row_strips, vector_width
from nnzbench.kernels.sputnik import PAPER

_AHEAD = 8
"""Rows of B whose loads are issued before their arithmetic: one trip to memory."""
_OWN_REGISTERS = 20
"""Registers of a thread beside its sums and loads in flight: within 9 of what all strips compiled for sm_90 take."""


@dataclass(frozen=True)
class Strip(TileConfiguration):
    """How the outputs of a row are shared out."""

    DEFINES: ClassVar = {"items": "STRIP", "width": "BLOCK_WIDTH", "strips": "BLOCK_STRIPS", "by_columns": ""}
    items: int
    """Outputs per strip."""
    width: int
    """Threads per strip."""
    vector: int
    """Elements per load along k."""
    strips: int
    """Strips per block."""
    by_columns: bool = False
    """Strips of neighbouring columns run at the same time, so that L1 serves rows of B again (not in the paper)."""

    @property
    def name(self) -> str:
        return f"s{self.items}_w{self.width}_v{self.vector}_y{self.strips}" + "_bc" * self.by_columns

    @property
    def block(self) -> Dim3:
        return self.width, self.strips, 1


_SHAPES = {
    False: ((32, 32, 1), (32, 32, 4), (32, 16, 4), (16, 8, 8), (16, 16, 2), (8, 8, 4)),
    True: (
        (32, 8, 4), (32, 8, 16), (16, 8, 8), (16, 8, 32), (32, 16, 4), (32, 16, 16), (16, 16, 4), (16, 16, 16),
        (32, 32, 4), (32, 32, 16),
    ),
}  # fmt: skip
"""(outputs per strip, threads per strip, strips per block) of the candidates, by whether strips go by columns."""
_GROUP_BYTES = 1 << 16
"""Rows of B of one group of columns: a fraction of L1, because many strips run at a time."""


def heuristic_strip(k: int, itemsize: int) -> Strip:
    """The paper's choice (section VII): 32 outputs per strip, the widest vectors that k allows."""
    vector = vector_width(k, itemsize)
    return Strip(32, max(8, 32 // vector), vector, 4)


SCALAR = Strip(items=32, width=32, vector=1, strips=1)
"""Without vector instructions: 32 lanes load 32 neighbouring elements of a row, one each, and end with one output each.

The paper says no more of its scalar kernel than that it has fewer outputs per thread; tile and block are those of the
authors' public code, for both kernels 32 threads per block (google-research/sputnik, `sddmm/cuda_sddmm.cu.cc`).
"""


def candidates(k: int, itemsize: int) -> list[Strip]:
    """Strip configurations worth timing: short strips give small patterns enough blocks, narrow ones suit small k.

    Strips by columns come in larger blocks too: their rows of A read the same rows of B.
    """
    vector = vector_width(k, itemsize)
    strips = [
        Strip(items, width, vector, rows, by_columns)
        for by_columns, shapes in _SHAPES.items()
        for items, width, rows in shapes
        if width * vector < 2 * k or width == 8
    ]
    return [strip for strip in dict.fromkeys(strips) if strip != heuristic_strip(k, itemsize)]


def strip_features(strip: Strip, lengths: Int64s, k: int, itemsize: int, sms: int) -> dict[str, float]:
    """What `cost_rule` weighs: what a strip does with rows of these lengths, per multiprocessor where work adds up.

    `lengths` (m,) are the nonzeros of the pattern's rows. The order of strips has no feature: its factor tells.
    """
    strips = float((-(-lengths // strip.items)).sum())
    outputs = float(_AHEAD * (-(-lengths // _AHEAD)).sum())  # short strips repeat their last one
    steps = -(-k // (strip.width * strip.vector))
    warps = strip.width / 32  # per strip
    loads = steps * warps * max(1.0, strip.vector * itemsize / 4)  # 128-byte wavefronts for one row of A or B
    blocks = -(-strips // strip.strips)
    threads = strip.width * strip.strips
    registers = _OWN_REGISTERS + strip.items + _AHEAD * strip.vector * itemsize // 4
    resident = max(1, min(32, 2048 // threads, 65536 // (registers * threads)))
    longest = -(-min(strip.items, int(lengths.max(initial=0))) // _AHEAD)
    further = max(0.0, -(-blocks // (sms * resident)) - 1)
    return {
        "launch": 1.0,
        "wavefronts": outputs * loads / sms,
        "wavefronts_a": strips * loads / sms,
        "strips": strips * warps / sms,
        "trips": steps * (longest + further * outputs / _AHEAD / max(1.0, strips)),
    }


def rule_strip(pattern: CSR, k: int, itemsize: int, sms: int) -> Strip:
    """Our own choice: of the heuristic's strip and the other candidates, the one of least predicted cost."""
    lengths = pattern.row_lengths
    strips = (heuristic_strip(k, itemsize), *candidates(k, itemsize))
    return cost_rule.cheapest("sputnik_strip", strips, lambda strip: strip_features(strip, lengths, k, itemsize, sms))


def sddmm_plan(
    pattern: CSR,
    a: Array,
    b: Array,
    strip: Strip,
    label: str = "",
    order: StripOrder | None = None,
    shared: SharedWork | None = None,
) -> Plan:
    """The plan of D = (A B^T) at `pattern`'s nonzeros; `a` is (m, k), `b` (n, k), both float32 or both float16.

    `order` of strips: by default the longest first, or what the strip says. `shared` is what plans of one pattern
    share. Raises `Unsupported` where there is nothing to compute.
    """
    k = a.shape[1]
    if pattern.nnz == 0:
        raise Unsupported("the pattern has no nonzeros")
    storage = Storage.of(a.dtype, pattern.k)
    order = order or ("columns" if strip.by_columns else "length")
    group = max(1, _GROUP_BYTES // (k * a.itemsize))
    shared = shared or SharedWork()
    strips = shared.once((strip.items, order, group), lambda: row_strips(pattern, strip.items, order, group))
    buffers = {
        "strips": strips,
        "indices": shared.once(("indices", storage), lambda: storage.indices(pattern.indices)),
        "a": np.ascontiguousarray(a),
        "b": np.ascontiguousarray(b),
        "d": np.zeros(pattern.nnz, dtype=a.dtype),
    }
    grid, marks = (-(-len(strips) // strip.strips), 1, 1), (storage.name("n"),)
    sizes = (len(strips), k)
    return strip.plan("sputnik_sddmm", grid, sizes, buffers, defines=storage.defines, label=label, marks=marks)


@kernel(f"{PAPER}, section VI", "sddmm", "f32 f16", About("paper", paper_variants="heuristic_", rank=20))
def sputnik_sddmm(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """D = (A B^T) sampled by a pattern: our rule's strip (`rule_...`), the paper's (`heuristic_...`), then others."""
    pattern, a, b = operands.sparse, operands.dense["a"], operands.dense["b"]
    k, itemsize = a.shape[1], a.dtype.itemsize
    ruled, shared = rule_strip(pattern, k, itemsize, sm_count(arch)), SharedWork()
    yield sddmm_plan(pattern, a, b, ruled, "rule", shared=shared)
    yield sddmm_plan(pattern, a, b, heuristic_strip(k, itemsize), "heuristic", shared=shared)
    for strip in candidates(k, itemsize):
        if strip != ruled:
            yield sddmm_plan(pattern, a, b, strip, shared=shared)


ABLATION: dict[str, tuple[bool, StripOrder | None]] = {
    "complete": (True, None),
    "no_load_balancing": (True, "rows"),
    "no_vector": (False, None),
    "paper_order": (True, "swizzle"),
}
"""Of each variant of the ablation, whether it loads vectors, and its order of strips."""


@kernel(
    f"{PAPER}, table II",
    "sddmm",
    "f32 f16",
    About("paper", nothing_to_tune=True, study=True, study_variants=lambda _: tuple(ABLATION)),
)
def sputnik_sddmm_ablation(problem: Problem, operands: Operands, arch: str) -> Iterator[Plan]:
    """The heuristic's SDDMM, complete and with one optimisation removed at a time; `no_vector` is `SCALAR`.

    `paper_order` has the paper's row swizzle, which balancing left out is held against.
    """
    pattern, a, b = operands.sparse, operands.dense["a"], operands.dense["b"]
    strip = heuristic_strip(a.shape[1], a.dtype.itemsize)
    for name, (vector, order) in ABLATION.items():
        yield sddmm_plan(pattern, a, b, strip if vector else SCALAR, name, order)
