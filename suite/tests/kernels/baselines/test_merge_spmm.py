import numpy as np
import pytest
from on_cpu import check, execute, fresh_cache, matrix, mutated, spmm_operands, spmm_problem  # noqa: F401

from nnzbench.devices.cpu_device import SanitizerError
from nnzbench.kernels.merge_spmm import merge_based, merge_plan, row_split_plan
from nnzbench.kernels.registry import kernels, role_of
from nnzbench.matrices.formats import CSR
from nnzbench.plans.plan import Unsupported


def short_rows():
    """Rows of 0 to 7 nonzeros, so that a tile of 128 holds many, with a run of 300 empty ones inside a tile."""
    rng = np.random.default_rng(4)
    lengths = rng.integers(0, 8, 500)
    lengths[100:400] = 0
    indices = [np.sort(rng.choice(60, length, replace=False)) for length in lengths]
    offsets = np.cumsum([0, *lengths]).astype(np.int32)
    values = rng.standard_normal(offsets[-1]).astype(np.float32)
    return CSR(500, 60, offsets, np.concatenate(indices).astype(np.int32), values)


AWKWARD = {
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


@pytest.mark.parametrize(
    ("case", "build"), [*((case, "asan") for case in AWKWARD), *((case, "tsan") for case in RACES)]
)
def test_awkward_shapes(case, build):
    data = spmm_operands(*AWKWARD[case])
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
    with pytest.raises(Unsupported, match="without nonzeros"):
        merge_plan(data.sparse, data.dense["b"])
    with pytest.raises(Unsupported, match="output is empty"):
        row_split_plan(data.sparse, np.zeros((5, 0), np.float32))
    huge = np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (5, 2**29), (0, 0))
    with pytest.raises(Unsupported, match="offsets are of 32 bits"):
        row_split_plan(data.sparse, huge)


def test_a_planted_missing_barrier_is_found():
    data = spmm_operands(matrix(5, 200, density=0.9), 32)
    text = "? __ffs(static_cast<int>(ends)) - 1 : 0);\n    __syncthreads();"
    mutant = mutated(merge_plan(data.sparse, data.dense["b"]), text, text.partition("\n")[0])
    with pytest.raises(SanitizerError, match="data race"):
        execute(mutant, "tsan")


def test_a_planted_read_past_the_last_column_is_found():
    data = spmm_operands(matrix(5, 33, density=0.5), 7)
    mutant = mutated(row_split_plan(data.sparse, data.dense["b"]), "column < n ? column : n - 1", "true ? column : 0")
    with pytest.raises(SanitizerError, match="heap-buffer-overflow"):
        execute(mutant, "asan")
