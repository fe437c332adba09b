from dataclasses import replace

import numpy as np
import pytest
from on_cpu import check, execute, matrix, spmm_operands, spmm_problem

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import Reference, reference
from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.kernels.registry import candidates, kernels
from nnzbench.kernels.rows import row_records, transpose, vector_width
from nnzbench.kernels.sputnik.layers import softmax_plan
from nnzbench.kernels.sputnik.spmm import Switches, Tile, heuristic_tile, oracle_tiles, spmm_plan, warp_steps

NARROW = Tile(y=4, x=32, width=8, vector_b=4, ahead=8)


def dense(k, n, dtype=np.float32):
    return np.random.default_rng(1).standard_normal((k, n)).astype(dtype)


def product(a, b):
    return Reference(a.to_scipy() @ b.astype(np.float64), abs(a.to_scipy()) @ abs(b.astype(np.float64)))


@pytest.mark.parametrize("n", [1, 7, 49, 72])
def test_ablation_variants_match_float64(n):
    a = matrix(37, 130, empty=(0, 5, 36), full=9)
    operands = Operands(a, {"b": dense(130, n)}, "")
    problem = Problem("test", "t", "spmm", 37, 130, n, 0.7, "")
    plans = list(kernels()["sputnik_ablation"].plans(problem, operands, "sm_90"))
    assert len(plans) == 6
    complete = plans[0]
    for plan in plans:
        differs = plan.defines != complete.defines or (plan.buffers["rows"] != complete.buffers["rows"]).any()
        assert differs == (plan is not complete) or n % 2  # of odd n there are no vectors to switch off
        assert plan.defines["OFFSET64"] == 0
        ahead = {"no_residue": 0, "paper_resi": 4}.get(plan.variant[:10], plan.defines["ITEMS_AHEAD"])
        assert plan.defines["RESIDUE_UNROLL"] == ahead
        assert plan.defines["PRESCALE"] == int(not plan.variant.startswith("no_prescale"))
        check(plan, problem, operands, "asan" if n == 49 else "plain")


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", ["sputnik", "sputnik_transposed", "sputnik_ablation"])
def test_first_plans_are_correct(name, dtype):
    """Of every kernel two plans here; all of them run in the sweep."""
    problem = Problem("test", "awkward", "spmm", 13, 70, 24, 0.7, "", dtype)
    operands = Operands(matrix(13, 70, full=2, empty=(3,)), {"b": dense(70, 24)}, "").cast(dtype)
    plans = list(kernels()[name].plans(problem, operands, "sm_90"))
    assert len({plan.variant for plan in plans}) == len(plans)
    for plan in plans[:2]:
        check(plan, problem, operands)


def test_bias_and_relu_are_fused():
    a, b = matrix(37, 70, empty=(0,)), dense(70, 36)
    bias = np.linspace(-2, 2, 37, dtype=np.float32)
    expected = np.maximum(product(a, b).value + bias[:, None], 0)
    result = execute(spmm_plan(a, b, NARROW, bias=bias))
    np.testing.assert_allclose(result, expected, atol=1e-4)
    assert (expected[0] == 0).all() != (expected[-1] == 0).all()


def test_half_precision_takes_32_bit_indices_for_many_columns():
    k = 70000
    indices = np.array([0, 3, 65535, 65536, 69999], dtype=np.int32)
    values = np.arange(1, 6).astype(np.float16)
    a = CSR(1, k, np.array([0, 5], dtype=np.int32), indices, values)
    b = (np.arange(k) % 7).astype(np.float16)[:, None].repeat(8, axis=1)
    plan = spmm_plan(a, b, heuristic_tile(8, 2))
    assert "i32_k_above_65535" in plan.variant
    assert plan.buffers["indices"].dtype == np.int32
    assert passes(relative_error(execute(plan), product(a, b)), "f16")


