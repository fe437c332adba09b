"""ASpT's and MergeSpMM's kernels against float64 on the processor, and ASpT's tiles against their matrix."""

import numpy as np
import pytest
from kernel_problems import AWKWARD, sampled, uneven, with_dense_columns
from on_cpu import check, execute, matrix, spmm_operands, spmm_problem

from nnzbench.core.plan import Plan, Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.kernels.aspt import sddmm_plan, spmm_plan, tile, untiled
from nnzbench.kernels.merge_spmm import merge_based, merge_plan, row_split_plan
from nnzbench.kernels.registry import kernels, role_of

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


def test_every_nonzero_is_in_one_part_and_in_the_slot_of_its_column():
    a = with_dense_columns(300, 500, 290, density=0.2)
    tiling = tile(a, 64)
    assert sorted(tiling.order) == list(range(a.nnz))
    rows = a.rows[tiling.order]
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


def test_rows_are_uneven_from_the_artifacts_variances_on():
    """Of a row of d nonzeros beside an empty one it is d^2 / 4: plain below 40, long rows split from 200 on."""
    rows = [untiled(CSR.from_dense(np.arange(40) < np.array([[0], [more]], np.float32))) for more in range(40)]
    assert [one.plain for one in rows] == [more < 13 for more in range(40)]
    assert [one.long_rows for one in rows] == [more >= 29 for more in range(40)]


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


def short_rows():
    """Rows of 0 to 7 nonzeros, so that a tile of 128 holds many, with a run of 300 empty ones inside a tile."""
    rng = np.random.default_rng(4)
    lengths = rng.integers(0, 8, 500)
    lengths[100:400] = 0
    indices = [np.sort(rng.choice(60, length, replace=False)) for length in lengths]
    offsets = np.cumsum([0, *lengths]).astype(np.int32)
    values = rng.standard_normal(offsets[-1]).astype(np.float32)
    return CSR(500, 60, offsets, np.concatenate(indices).astype(np.int32), values)


ROWS = {
    "one entry, N of 1": (matrix(1, 1, density=1.0), 1),
    "one row over several tiles, N of 7": (matrix(1, 700, density=0.9), 7),
    "empty rows, one full, N of 49": (matrix(37, 470, empty=(0, 5, 36), full=9), 49),
    "long rows, odd count": (matrix(5, 333, density=0.9), 64),
    "short rows and many empty ones": (short_rows(), 33),
    "rows that end at tiles' borders": (matrix(6, 128, density=1.0), 32),
    "rows of 33": (matrix(9, 33, density=1.0), 32),
}


def both(data):
    return [merge_plan(data.sparse, data.dense["b"]), row_split_plan(data.sparse, data.dense["b"])]


RACES = ("one row over several tiles, N of 7", "rows of 33")
"""Run under ThreadSanitizer too, which takes longest."""


@pytest.mark.parametrize(("case", "build"), [*((case, "asan") for case in ROWS), *((case, "tsan") for case in RACES)])
def test_merge_spmm_on_awkward_shapes(case, build):
    data = spmm_operands(*ROWS[case])
    for plan in both(data):
        check(plan, spmm_problem(data), data, build)


def test_the_pitch_known_to_the_compiler_gives_the_same_bits():
    data = spmm_operands(matrix(37, 70, empty=(0, 5, 36), full=9), 64)
    a, b = data.sparse, data.dense["b"]
    fixed = row_split_plan(a, b, fixed=True)
    assert fixed.defines == {"PITCH": 64}
    check(fixed, spmm_problem(data), data, "asan")
    assert (execute(fixed, "asan") == execute(row_split_plan(a, b), "asan")).all()


def test_sums_by_nonzeros_do_not_depend_on_the_order_of_threads():
    data = spmm_operands(matrix(5, 200, density=0.6), 40)
    plan = merge_plan(data.sparse, data.dense["b"])
    first, *others = (execute(plan, order=order) for order in ("forward", "backward", "random:3"))
    assert all((first == other).all() for other in others)


def test_the_mean_row_length_chooses():
    names = []
    for length in (9, 10):
        data = spmm_operands(matrix(16, length, density=1.0), 64)
        assert merge_based(data.sparse) == (length == 9)
        plans = list(kernels()["merge_spmm"].plans(spmm_problem(data), data, "sm_90"))
        names.append([plan.variant for plan in plans])
    assert names == [
        ["heuristic_merge", "row_split_n64", "row_split"],
        ["heuristic_row_split_n64", "row_split", "merge"],
    ]
    assert role_of("merge_spmm", "merge") == "paper"


def test_only_empty_rows_are_cleared_beforehand():
    full, some = (spmm_operands(matrix(8, 40, density=1.0, empty=empty), 32) for empty in ((), (3,)))
    entries = [[one.entry for one in merge_plan(d.sparse, d.dense["b"]).launches] for d in (full, some)]
    assert entries == [
        ["merge_partition", "merge_product", "merge_fix_up"],
        ["merge_clear", "merge_partition", "merge_product", "merge_fix_up"],
    ]
    assert merge_plan(some.sparse, some.dense["b"]).variant == "merge_cleared"


def test_an_empty_matrix_has_rows_and_no_tiles():
    data = spmm_operands(matrix(3, 5, density=0.0), 4)
    (plan,) = kernels()["merge_spmm"].plans(spmm_problem(data), data, "sm_90")
    assert (execute(plan, "asan") == 0).all()
    with pytest.raises(Unsupported, match="of 0 nonzeros"):
        merge_plan(data.sparse, data.dense["b"])
    with pytest.raises(Unsupported, match="output is empty"):
        row_split_plan(data.sparse, np.zeros((5, 0), np.float32))
    huge = np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (5, 2**29), (0, 0))
    with pytest.raises(Unsupported, match="offsets are of 32 bits"):
        row_split_plan(data.sparse, huge)
