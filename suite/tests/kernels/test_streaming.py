"""The streaming kernel against float64 on the processor, and its packed form against the matrix it holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_problems import operands_of as operands
from kernel_problems import random_dense
from on_cpu import spmm_problem as problem

from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.kernels import row_stream
from nnzbench.kernels.rows import Storage
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Plan, Unsupported
from nnzbench.problems.check import relative_error
from nnzbench.problems.operands import Operands
from nnzbench.problems.reference import reference

SINGLE = Storage(half=False, short_index=False)
ROWS = (
    row_stream.Tiling(32, 4, 4, 64, 8),
    row_stream.Tiling(32, 2, 8, 16, 4),
    row_stream.Tiling(8, 2, 16, 32, 4),
    row_stream.Tiling(4, 4, 32, 16, 16),
    row_stream.Tiling(32, 1, 16, 32, 16),
)
# m, k, n, density: edges of tiles and chunks, one column, one row, few and many nonzeros
SHAPES = ((70, 130, 128, 0.1), (37, 65, 49, 0.2), (13, 64, 7, 0.5), (1, 300, 1, 0.1), (33, 40, 32, 1.0))


def error(device: CpuDevice, plan: Plan, data: Operands) -> float:
    prepared = device.prepare(plan)
    try:
        prepared.poison()
        prepared.run()
        return relative_error(prepared.read(), reference(problem(data), data))
    finally:
        prepared.close()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_matches_float64_on_awkward_shapes(shape: tuple[int, int, int, float]) -> None:
    m, k, n, density = shape
    data = operands(random_dense(m, k, density), n)
    device = CpuDevice()
    for tiling in ROWS:
        longest = int(data.sparse.row_lengths.max())
        fitted = row_stream.fit(tiling.lanes, tiling.vec, tiling.piece, tiling.unroll, longest)
        assert error(device, row_stream.make_plan(problem(data), data, fitted), data) < 1e-6, fitted


def test_empty_rows_a_dense_row_and_an_empty_matrix() -> None:
    dense = np.zeros((41, 90), dtype=np.float32)
    dense[7] = np.arange(1, 91)
    dense[40, 3] = 2.0
    for data in (operands(dense, 36), operands(np.zeros_like(dense), 36)):
        for plan in (
            row_stream.make_plan(problem(data), data, ROWS[1]),
            row_stream.make_plan(problem(data), data, ROWS[4]),
        ):
            assert error(CpuDevice(), plan, data) < 1e-6


@pytest.mark.parametrize("build", ["asan", "tsan"])
def test_clean_under_sanitizers_and_any_schedule(build: Any) -> None:
    data = operands(random_dense(37, 70, 0.3), 36)
    for device in (CpuDevice(build=build), CpuDevice(order="backward"), CpuDevice(order="random:5")):
        assert error(device, row_stream.make_plan(problem(data), data, ROWS[1]), data) < 1e-6


def test_inf_and_nan_in_unused_rows_of_b_do_not_leak() -> None:
    dense = random_dense(20, 64, 0.2)
    dense[:, [0, 17, 63]] = 0
    data = operands(dense, 32)
    data.dense["b"][[0, 17, 63]] = [[np.inf], [np.nan], [-np.inf]]
    clean = Operands(data.sparse, {"b": np.nan_to_num(data.dense["b"], nan=0, posinf=0, neginf=0)}, "")
    prepared = CpuDevice().prepare(row_stream.make_plan(problem(data), data, ROWS[0]))
    prepared.run()
    assert relative_error(prepared.read(), reference(problem(data), clean)) < 1e-6
    prepared.close()


def test_every_size_of_n_has_a_row_tiling_and_no_problem_too_many() -> None:
    matrix = operands(random_dense(64, 200, 0.1), 1).sparse
    for n in (1, 2, 3, 7, 8, 16, 17, 31, 49, 64, 196, 3136):
        assert 0 < len(list(row_stream.tilings(matrix, n, "sm_90", SINGLE))) <= 16, n


def test_pieces_of_a_row_are_neighbours_in_one_block_and_blocks_are_full() -> None:
    pieces = np.array([7, 5, 5, 4, 3, 3, 2, 2, 2, 1, 1, 1, 1, 1])
    first, blocks, joined = row_stream.place_pieces(pieces, 8)
    assert blocks == 5
    assert joined == 5
    taken = np.concatenate([np.arange(at, at + count) for at, count in zip(first, pieces, strict=True)])
    assert np.unique(taken).size == taken.size
    assert taken.max() < 8 * blocks
    assert (first // 8 == (first + pieces - 1) // 8).all()


def test_no_piece_is_long_however_uneven_the_rows() -> None:
    dense = random_dense(64, 500, 0.05)
    dense[11] = 1.0
    matrix = operands(dense, 1).sparse
    for tiling in row_stream.tilings(matrix, 64, "sm_90", SINGLE):
        packed = row_stream.pack(matrix, tiling, row_stream.pair_words(matrix, SINGLE))
        held = packed.headers[:, 1] & 0xFFFF
        assert held.max() <= tiling.piece, tiling
        assert held.sum() == matrix.nnz, tiling
        assert sorted(packed.headers[packed.headers[:, 0] >= 0, 0]) == list(range(64))


def test_rows_stream_refuses_what_equal_slots_would_blow_up() -> None:
    rows, k = 40_000, 300_000
    offsets = np.concatenate([[0], k + np.arange(rows)])
    indices = np.concatenate([np.arange(k), np.zeros(rows - 1, dtype=np.int64)]).astype(np.int32)
    matrix = CSR(rows, k, offsets, indices, np.ones(indices.size, dtype=np.float32))
    data = Operands(matrix, {"b": np.ones((k, 1), dtype=np.float32)}, "")
    with pytest.raises(Unsupported, match="uneven"):
        next(row_stream.row_stream.plans(problem(data), data, "sm_90"))
