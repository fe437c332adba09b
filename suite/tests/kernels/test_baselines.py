"""ASpT's and MergeSpMM's kernels against float64 on the processor, and ASpT's tiles against their matrix."""

import numpy as np
import pytest
from kernel_problems import AWKWARD, sampled, uneven, with_dense_columns
from on_cpu import check, execute, matrix, spmm_operands, spmm_problem

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.kernels.aspt import sddmm_plan, spmm_plan, tile
from nnzbench.kernels.merge_spmm import merge_plan, row_split_plan
from nnzbench.kernels.registry import kernels

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


def test_a_tile_needs_three_quarters_of_its_slots_and_16_nonzeros_a_column():
    heavy = np.zeros((128, 64), np.float32)
    heavy[:16, :48] = 1
    assert len(tile(CSR.from_dense(heavy), 64).tiles) == 1
    assert len(tile(CSR.from_dense(heavy[:, :47]), 64).tiles) == 0
    assert len(tile(CSR.from_dense(heavy[1:]), 64).tiles) == 0


def test_restrictions_are_told():
    data = spmm_operands(matrix(8, 8), 33)
    with pytest.raises(Unsupported, match="32 or 128 columns, not 33"):
        spmm_plan(data.sparse, data.dense["b"])
    problem, sample = sampled(matrix(8, 8), 64)
    with pytest.raises(Unsupported, match="32 or 128 features, not 64"):
        list(kernels()["aspt_sddmm"].plans(problem, sample, "sm_90"))
    with pytest.raises(Unsupported, match="no nonzeros"):
        spmm_plan(matrix(8, 8, density=0.0), np.zeros((8, 32), np.float32))


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
