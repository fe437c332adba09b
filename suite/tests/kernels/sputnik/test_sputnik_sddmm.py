from dataclasses import replace

import numpy as np
import pytest
from kernel_problems import sampled, without_columns
from on_cpu import execute, matrix

from nnzbench.core import paths
from nnzbench.core.plan import Launch, Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import reference
from nnzbench.kernels.registry import kernels
from nnzbench.kernels.rows import row_strips
from nnzbench.kernels.sputnik.sddmm import (
    SCALAR,
    Strip,
    sddmm_plan,
)

VECTOR = Strip(items=16, width=8, vector=4, strips=4)


def factors(pattern, k):
    dense = sampled(pattern, k)[1].dense
    return dense["a"], dense["b"]


def expected(pattern, a, b):
    problem = Problem("test", "t", "sddmm", pattern.m, a.shape[1], pattern.k, 0.0, "")
    return reference(problem, Operands(pattern, {"a": a, "b": b}, ""))


@pytest.mark.parametrize("k", [1, 7, 31, 32, 33, 49, 100])
def test_without_vectors_32_lanes_load_32_neighbours(k):
    pattern = matrix(37, 70, empty=(0, 5, 36), full=9)
    a, b = factors(pattern, k)
    problem = Problem("test", "t", "sddmm", pattern.m, k, pattern.k, 0.7, "")
    operands = Operands(pattern, {"a": a, "b": b}, "")
    plans = list(kernels()["sputnik_sddmm_ablation"].plans(problem, operands, "sm_90"))
    scalar, swizzled = plans[2:]
    assert [plan.variant.split("_s32")[0] for plan in plans[:3]] == ["complete", "no_load_balancing", "no_vector"]
    rows = swizzled.buffers["strips"][:, 0]
    assert (np.diff(pattern.row_lengths[rows]) <= 0).all()
    assert np.count_nonzero(np.diff(rows)) == len(set(rows)) - 1  # a row's strips stay together
    assert len(rows) == len(plans[0].buffers["strips"])
    assert (scalar.variant, scalar.launches[0].block) == ("no_vector_s32_w32_v1_y1", (32, 1, 1))
    assert {scalar.defines[name] for name in ("BLOCK_WIDTH", "STRIP")} == {32}
    assert scalar.defines["VECTOR"] == 1
    assert plans[0].launches[0].block[0] * plans[0].defines["VECTOR"] == 32
    for build in ("asan", "tsan") if k in (33, 49) else ("plain",):
        assert passes(relative_error(execute(scalar, build), expected(pattern, a, b)), "f32")


def test_unused_rows_of_b_never_leak():
    pattern = CSR.from_dense(without_columns(matrix(23, 40, density=0.4).to_dense(), 0, 7, 39))
    a, b = factors(pattern, 36)
    truth = expected(pattern, a, b)
    b[[0, 7]], b[39] = np.nan, np.inf
    assert passes(relative_error(execute(sddmm_plan(pattern, a, b, VECTOR)), truth), "f32")


def test_rows_of_b_lie_beyond_2_gib_too():
    """The third row of a gibibyte each, of which only that one is there."""
    pattern = matrix(6, 19, density=0.5)
    plan = sddmm_plan(pattern, *factors(pattern, 1), SCALAR)
    entry = """
extern "C" __global__ void third(const float* x, float* y) {
    y[0] = load_row(x - (3LL << 28), 3, 1 << 30).at[0];
}
"""
    text = (paths.kernels_cu() / plan.source).read_text() + entry
    buffers = {"x": np.array([7], np.float32), "y": np.zeros(1, np.float32)}
    launch = Launch("third", (1, 1, 1), (1, 1, 1), ("x", "y"))
    assert execute(replace(plan, source=text, buffers=buffers, output="y", launches=(launch,), unpermute=None)) == 7


def test_no_nonzeros_is_unsupported():
    pattern = matrix(3, 4, density=0.0)
    with pytest.raises(Unsupported, match="no nonzeros"):
        sddmm_plan(pattern, *factors(pattern, 8), VECTOR)


@pytest.mark.parametrize("order", ["rows", "length", "columns"])
def test_strips_cover_every_entry_once(order):
    pattern = matrix(20, 50, empty=(4,), full=11)
    strips = row_strips(pattern, 16, order, 10)
    lengths = strips[:, 2] - strips[:, 1]
    assert lengths.min() > 0
    assert lengths.max() == 16
    covered = np.concatenate([np.arange(first, end) for _, first, end, _ in strips])
    assert sorted(covered) == list(range(pattern.nnz))
    assert (pattern.offsets[strips[:, 0]] <= strips[:, 1]).all()
    assert (strips[:, 2] <= pattern.offsets[strips[:, 0] + 1]).all()
    assert (np.diff(lengths) <= 0).all() == (order == "length")
    groups = pattern.indices[strips[:, 1]] // 10
    assert (np.diff(groups) >= 0).all() == (order == "columns")
    if order == "columns":
        assert all((np.diff(lengths[groups == group]) <= 0).all() for group in range(5))
