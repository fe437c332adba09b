"""What a variant's name stands for in published records changes on purpose alone: the plans of many small problems, in
their order, with launches, defines, programs and packed buffers to the bit, by one digest a kernel in kept_plans.csv;
and of sizes drawn up to the largest what tilings are worth trying, and how long the rules expect them to take.

    PYTHONPATH=suite/tests/helpers python suite/tests/kernels/test_kept_plans.py     writes them anew, if that is meant
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import astuple, is_dataclass, replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kernel_cases import CASES, MAKE, Case

from nnzbench.core.architectures import block_shared_bytes, sm_count
from nnzbench.core.plan import Plan, SharedWork, Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.matrices.prune import BalancedMatrix
from nnzbench.data.problems.operands import Operands, make_operands
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.kernels import balanced, cost_rule, eie, merge_spmm, pattern_conv, row_stream
from nnzbench.kernels.composed import decoder
from nnzbench.kernels.direct_conv.convolution import ConvModel
from nnzbench.kernels.registry import Kernel, about, kernels
from nnzbench.kernels.ring import sddmm as ring_sddmm
from nnzbench.kernels.ring import spmm as ring
from nnzbench.kernels.rows import Storage
from nnzbench.kernels.sparsert import paper_schedule
from nnzbench.kernels.sparsert.program import MatrixColumns
from nnzbench.kernels.sparsert.spmm import Planner
from nnzbench.kernels.sputnik import sddmm as strips
from nnzbench.kernels.sputnik import spmm as tiles
from nnzbench.kernels.tensor import spinfer, split_k
from nnzbench.kernels.tensor import spmm as tensor
from nnzbench.kernels.tensor import spmv as delta

KEPT = Path(__file__).with_name("kept_plans.csv")
PLANNED = {name: one for name, one in kernels().items() if isinstance(one, Kernel)}
ARCHITECTURES = ("sm_70", "sm_86", "sm_90", "sm_120")
MOST, DRAWS = 24, 100
"""Plans of a problem; sizes that are drawn."""
SIZES = ((37, 203, 1), (37, 200, 8), (300, 400, 32), (256, 512, 64), (64, 96, 128), (500, 640, 17)) * 2
LONG = (16, 70_000, 4, 0.999, "uniform:1", None)
"""Columns that no 16 bits count."""
MATRICES = list(zip((0.5, 0.9, 0.75, 0.95) * 3, ("uniform:1", "balanced:16:1", "cov:0.5:1") * 4, strict=True))
LAYERS = (ConvShape(2, 8, 9, 7, 12, 3, 3, 1, 1), ConvShape(1, 16, 14, 14, 32, 3, 3, 1, 1, stride=2))


def problems(kernel: Kernel) -> Iterator[tuple[Problem, Operands]]:
    """Of every operation and type of a kernel, on several kinds of matrix; of those whose code holds the matrix few.

    Numbers are the same on every machine, and 13 of them, as a codebook holds."""
    for op, dtype in ((op, dtype) for op in sorted(kernel.ops) for dtype in sorted(kernel.dtypes)):
        if op in ("conv1d", "conv2d", "depthwise"):
            convs = [replace(one, height=1, r=1, pad_h=0) if op == "conv1d" else one for one in LAYERS]
            source = "pattern:top8:norm:1" if kernel.name == "pattern_conv" else "uniform:1"
            sizes = [(c.filters, c.channels * c.r * c.s, c.batch * c.out_height * c.out_width) for c in convs]
            asked = [(*size, 0.6, source, c) for size, c in zip(sizes, convs, strict=True)]
        else:
            asked = [(*size, *of, None) for size, of in zip(SIZES, MATRICES, strict=True)]
            asked = asked[:2] if kernel.name.startswith("sparsert") else [*asked, LONG] if op == "spmm" else asked
        for m, k, n, zeros, source, conv in asked:
            source = f"vnm:64:2:{8 if n % 16 else 10}:1" if kernel.name == "venom" else source
            if kernel.name == "balanced":  # and, of a row, a vector that takes several passes
                source, k = "balanced:16:1", 8192 if k == 200 else k
            m = k if op in ("attention", "sparse_softmax") else m
            k, n = (n, k) if op == "sddmm" else (k, {"spmv": 1, "attention": 32, "sparse_softmax": k}.get(op, n))
            problem = Problem("t", "t", op, m, k, n, zeros, source, dtype, conv=conv)  # type: ignore[arg-type]
            given = make_operands(problem)
            dense = {
                name: np.resize(np.arange(-3, 4), one.shape).astype(one.dtype) for name, one in given.dense.items()
            }
            for sparse in (given.sparse, *[awkward(given.sparse)] * (conv is None and (m, n) == (37, 8))):
                numbers = [*range(-6, 0), *range(1, 8)] if sparse is given.sparse else [0, -1, 2]
                values = np.resize(numbers, sparse.nnz).astype(given.sparse.values.dtype)
                yield problem, replace(given, sparse=sparse.with_values(values), dense=dense)


def awkward(matrix: CSR) -> CSR:
    """Its pattern with rows that are empty, the first and the last among them, and one that is full."""
    mask = matrix.to_dense() != 0
    mask[[0, 5, 6, -1]], mask[9] = False, True
    return CSR.from_mask(mask.astype(np.float32), mask)


def of_plan(plan: Plan) -> str:
    """Everything but what its output buffer happens to hold."""
    digest = hashlib.sha256()
    for name, array in plan.buffers.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        if name not in (plan.output, "partial"):
            digest.update(np.ascontiguousarray(array).tobytes())
    of_program = plan.variant, plan.math, plan.tolerance, plan.source, sorted(plan.defines.items()), plan.features
    digest.update(repr((*of_program, plan.launches, plan.output, plan.unpermute is None)).encode())
    return digest.hexdigest()


def kept(kernel: Kernel) -> tuple[str, str]:
    """How many plans, and their digest; each fits the architecture and has a name of its own."""
    found: list[str] = []
    for problem, operands in problems(kernel):
        for arch in ARCHITECTURES[2:3] if kernel.name.startswith("sparsert") else ARCHITECTURES:
            try:
                plans = list(islice(kernel.plans(problem, operands, arch), MOST))
            except Unsupported as reason:
                found.append(str(reason))
                continue
            assert len({plan.variant for plan in plans}) == len(plans)
            for one in (launch for plan in plans for launch in plan.launches):
                assert one.shared_bytes <= block_shared_bytes(arch)
                assert math.prod(one.block) <= 1024
                assert max(one.grid[1:]) <= 65535
            found += map(of_plan, plans)
    return str(len(found)), hashlib.sha256("\n".join(found).encode()).hexdigest()[:12]


def drawn(number: int) -> Any:
    """Sizes of a product and of a convolution, small and large, round and not, with what follows from them."""
    rng = np.random.default_rng(number)

    def size(most: int, least: int = 1) -> int:
        step = 1 << int(rng.integers(7))
        return max(least, round(least * (most / least) ** rng.random() / step) * step)

    m, k, n, arch = size(16384, 16), size(16384, 16), size(4096), str(rng.choice(ARCHITECTURES))
    lengths = (k * float(rng.choice([0.01, 0.05, 0.2, 0.5, 0.8])) * 1.2 * (1 - rng.random(m) ** 5)).astype(np.int64) + 1
    nnz, half = int(lengths.sum()), bool(rng.integers(2))
    problem = Problem("t", "t", "spmm", m, k, n, 1 - nnz / (m * k), "balanced:16:1", "f16" if half else "f32")
    taps, stride = int(rng.choice([1, 3, 5])), int(rng.integers(1, 3))
    conv = ConvShape(
        size(8), size(128), *(size(64, 7), size(64, 7)), size(256, 8), *[taps] * 2, *[taps // 2] * 2, stride
    )
    weights = int(conv.filters * conv.channels * taps**2 * rng.random())
    return SimpleNamespace(
        m=m, k=k, n=n, nnz=nnz, arch=arch, sms=sm_count(arch), itemsize=4 - 2 * half, problem=problem, lengths=lengths,
        matrix=SimpleNamespace(m=m, k=k, nnz=nnz, row_lengths=lengths), conv=conv, dtype=problem.dtype,
        storage=Storage(half, half and k <= 65535), few=int(rng.integers(1, 400)), weights=weights,
    )  # fmt: skip


CHOICES: dict[str, Callable[[Any], object]] = {
    "balanced": lambda d: (balanced.strand_rows(d.few), balanced.wide_tilings(d.m, d.n, d.arch)),
    "cost_rule": lambda d: (
        cost_rule.ranked_families(d.matrix, d.n, d.dtype, d.sms),
        [
            cost_rule.family_features(one, d.k, d.n, d.lengths, itemsize=d.itemsize, sms=d.sms)
            for one in ("ring", "row_stream", "sputnik", "tensor_spmm", "delta_spmv")
        ],
    ),
    "decoder": lambda d: decoder.splitting(d.k, d.few, d.arch),
    "direct_conv": lambda d: [
        (one.name, model.cycles(one))
        for model in [ConvModel(d.conv, d.weights, d.itemsize, d.arch)]
        for one in model.candidates(6)
    ],
    "eie": lambda d: (
        eie.tilings(d.m, d.k, d.itemsize, d.arch),
        eie._part_columns(d.k, 8, d.itemsize, 512 * d.few),
        [(one, eie._cycles(d.m, d.k, d.nnz, one, d.arch)) for one in eie.column_tilings(d.m, d.k, d.nnz, d.arch)],
    ),
    "merge_spmm": lambda d: merge_spmm.merge_based(d.matrix),
    "pattern_conv": lambda d: [
        (one, pattern_conv.cycles(conv, 9 * d.few, one, d.itemsize, d.arch))
        for conv in [replace(d.conv, r=3, s=3, pad_h=d.conv.pad_h % 2, pad_w=d.conv.pad_h % 2)]
        for one in pattern_conv.tilings(conv, 9 * d.few, d.itemsize, d.arch)
    ],
    "ring": lambda d: [
        (one, ring._cycles(one, problem, lengths, d.sms, 0.1))
        for problem, lengths in [(replace(d.problem, m=min(d.m, 1024)), d.lengths[:1024])]
        for one in ring.tilings(problem, lengths, d.arch)
    ],
    "ring_sddmm": lambda d: [
        (one, ring_sddmm._cycles(one, d.problem, d.nnz, d.sms)) for one in ring_sddmm.tilings(d.problem, d.nnz, d.arch)
    ],
    "row_stream": lambda d: [
        (one, row_stream._cycles(one, d.lengths, d.n, d.storage, d.sms))
        for one in row_stream.tilings(d.matrix, d.n, d.arch, d.storage)
    ],
    "sparsert": lambda d: Planner(d.matrix, MatrixColumns(d.n), d.arch, d.itemsize).grid(),
    "sparsert_paper": lambda d: (paper_schedule.grid(d.m, d.n), paper_schedule.widest_blocks(d.m, d.n)),
    "spinfer": lambda d: [spinfer._resident(one, d.arch) for one in split_k.COLUMNS],
    "split_k": lambda d: split_k.parts_to_try(-(-d.k // 64), d.few, d.arch, 1 + d.few % 4),
    "sputnik": lambda d: [
        (one, label, tiles.tile_features(one, d.lengths, d.n, d.itemsize, d.sms))
        for one, label in tiles.labelled_tiles(
            d.m, d.n, d.itemsize, tiles.rule_tile(d.matrix, d.n, d.itemsize, d.sms)
        )
    ],
    "sputnik_sddmm": lambda d: [
        (one, strips.strip_features(one, d.lengths, d.k, d.itemsize, d.sms))
        for one in (strips.rule_strip(d.matrix, d.k, d.itemsize, d.sms), *strips.candidates(d.k, d.itemsize))
    ],
    "tensor_spmm": lambda d: [
        (one, tensor._cost(one, d.m, d.k, d.n, d.arch))
        for math_class in ("f16", "tf32", "f8")
        for one in tensor.tilings(d.problem, d.matrix, d.arch, math_class)
    ],
    "bytes": lambda d: [
        [rule(replace(d.problem, dtype=dtype), d.nnz) for rule in rules if rule]
        for one in kernels()
        for rules in [(about(one).structure_bytes, about(one).operand_bytes)]
        for dtype in ("f32", "f16", "f8")
    ],
}  # fmt: skip
"""What follows from sizes alone, by the kernel whose it is; a reason where that is none."""


def told(found: object) -> str:
    """Six digits of its numbers: sums of many end otherwise on other processors."""
    if is_dataclass(found):
        found = astuple(found)  # type: ignore[arg-type]
    if isinstance(found, dict):
        found = [*found.items()]
    if isinstance(found, list | tuple):
        return f"[{', '.join(map(told, found))}]"
    return f"{float(found):.6g}" if isinstance(found, float | np.floating) else str(found)


def chosen(name: str) -> tuple[str, str]:
    """How many choices, and their digest."""
    found = []
    for number in range(DRAWS):
        try:
            found.append(told(CHOICES[name](drawn(number))))
        except Unsupported as reason:
            found.append(str(reason))
    return str(len(found)), hashlib.sha256("\n".join(found).encode()).hexdigest()[:12]


def those_kept() -> dict[str, tuple[str, str]]:
    with KEPT.open(newline="", encoding="utf-8") as stream:
        return {row["kernel"]: (row["plans"], row["digest"]) for row in csv.DictReader(stream)}


MEANT = "where this is meant: PYTHONPATH=suite/tests/helpers python suite/tests/kernels/test_kept_plans.py"


@pytest.mark.parametrize("name", PLANNED)
def test_plans_are_those_kept(name, cache_dir):
    assert kept(PLANNED[name]) == those_kept().get(name), MEANT


@pytest.mark.parametrize("name", PLANNED)
def test_what_plans_share_is_what_each_makes_alone(name, cache_dir, differing):
    for problem, operands in islice(problems(PLANNED[name]), 1 if name.startswith("sparsert") else 3):
        with suppress(Unsupported):
            assert list(PLANNED[name].plans(problem, operands, "sm_90"))
    assert not differing


def around(how):
    """A tiling, or what else says how a plan is made, and those that differ from it in one place."""
    yield how
    if isinstance(how, bool):
        yield not how
    elif isinstance(how, int):
        yield from {2 * how, -(-how // 2)}
    elif isinstance(how, tuple):
        yield from ((*how[:at], one, *how[at + 1 :]) for at, mine in enumerate(how) for one in [*around(mine)][1:])
    elif is_dataclass(how):
        for name, mine in vars(how).items():
            yield from (replace(how, **{name: one}) for one in [*around(mine)][1:])


TILED = ("ring", "ring_sddmm", "row_stream", "eie", "balanced", "tensor_spmm", "delta_spmv", "venom", "sputnik_sddmm")


@pytest.mark.parametrize("name", TILED)
def test_what_tilings_share_is_what_each_makes_alone(name, differing, monkeypatch):
    held, made, planned = {}, {}, 0
    hows = dict.fromkeys((one.how, one.dtype) for one in CASES if one.kernel == name)
    for (m, k, density), (how, dtype) in itertools.product(((45, 330, 0.2), (45, 70, 0.2), (9, 30_000, 0.02)), hows):
        for other in around(how) if k < 1000 or name == "eie" else ():
            key = k, dtype, other[0] if name == "balanced" else None  # ranges are the matrix's
            n = {"sputnik_sddmm": 2000, "ring_sddmm": 36, "delta_spmv": 3, "eie": 4}.get(name, 1)
            with suppress(Exception):  # many make no sense
                case = Case(name, (m, k, n), density, other, dtype, rows="none" if name == "venom" else "some")
                problem, data = held[key] = held.get(key) or case.operands()
                mine = {"_made": made.setdefault(key, {}), "_saved": 0.0}
                monkeypatch.setattr(SharedWork, "__init__", lambda self, mine=mine: vars(self).update(mine))
                planned += MAKE[name](problem, data, other) is not None
    assert planned
    assert not differing


@pytest.mark.parametrize("name", CHOICES)
def test_what_rules_choose_is_what_is_kept(name):
    assert chosen(name) == those_kept().get(f"{name}, by sizes"), MEANT


def test_one_byte_and_two_count_so_many_columns_and_no_more():
    def last(k: int) -> CSR:
        """One row, whose last column alone has an entry."""
        return CSR(1, k, np.array([0, 1], np.int32), np.array([k - 1], np.int32), np.ones(1, np.float16))

    half, single = np.dtype(np.float16), np.dtype(np.float32)
    assert [Storage.of(half, k).short_index for k in (65535, 65536)] == [True, False]
    assert not Storage.of(single, 8).short_index
    widths = [BalancedMatrix.from_csr(last(k), 1).positions.dtype.itemsize for k in (256, 257, 65536)]
    assert widths == [1, 2, 2]
    assert delta.pack(last(65536))["near"].size
    for packs in (delta.pack, lambda matrix: BalancedMatrix.from_csr(matrix, 1)):
        with pytest.raises(ValueError, match=r"two bytes|16 bits"):
            packs(last(65537))


if __name__ == "__main__":
    with KEPT.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows([["kernel", "plans", "digest"]])
        csv.writer(stream, lineterminator="\n").writerows([name, *kept(one)] for name, one in PLANNED.items())
        csv.writer(stream, lineterminator="\n").writerows([f"{name}, by sizes", *chosen(name)] for name in CHOICES)
