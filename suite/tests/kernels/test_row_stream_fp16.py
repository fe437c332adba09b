"""`row_stream` in fp16 against float64 on the processor, and its packed pairs against the matrix they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_problems import operands_of, random_dense
from numpy.typing import NDArray
from on_cpu import spmm_problem as problem

from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.kernels import row_stream
from nnzbench.kernels.row_stream import Tiling
from nnzbench.kernels.rows import Storage
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Plan
from nnzbench.problems.operands import Operands
from nnzbench.problems.reference import reference

SHORT = Storage(half=True, short_index=True)
TILINGS = (
    Tiling(16, 8, 8, 64, 8),
    Tiling(4, 8, 32, 16, 16),
    Tiling(32, 4, 4, 32, 16),
    Tiling(32, 2, 8, 16, 4),
    Tiling(8, 1, 16, 32, 16),
)
# m, k, n, density: edges of tiles, one column, rows of B that no vector fits, few and many nonzeros
SHAPES = (
    (70, 130, 136, 0.1),
    (37, 65, 49, 0.2),
    (13, 64, 7, 0.5),
    (1, 300, 1, 0.1),
    (33, 40, 36, 1.0),
    (9, 50, 98, 0.2),
)


def operands(dense: NDArray[Any], n: int) -> Operands:
    return operands_of(dense, n).cast("f16")


def planned(data: Operands, tiling: Tiling) -> Plan:
    longest = int(data.sparse.row_lengths.max(initial=0))
    return row_stream.make_plan(
        problem(data), data, row_stream.fit(tiling.lanes, tiling.vec, tiling.piece, tiling.unroll, longest)
    )


def assert_rounded_once(device: CpuDevice, plan: Plan, data: Operands) -> None:
    """Every element is within half a step of fp16 of the float64 result, beside what sums in fp32 lose."""
    prepared = device.prepare(plan)
    try:
        prepared.poison()
        prepared.run()
        result = prepared.read()
    finally:
        prepared.close()
    truth = reference(problem(data), data)
    assert result.dtype == np.float16
    allowed = 2.0**-11 * np.abs(truth.value) + 1e-6 * truth.scale + 2.0**-25
    worst = np.abs(result.astype(np.float64) - truth.value) - allowed
    assert (worst <= 0).all(), f"{plan.variant}: {worst.max()}"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_awkward_shapes_are_summed_in_fp32_and_rounded_once(shape: tuple[int, int, int, float]) -> None:
    m, k, n, density = shape
    data = operands(random_dense(m, k, density), n)
    for tiling in TILINGS:
        assert_rounded_once(CpuDevice(), planned(data, tiling), data)


def test_empty_rows_a_dense_row_and_an_empty_matrix() -> None:
    dense = np.zeros((41, 190), dtype=np.float32)
    dense[7] = np.arange(1, 191)
    dense[40, 3] = 2.0
    for data in (operands(dense, 40), operands(np.zeros_like(dense), 40)):
        for tiling in (TILINGS[0], TILINGS[1], TILINGS[3]):
            assert_rounded_once(CpuDevice(), planned(data, tiling), data)


def test_sums_of_pieces_stay_in_fp32() -> None:
    pieces = np.tile(np.array([1, 2.0**-12, 1, -1, 1, -1, 1, -1], dtype=np.float32), (8, 1))
    pieces[0, :2] = -4, -3  # what is left are the seven small values, each beside a 1 that fp16 would round it to
    dense = np.vstack([pieces.reshape(1, 64), np.ones((1, 64), dtype=np.float32)])
    data = operands(dense, 8)
    data.dense["b"][:] = 1.0
    plan = row_stream.make_plan(problem(data), data, Tiling(4, 8, 32, 8, 8))
    prepared = CpuDevice().prepare(plan)
    prepared.run()
    assert (prepared.read() == [[7 * 2.0**-12], [64]]).all()
    prepared.close()
    assert plan.launches[0].args[1] == 1  # rows of several pieces


@pytest.mark.parametrize("build", ["asan", "tsan"])
def test_clean_under_sanitizers_and_any_schedule(build: Any) -> None:
    aligned, odd = operands(random_dense(37, 70, 0.3), 40), operands(random_dense(11, 30, 0.4), 7)
    assert_rounded_once(CpuDevice(build=build), planned(aligned, TILINGS[1]), aligned)
    assert_rounded_once(CpuDevice(build=build), planned(odd, TILINGS[3]), odd)
    for order in ("backward", "random:5"):
        assert_rounded_once(CpuDevice(order=order), planned(aligned, TILINGS[1]), aligned)


@pytest.mark.parametrize("n", [32, 31])
def test_inf_and_nan_in_unused_rows_of_b_do_not_leak(n: int) -> None:
    dense = random_dense(20, 64, 0.2)
    dense[:, [0, 17, 63]] = 0
    dense[5] = 0
    data = operands(dense, n)
    data.dense["b"][[0, 17, 63]] = [[np.inf], [np.nan], [-np.inf]]
    clean = Operands(data.sparse, {"b": np.nan_to_num(data.dense["b"], nan=0, posinf=0, neginf=0)}, "")
    prepared = CpuDevice().prepare(planned(data, TILINGS[0]))
    prepared.run()
    result = prepared.read()
    prepared.close()
    assert np.abs(result - reference(problem(data), clean).value).max() < 0.01


def test_an_infinite_used_element_stays_infinite_beside_padding() -> None:
    dense = np.zeros((3, 20), dtype=np.float32)
    dense[1, 4] = 1.0
    data = operands(dense, 8)
    data.dense["b"][4] = np.inf
    prepared = CpuDevice().prepare(planned(data, TILINGS[0]))
    prepared.run()
    result = prepared.read()
    prepared.close()
    assert np.isposinf(result[1]).all()
    assert (result[[0, 2]] == 0).all()


def test_pairs_of_four_bytes_hold_every_nonzero_and_padding_repeats_its_row_without_a_value() -> None:
    data = operands(random_dense(23, 150, 0.15), 8)
    tiling = Tiling(4, 8, 32, 16, 8)
    packed = row_stream.pack(data.sparse, tiling, row_stream.pair_words(data.sparse, SHORT))
    assert packed.words.nbytes == 4 * len(packed.headers) * tiling.piece
    pairs = packed.words.reshape(-1, tiling.piece)
    index, value = pairs & 0xFFFF, (pairs >> 16).astype(np.uint16).view(np.float16)
    held = packed.headers[:, 1] & 0xFFFF
    real = np.arange(tiling.piece) < held[:, None]
    assert sorted(zip(index[real], value[real], strict=True)) == sorted(
        zip(data.sparse.indices, data.sparse.values, strict=True)
    )
    assert (value[~real] == 0).all()
    last = np.take_along_axis(index, np.maximum(held - 1, 0)[:, None], axis=1)
    assert (index == last)[~real].all()


def test_columns_beyond_16_bits_take_pairs_of_eight_bytes_and_the_variant_says_so() -> None:
    k = 70_000
    indices = np.array([0, 65_535, 65_536, 69_999, 69_999], dtype=np.int32)
    matrix = CSR(3, k, np.array([0, 4, 4, 5]), indices, np.arange(1, 6, dtype=np.float32))
    b = np.random.default_rng(1).standard_normal((k, 8), dtype=np.float32)
    data = Operands(matrix, {"b": b}, "").cast("f16")
    plan = next(row_stream.row_stream.plans(problem(data), data, "sm_90"))
    assert plan.variant.endswith("_i32_k_above_65535")
    assert plan.defines["F16"] == 1
    assert plan.defines["INDEX16"] == 0
    assert_rounded_once(CpuDevice(), plan, data)


def test_every_size_of_n_has_a_tiling_and_whole_vectors_where_n_allows() -> None:
    matrix = operands(random_dense(64, 200, 0.1), 1).sparse
    for n in (1, 2, 3, 4, 7, 8, 16, 17, 24, 31, 49, 64, 72, 98, 196, 256, 3136):
        found = list(row_stream.tilings(matrix, n, "sm_90", SHORT))
        assert 0 < len(found) <= 16, n
        assert len(set(map(str, found))) == len(found), n
        assert n % 8 or n < 24 or 8 in {tiling.vec for tiling in found}, n
        assert all(n % 2 or n % tiling.vec == 0 for tiling in found), n


def test_fp16_pairs_of_a_wide_matrix_never_ask_for_more_registers_than_a_block_has() -> None:
    assert row_stream.batch_sizes(8, Storage(half=True, short_index=False)) == (8,)
    assert max(row_stream.batch_sizes(8, SHORT)) == 16


def test_a_plan_in_fp16_is_checked_and_named_as_such() -> None:
    data = operands(random_dense(20, 30, 0.3), 16)
    for plan in row_stream.row_stream.plans(problem(data), data, "sm_90"):
        assert plan.math == "f16"
        assert plan.buffers["c"].dtype == np.float16
        assert "i32" not in plan.variant