@pytest.mark.parametrize(("m", "n"), [(8, 3_211_264), (1_048_577, 64)])
def test_a_grid_too_long_in_y_is_turned_and_no_candidate_comes_twice(m, n):
    a = CSR(m, 4, np.zeros(m + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
    data = spmm_operands(a, n)
    found = list(candidates(kernels()["sputnik"], spmm_problem(data), data, CpuDevice()))
    assert {one.variant.partition("_")[0] for one in found} >= {"rule", "heuristic"}
    assert all(one.plan.launches[0].grid[1] <= 65535 for one in found)


def test_offsets_beyond_31_bits_are_not_prescaled():
    a = CSR(1, 2**20, np.array([0, 1], np.int32), np.array([5], np.int32), np.ones(1, np.float32))
    huge = np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (2**20, 4096), (0, 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "ascontiguousarray", lambda array: array)
        plan = spmm_plan(a, huge, NARROW)
        with pytest.raises(Unsupported, match=r"k \* n = 4294967296 is not below 2\^31"):
            spmm_plan(a, huge, NARROW, switches=Switches(prescale=False))
    assert (plan.defines["PRESCALE"], plan.defines["OFFSET64"]) == (0, 1)
    assert "unscaled" in plan.variant
    small, b = matrix(37, 70, empty=(5,), full=9), dense(70, 36)
    wide = spmm_plan(small, b, NARROW)
    wide = replace(wide, defines={**wide.defines, "PRESCALE": 0, "OFFSET64": 1})
    assert passes(relative_error(execute(wide), product(small, b)), "f32")


@pytest.mark.parametrize(("m", "n"), [(0, 4), (4, 0)])
def test_nothing_to_compute_is_unsupported(m, n):
    with pytest.raises(Unsupported, match="empty"):
        spmm_plan(matrix(m, 5), dense(5, n), NARROW)


def test_the_heuristic_is_the_papers():
    assert [heuristic_tile(n, 4).x for n in (1, 7, 32, 49, 64, 128, 3136)] == [1, 8, 32, 64, 64, 64, 64]
    assert [heuristic_tile(n, 4).vector_b for n in (49, 50, 196)] == [1, 2, 4]
    assert [(heuristic_tile(n, 4).width, heuristic_tile(n, 4).y) for n in (1, 7, 32, 49)] == [
        (1, 32), (8, 4), (8, 4), (32, 4)
    ]  # fmt: skip


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 8, 16, 30, 49, 64, 196, 256, 12544])
def test_every_tile_fits_its_problem(n, itemsize):
    for tile in [heuristic_tile(n, itemsize), *oracle_tiles(n, itemsize)]:
        assert n % tile.vector_b == 0
        assert tile.x % (tile.width * tile.vector_b) == 0
        assert tile.width * tile.y % 32 == 0
        assert tile.k % tile.ahead == tile.ahead % 4 == tile.k % tile.vector_a == 0
        assert tile.x < 2 * n or tile.x == 1


def test_the_rows_of_a_warp_take_equally_many_steps_and_those_behind_the_last_none_of_their_own():
    tile = Tile(y=8, x=32, width=8, vector_b=4)
    lengths = (70, 33, 32, 5, 3, 0)
    offsets = np.cumsum([0, *lengths]).astype(np.int32)
    entries = np.concatenate([np.arange(length) for length in lengths]).astype(np.int32)
    a = CSR(6, 90, offsets, entries, np.ones(entries.size, np.float32))
    slots = warp_steps(row_records(a), tile)
    assert slots[:, 0].tolist() == [0, 1, 2, 3, 4, 5, -1, -1]
    assert slots[:, 3].tolist() == [3, 3, 3, 3, 1, 1, 1, 1]
    assert slots[6:, 1].tolist() == slots[6:, 2].tolist()
    # row 2 starts at entry 103 and its first aligned tile at 100: 32 entries and 3 masked ones need 2 tiles
    assert warp_steps(row_records(a), replace(tile, y=1, width=32))[:, 3].tolist() == [3, 2, 2, 1, 1, 0]


def test_the_cached_transpose_follows_new_values():
    w = matrix(11, 17, empty=(2,))
    topology, positions = transpose(w)
    for factor in (1, 3):
        values = w.values * factor
        moved = topology.with_values(values[positions])
        assert (moved.to_dense() == w.with_values(values).to_dense().T).all()


def test_vectors_divide_the_row():
    assert [vector_width(n, 4) for n in (1, 2, 6, 8, 49)] == [1, 2, 2, 4, 1]
    assert [vector_width(n, 2) for n in (4, 8, 12)] == [4, 8, 4]


def softmax_of(scores):
    return reference(Problem("test", "t", "sparse_softmax", scores.m, scores.k, 0, 0.0, ""), Operands(scores, {}, ""))


SCORES = {
    "one entry": matrix(1, 1, density=1.0),
    "rows longer than the registers hold": matrix(3, 300, density=0.9),
    "full row, empty rows": matrix(37, 70, empty=(0, 5, 36), full=9),
}


@pytest.mark.parametrize("build", ["asan", "tsan"])
@pytest.mark.parametrize("case", SCORES)
def test_softmax_of_awkward_shapes(case, build):
    scores = SCORES[case]
    assert passes(relative_error(execute(softmax_plan(scores, 16, 4, 2), build), softmax_of(scores)), "f32")


def test_large_scores_do_not_overflow():
    scores = matrix(7, 40, density=0.8)
    scores = scores.with_values(scores.values * np.float32(300) + np.float32(500))
    assert passes(relative_error(execute(softmax_plan(scores, 16, 4, 2)), softmax_of(scores)), "f32")


def test_minus_infinity_is_a_masked_entry():
    scores = CSR.from_dense(np.array([[1.0, -np.inf, 2.0], [-np.inf, -np.inf, -np.inf]], dtype=np.float32))
    result = execute(softmax_plan(scores, 16, 4, 2))
    np.testing.assert_allclose(result[:3], np.array([1, 0, np.e]) / (1 + np.e), rtol=1e-6)
    assert np.isnan(result[3:]).all()


def test_nan_among_scores_spoils_its_row_alone():
    scores = matrix(4, 60, density=0.7)
    values = scores.values.copy()
    values[scores.offsets[2] + 5] = np.nan
    result = execute(softmax_plan(scores.with_values(values), 16, 4, 2))
    row = slice(scores.offsets[2], scores.offsets[3])
    assert np.isnan(result[row]).all()
    assert np.isfinite(np.delete(result, np.r_[row])).all()


def test_a_softmax_of_nothing_is_unsupported():
    with pytest.raises(Unsupported, match="no nonzeros"):
        softmax_plan(matrix(3, 4, density=0.0))
