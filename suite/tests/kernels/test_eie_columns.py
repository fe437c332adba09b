"""EIE's columns and its queue of nonzero inputs, against float64 on the processor."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from kernel_problems import coded_operands
from on_cpu import check, execute, fresh_cache, matrix, mutated, spmm_operands, spmm_problem  # noqa: F401

from nnzbench.kernels.eie import ColumnTiling, column_tilings, columns_of, columns_plan, eie_columns
from nnzbench.matrices.encodings import Coded
from nnzbench.matrices.formats import CSR
from nnzbench.plans.architectures import block_shared_bytes
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.operands import make_operands
from nnzbench.problems.problem import Problem


def case(m, k, inputs, density=0.2, dtype="f32", **rows):
    """A product whose input has that share of nonzeros."""
    data = coded_operands(m, k, 1, density, dtype, **rows)
    x = data.dense["b"].copy()
    x[np.random.default_rng(1).random(x.shape) >= inputs] = 0
    return replace(data, dense={"b": x})


def test_entries_hold_the_columns_of_each_slice():
    coded = Coded.of(case(70, 33, 1.0, empty=(3, 69), full=40).sparse)
    entries, starts = columns_of(coded, 32)
    assert starts.shape == (3, 34)
    dense = np.zeros((70, 33), np.float32)
    for slice, begins in enumerate(starts):
        for column, (first, end) in enumerate(itertools.pairwise(begins)):
            rows = 32 * slice + (entries[first:end] >> 4)
            assert (np.diff(rows) > 0).all()
            dense[rows, column] = coded.codebook[entries[first:end] & 15]
    assert np.array_equal(dense, coded.pattern.to_dense())


# one row and column, an odd count of both, more columns than a block's, full columns, a slice of several rounds
@pytest.mark.parametrize(
    ("m", "k", "inputs", "tiling", "dtype", "build"),
    [
        (1, 1, 1.0, ColumnTiling(32, 1, 1), "f32", "asan"),
        (37, 203, 0.4, ColumnTiling(32, 2, 1), "f32", "tsan"),
        (300, 700, 0.1, ColumnTiling(128, 4, 2), "f16", "asan"),
        (65, 64, 0.0, ColumnTiling(64, 2, 4), "f16", "plain"),
        (1000, 130, 0.7, ColumnTiling(1024, 1, 1), "f32", "tsan"),
    ],
)
def test_awkward_sizes_under_sanitizers(m, k, inputs, tiling, dtype, build):
    data = case(m, k, inputs, dtype=dtype, empty=(0,) if m > 1 else (), full=m // 2)
    check(columns_plan(Coded.of(data.sparse), data.dense["b"], tiling), spmm_problem(data), data, build, "random:3")


def test_columns_of_zero_inputs_are_not_read():
    data = case(40, 96, 0.3)
    plan = columns_plan(Coded.of(data.sparse), data.dense["b"], ColumnTiling(64, 1, 1))
    dead = np.flatnonzero(data.dense["b"][:, 0] == 0)
    entries = plan.buffers["entries"].copy()
    for column in dead:
        entries[plan.buffers["starts"][0, column] : plan.buffers["starts"][0, column + 1]] ^= 0xFFF0 >> 1 & 0x3F0
    check(replace(plan, buffers={**plan.buffers, "entries": entries}), spmm_problem(data), data)


def test_a_matrix_without_nonzeros_gives_zeros():
    data = spmm_operands(CSR.from_dense(np.zeros((5, 40), np.float32)), 1)
    assert not execute(columns_plan(Coded.of(data.sparse), data.dense["b"], ColumnTiling(32, 2, 1))).any()


def test_a_second_launch_finds_nobody_arrived():
    data = case(70, 700, 0.4)
    plan = columns_plan(Coded.of(data.sparse), data.dense["b"], ColumnTiling(32, 2, 1))
    check(replace(plan, launches=plan.launches * 2), spmm_problem(data), data, "tsan", "random:1")


def test_more_values_than_a_codebook_holds_are_refused():
    data = spmm_operands(matrix(9, 64), 1)
    with pytest.raises(Unsupported, match="more than 15 different values"):
        list(eie_columns.plans(spmm_problem(data), data, "sm_90"))


@pytest.mark.parametrize(("m", "k"), [(4096, 25088), (600, 4096), (8791, 600), (1, 1)])
def test_tilings_fit(m, k):
    for arch in ("sm_70", "sm_90"):
        found = column_tilings(m, k, m * k // 10, arch)
        assert len({one.name for one in found}) == len(found)
        assert all(one.shared_bytes <= block_shared_bytes(arch) for one in found)


def test_inputs_of_a_density_are_positive_and_counted():
    problem = Problem("t", "t", "spmv", 8, 4096, 1, 0.9, "sparse_inputs:35.3:codebook_uniform:0")
    data = make_operands(problem)
    b = data.dense["b"]
    assert (b >= 0).all()
    assert np.count_nonzero(b) == round(0.353 * 4096)
    whole = make_operands(replace(problem, source="codebook_uniform:0"))
    assert data.pattern == whole.pattern
    assert np.array_equal(data.sparse.values, whole.sparse.values)
