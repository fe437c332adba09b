"""EIE's format against what it encodes, and both its kernels against float64 on the processor."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from kernel_problems import coded_operands as case
from on_cpu import check as check_plan
from on_cpu import matrix, spmm_operands, spmm_problem

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices import encodings
from nnzbench.data.matrices.encodings import Coded, slices
from nnzbench.data.matrices.formats import CSR, MatrixError
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.sources import load_sparse, range_count
from nnzbench.kernels import eie
from nnzbench.kernels.eie import ColumnTiling, columns_plan, eie_columns


def plan(data, tiling, arch="sm_80"):
    return eie.make_plan(Coded.of(data.sparse), data.dense["b"], tiling, arch)


def check(data, one, build="plain", order="forward"):
    check_plan(one, spmm_problem(data), data, build, order)


def test_a_matrix_without_nonzeros_gives_zeros():
    data = spmm_operands(matrix(5, 40, 0.0), 1)
    check(data, plan(data, eie.EieTiling(32, 4)))
    check(data, columns_plan(Coded.of(data.sparse), data.dense["b"], ColumnTiling(32, 2, 1)))


@pytest.mark.parametrize("bulk", [False, True])
def test_x_that_does_not_fit_comes_in_parts(bulk):
    data = case(9, 30000, 4, 0.02, full=3)
    one = plan(data, eie.EieTiling(32, 4, bulk=bulk))
    assert one.launches[0].args[3] == 4
    check(data, one)
    check(data, one, "tsan")


@pytest.mark.parametrize(("k", "n", "dtype"), [(204, 1, "f32"), (204, 8, "f16"), (28, 4, "f32"), (24, 2, "f16")])
def test_the_copy_engine_brings_x_where_it_lies_as_slots_do(k, n, dtype):
    data = case(37, k, n, 0.1, dtype, empty=(0, 36), full=9)
    names = [one.variant for one in eie.eie.plans(spmm_problem(data), data, "sm_90")]
    assert any(name.endswith("_bulk") for name in names)
    assert not any("bulk" in one.variant for one in eie.eie.plans(spmm_problem(data), data, "sm_89"))
    check(data, plan(data, eie.EieTiling(32, 4, bulk=True), "sm_90"), "asan", "random:5")


@pytest.mark.parametrize(("lanes", "part"), [(32, 640), (16, 320), (8, 40)])
def test_there_are_as_many_places_as_a_lane_reads(lanes, part):
    dense = np.random.default_rng(lanes).random((64, 640)) < 0.9
    dense[:5, :-1] = False  # rows with fewer packs than all read
    packed = eie.pack(slices(Coded.of(CSR.from_dense(dense.astype(np.float32))), lanes, part), part)
    common, rest = (1 + (entries >> 4).astype(int) for entries in (packed.common, packed.rest))
    reach = common.sum(axis=(2, 4)).reshape(-1, 32)
    for item, (begin, end) in enumerate(pairwise(packed.offsets)):
        reach[item] += rest[begin:end].sum(axis=(0, 2))
    assert packed.places == max(reach.max(), -(-part // lanes))


def test_more_values_than_a_codebook_holds_are_refused_and_so_are_many_columns():
    for kernel, data, words in (
        (eie.eie, spmm_operands(matrix(4, 64), 1), "more than 15 different values"),
        (eie_columns, spmm_operands(matrix(9, 64), 1), "more than 15 different values"),
        (eie.eie, case(4, 64, 17), "at most 16"),
    ):
        with pytest.raises(Unsupported, match=words):
            list(kernel.plans(spmm_problem(data), data, "sm_90"))


def test_clusters_are_the_values_where_there_are_few_and_near_them_where_there_are_many():
    few = np.array([3.0, -1.0, 0.5, 3.0])
    assert encodings.cluster(few).tolist() == [-1.0, 0.5, 3.0]
    many = np.random.default_rng(0).standard_normal(20000)
    centres = encodings.cluster(many)
    assert centres.size == 15
    assert np.array_equal(centres, centres.astype(np.float16))
    means = [many[encodings.nearest(many, centres) == centre].mean() for centre in centres]
    assert np.allclose(means, centres, atol=2e-2)
    with pytest.raises(MatrixError, match="finite"):
        encodings.cluster(np.array([1e30]))


def test_fixed_point_steps_are_the_power_of_two_that_the_largest_value_asks_for():
    values = np.array([0.6, -0.01, 0.004, 0.25])
    assert encodings.linear(values, 8).tolist() == [77 / 128, -1 / 128, 1 / 128, 32 / 128]
    assert encodings.linear(np.array([3.9, 0.3]), 4).tolist() == [3.5, 0.5], "the largest is 7 steps of a half"
    assert encodings.linear(np.array([-1.0, 1.0]), 4).tolist() == [-1.0, 0.875], "two's complement reaches less above"


@pytest.mark.parametrize(("source", "ranges"), [("uniform:0", 32), ("balanced:8:0", 8), ("balanced:0", 32)])
def test_sources_with_shared_values_keep_their_pattern_and_ranges(source, ranges):
    one = Problem("t", "t", "spmv", 16, 256, 1, 0.5, source)
    other = replace(one, source=f"codebook_{source}")
    assert load_sparse(one).pattern_hash() == load_sparse(other).pattern_hash()
    assert np.unique(load_sparse(other).values).size == 15
    assert range_count(one) == range_count(other) == ranges
    assert range_count(replace(one, source="balanced:0", k=27)) == 27


def test_a_zero_that_is_stored_has_the_index_of_zero():
    matrix = CSR.from_dense(np.array([[1.0, 2.0, 3.0]], np.float32)).with_values(np.array([2.0, 0.0, 3.0], np.float32))
    coded = Coded.of(matrix)
    assert coded.codes.tolist() == [1, 0, 2]
    np.testing.assert_array_equal(coded.codebook[coded.codes], matrix.values)


def inputs_case(m, k, inputs, dtype="f32", **rows):
    """A product whose input has that share of nonzeros."""
    data = case(m, k, 1, 0.2, dtype, **rows)
    x = data.dense["b"].copy()
    x[np.random.default_rng(1).random(x.shape) >= inputs] = 0
    return replace(data, dense={"b": x})


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
def test_awkward_sizes_of_columns_under_sanitizers(m, k, inputs, tiling, dtype, build):
    data = inputs_case(m, k, inputs, dtype=dtype, empty=(0,) if m > 1 else (), full=m // 2)
    check(data, columns_plan(Coded.of(data.sparse), data.dense["b"], tiling), build, "random:3")


def test_columns_of_zero_inputs_are_not_read():
    data = inputs_case(40, 96, 0.3)
    plan = columns_plan(Coded.of(data.sparse), data.dense["b"], ColumnTiling(64, 1, 1))
    dead = np.flatnonzero(data.dense["b"][:, 0] == 0)
    entries = plan.buffers["entries"].copy()
    for column in dead:
        entries[plan.buffers["starts"][0, column] : plan.buffers["starts"][0, column + 1]] ^= 0xFFF0 >> 1 & 0x3F0
    check(data, replace(plan, buffers={**plan.buffers, "entries": entries}))


def test_a_second_launch_finds_nobody_arrived():
    data = inputs_case(70, 700, 0.4)
    plan = columns_plan(Coded.of(data.sparse), data.dense["b"], ColumnTiling(32, 2, 1))
    check(data, replace(plan, launches=plan.launches * 2), "tsan", "random:1")


def test_inputs_of_a_density_are_positive_and_counted():
    problem = Problem("t", "t", "spmv", 8, 4096, 1, 0.9, "sparse_inputs:35.3:codebook_uniform:0")
    data = make_operands(problem)
    b = data.dense["b"]
    assert (b >= 0).all()
    assert np.count_nonzero(b) == round(0.353 * 4096)
    whole = make_operands(replace(problem, source="codebook_uniform:0"))
    assert data.pattern == whole.pattern
    assert np.array_equal(data.sparse.values, whole.sparse.values)
