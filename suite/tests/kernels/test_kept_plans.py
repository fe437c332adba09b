"""What a variant's name stands for in published records changes on purpose alone: the plans of many small problems, in
their order, with launches, defines, programs and packed buffers to the bit, by one digest a kernel in kept_plans.csv.

    python suite/tests/kernels/test_kept_plans.py     writes the digests anew, where a change is meant
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from nnzbench.core.architectures import block_shared_bytes
from nnzbench.core.plan import Plan, Unsupported
from nnzbench.data.problems.operands import Operands, make_operands
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.kernels.registry import Kernel, kernels

KEPT = Path(__file__).with_name("kept_plans.csv")
PLANNED = {name: one for name, one in kernels().items() if isinstance(one, Kernel)}
ARCHITECTURES = ("sm_70", "sm_86", "sm_90", "sm_120")
MOST = 24
"""Plans of a problem."""
SIZES = ((37, 203, 1), (37, 200, 8), (300, 400, 32), (256, 512, 64), (64, 96, 128), (500, 640, 17)) * 2
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
            asked = asked[:2] if kernel.name.startswith("sparsert") else asked
        for m, k, n, zeros, source, conv in asked:
            if kernel.name == "balanced":  # and, of a row, a vector that takes several passes
                source, k = "balanced:16:1", 8192 if k == 200 else k
            m = k if op in ("attention", "sparse_softmax") else m
            k, n = (n, k) if op == "sddmm" else (k, {"spmv": 1, "attention": 32, "sparse_softmax": k}.get(op, n))
            problem = Problem("t", "t", op, m, k, n, zeros, source, dtype, conv=conv)  # type: ignore[arg-type]
            given = make_operands(problem)
            dense = {
                name: np.resize(np.arange(-3, 4), one.shape).astype(one.dtype) for name, one in given.dense.items()
            }
            values = np.resize([*range(-6, 0), *range(1, 8)], given.sparse.nnz).astype(given.sparse.values.dtype)
            yield problem, replace(given, sparse=given.sparse.with_values(values), dense=dense)


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


@pytest.mark.parametrize("name", PLANNED)
def test_plans_are_those_kept(name, cache_dir):
    with KEPT.open(newline="", encoding="utf-8") as stream:
        known = {row["kernel"]: (row["plans"], row["digest"]) for row in csv.DictReader(stream)}
    assert kept(PLANNED[name]) == known.get(name), "where this is meant: python suite/tests/kernels/test_kept_plans.py"


if __name__ == "__main__":
    with KEPT.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows([["kernel", "plans", "digest"]])
        csv.writer(stream, lineterminator="\n").writerows([name, *kept(one)] for name, one in PLANNED.items())
