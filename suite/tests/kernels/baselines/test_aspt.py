import numpy as np
import pytest
from kernel_problems import AWKWARD, sampled, uneven, with_dense_columns
from on_cpu import check, execute, fresh_cache, matrix, mutated, spmm_operands, spmm_problem  # noqa: F401

from nnzbench.devices.cpu_device import SanitizerError
from nnzbench.kernels.aspt import sddmm_plan, spmm_plan, tile, untiled
from nnzbench.kernels.registry import kernels
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Plan, Unsupported

KERNELS = {"one entry": "plain", "no tile, empty rows, one full": "tiles0", "one row in runs of 512": "tiles0_long"}


@pytest.mark.parametrize("n", [32, 128])
@pytest.mark.parametrize("case", AWKWARD)
def test_products_on_awkward_shapes(case, n):
    data = spmm_operands(AWKWARD[case], n)
    plan = spmm_plan(data.sparse, data.dense["b"])
    assert plan.variant == KERNELS.get(case, "tiles2" if n == 32 else "tiles4")
    check(plan, spmm_problem(data), data, "asan")


@pytest.mark.parametrize("features", [32, 128])
@pytest.mark.parametrize("case", AWKWARD)
def test_sampled_products_on_awkward_shapes(case, features):
    problem, data = sampled(AWKWARD[case], features)
    plan = sddmm_plan(data.sparse, data.dense["a"], data.dense["b"])
    check(plan, problem, data, "asan")


@pytest.mark.parametrize("sparse", [with_dense_columns(20, 280, 260), uneven()], ids=["tiles", "runs"])
def test_shared_memory_is_free_of_races(sparse):
    data = spmm_operands(sparse, 32)
    check(spmm_plan(sparse, data.dense["b"]), spmm_problem(data), data, "tsan")


def test_a_planted_missing_barrier_is_found():
    data = spmm_operands(with_dense_columns(20, 280, 260), 32)
    before, barrier = "b + own_column(), n);\n", "    __syncthreads();\n"
    mutant = mutated(spmm_plan(data.sparse, data.dense["b"]), before + barrier, before)
    with pytest.raises(SanitizerError, match="data race"):
        execute(mutant, "tsan")


def test_every_nonzero_is_in_one_part_and_in_the_slot_of_its_column():
    a = with_dense_columns(300, 500, 290, density=0.2)
    tiling = tile(a, 64)
    assert sorted(tiling.order) == list(range(a.nnz))
    rows = np.repeat(np.arange(a.m), a.row_lengths)[tiling.order]
    columns = a.indices[tiling.order]
    seen = np.zeros(a.nnz, dtype=int)
    for row in range(a.m):
        panel = row // 128
        parts = tiling.panels[panel + 1] - tiling.panels[panel]
        at = tiling.panels[panel] * 128 + row % 128 * parts
        for part in range(parts):
            held = slice(tiling.begins[at + part], tiling.begins[at + part + 1])
            seen[held] += 1
            assert (rows[held] == row).all()
            if part < parts - 1:
                (number,) = np.flatnonzero((tiling.tiles == (panel, part)).all(axis=1))
                assert (tiling.slots[number, columns[held] % 64] == columns[held]).all()
    assert (seen == 1).all()
    assert (np.bincount(tiling.tiles[:, 0]) >= 4).all()  # 290 full columns are 4 tiles of 64 and a bit


def test_a_tile_needs_three_quarters_of_its_slots_and_16_nonzeros_a_column():
    heavy = np.zeros((128, 64), np.float32)
    heavy[:16, :48] = 1
    assert len(tile(CSR.from_dense(heavy), 64).tiles) == 1
    assert len(tile(CSR.from_dense(heavy[:, :47]), 64).tiles) == 0
    assert len(tile(CSR.from_dense(heavy[1:]), 64).tiles) == 0


def test_columns_of_one_residue_take_one_slot_of_successive_tiles():
    dense = np.zeros((128, 256), np.float32)
    dense[:, :64] = dense[:, 128:192] = 1
    tiling = tile(CSR.from_dense(dense), 64)
    assert tiling.tiles.tolist() == [[0, 0], [0, 1]]
    assert tiling.slots.tolist() == [list(range(64)), list(range(128, 192))]


def test_uneven_remainders_are_split_and_even_short_rows_are_not_tiled():
    tiling = tile(uneven(), 256)
    assert tiling.long_rows
    assert tiling.chunks[:, 0].tolist() == [4, 4]
    assert (np.diff(tiling.chunks[:, 1]) == 512).all()
    assert tiling.chunks[0, 1] == tiling.matrix.offsets[4]
    assert tile(matrix(64, 300, density=0.02), 256).plain
    assert untiled(uneven()).order.tolist() == list(range(uneven().nnz))


def test_restrictions_are_told():
    data = spmm_operands(matrix(8, 8), 33)
    with pytest.raises(Unsupported, match="32 or 128 columns, not 33"):
        spmm_plan(data.sparse, data.dense["b"])
    problem, sample = sampled(matrix(8, 8), 64)
    with pytest.raises(Unsupported, match="32 or 128 features, not 64"):
        list(kernels()["aspt_sddmm"].plans(problem, sample, "sm_90"))
    with pytest.raises(Unsupported, match="no nonzeros"):
        spmm_plan(matrix(8, 8, density=0.0), np.zeros((8, 32), np.float32))


def test_kernels_give_the_plan_of_their_operation():
    data = spmm_operands(matrix(8, 8), 32)
    plans: list[Plan] = list(kernels()["aspt"].plans(spmm_problem(data), data, "sm_90"))
    assert [plan.output for plan in plans] == ["c"]
    assert plans[0].generate_ms > 0
