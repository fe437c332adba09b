"""The balanced kernels against float64 on the processor, and the format against CSR."""

from dataclasses import replace

import numpy as np
import pytest
from kernel_problems import whole_rows
from on_cpu import execute

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices import prune
from nnzbench.data.matrices.formats import CSR, MatrixError
from nnzbench.data.matrices.prune import BalancedMatrix
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.operands import Operands, make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import reference
from nnzbench.kernels import balanced


def csr(m, k, sparsity, ranges=32):
    weights = np.random.default_rng(m + k).standard_normal((m, k), dtype=np.float32)
    return prune.balanced(weights, sparsity, ranges)


class Case:
    """A product, its float64 result and the matrix in balanced form."""

    def __init__(self, m, k, n, sparsity, ranges=32, dtype=np.float32):
        weights = csr(m, k, sparsity, ranges)
        self.x = np.random.default_rng(1).standard_normal((k, n)).astype(dtype)
        operands = Operands(weights.with_values(weights.values.astype(dtype)), {"b": self.x}, "")
        self.matrix = BalancedMatrix.from_csr(operands.sparse, ranges)
        problem = Problem("test", "test", "spmm", m, k, n, sparsity, f"balanced:{ranges}:0")
        self.reference = reference(problem, operands)

    def paper_plan(self, arch="sm_80"):
        return balanced.paper_plan(self.matrix, self.x, arch, 2)

    def rows_plan(self, tiling, group=None):
        group = group or balanced.group_of(self.matrix, self.x.shape[1], "sm_80")
        plan = balanced.rows_plan(self.matrix, balanced.pack_rows(self.matrix, group), self.x, tiling, "sm_80")
        assert plan is not None
        return plan

    def wide_plan(self, *tiling):
        return balanced.wide_plan(self.matrix, self.x, balanced.WideTiling(*tiling), "sm_80")

    def check(self, plan, build="plain", order="forward"):
        error = relative_error(execute(plan, build, order), self.reference)
        assert passes(error, plan.math), (plan.variant, error)


QUEUE = balanced.RowsTiling("async", 2, 1, 3)
LOADS = balanced.RowsTiling("registers", 4, 1, 2)


def test_places_of_a_panel_without_an_entry_read_its_row_of_zeros():
    """Of the last range, which is short, of an odd number of entries, and behind the last row."""
    dense = np.zeros((3, 7), np.float32)
    dense[:, [0, 2, 3, 5, 6]] = np.arange(1, 16).reshape(3, 5)  # in ranges of 3, 3 and 1 columns
    units = balanced.pack_panels(BalancedMatrix.from_csr(CSR.from_dense(dense), 3), 4, 8)
    pairs = units.transpose(0, 2, 1, 3, 4).reshape(4, -1)
    column, rest = np.divmod(pairs["offset"], 8 * 4)
    assert not rest.any()
    assert (column[pairs["value"] == 0] == 9).all()
    found = np.zeros((4, 10), np.float32)
    np.add.at(found, (np.arange(4)[:, None], column), pairs["value"])
    assert np.array_equal(found[:3, :7], dense)


@pytest.mark.parametrize(("n", "ranges"), [(1, 32), (2, 9), (7, 40), (8, 32)])
def test_blocks_of_the_papers_mapping_stay_for_as_many_rows_as_there_are(n, ranges):
    """X is brought once per block; every number of blocks must give all rows, whoever starts where in X."""
    case = Case(37, ranges * 19 - 4, n, 0.1, ranges)  # 17 entries: one batch of loads and a rest
    plan = case.paper_plan("sm_90")
    (launch,) = plan.launches
    assert launch.grid == (19, -(-n // 4) if n > 4 else 1, 1)
    assert plan.defines["EXACT"] == int(n != 7)
    for blocks in (19, 5, 1):
        fewer = replace(plan, launches=(replace(launch, grid=(blocks, *launch.grid[1:])),))
        case.check(fewer, "asan" if blocks == 5 else "plain", "backward" if blocks == 1 else "forward")


def test_many_columns_run_in_the_papers_mapping_too():
    case = Case(13, 27, 49, 0.34, 9)
    found = list(balanced.plans(case.matrix, case.x, "sm_90"))
    assert [plan.variant for plan in found[:2]] == ["paper_w32", "paper_w16"]
    assert all(plan.variant.startswith("wide") for plan in found[2:])
    assert found[0].launches[0].grid == (1, 13, 1)
    case.check(found[0], "asan")
    many = np.broadcast_to(np.float32(0), (27, 4 * 65535 + 1))
    with pytest.raises(Unsupported, match="65536 groups of 4 columns"):
        balanced.paper_plan(case.matrix, many, "sm_90")


@pytest.mark.parametrize(("n", "dtype"), [(4, np.float32), (8, np.float32), (7, np.float32), (8, np.float16)])
def test_passes_shared_out_to_blocks_add_up_launch_after_launch(n, dtype):
    case = Case(141, 1024, n, 0.9, dtype=dtype)
    build = "tsan" if n == 4 else "asan" if n == 8 and dtype == np.float32 else "plain"
    for tiling in (QUEUE, replace(LOADS, runs=4)):
        plan = case.rows_plan(replace(tiling, split=True), 8)
        assert plan.defines["SPLIT"] == 1
        assert plan.launches[0].grid[0] % 4 == 0
        case.check(replace(plan, launches=plan.launches * 3), build, "backward")  # counters are left at zero


@pytest.mark.parametrize(
    ("m", "k", "sparsity", "ranges"),
    [(5, 64, 0.5, 32), (3, 27, 0.34, 9), (4, 37, 0.5, 32), (4, 3000, 0.8, 32), (2, 25088, 0.93, 32), (3, 100, 0.1, 32)],
)
def test_format_round_trip(m, k, sparsity, ranges):
    matrix = csr(m, k, sparsity, ranges)
    form = BalancedMatrix.from_csr(matrix, ranges)
    assert form.width == -(-k // ranges)
    np.testing.assert_array_equal(whole_rows(form), matrix.to_dense())
    assert form.positions.itemsize == (1 if form.width <= 256 else 2)
    assert form.positions.max() < form.width


def test_what_is_not_balanced_names_row_and_range():
    dense = csr(6, 128, 0.5).to_dense()
    zero = int(np.flatnonzero(dense[4, 8:12] == 0)[0]) + 8
    dense[4, zero] = 1.0
    with pytest.raises(MatrixError, match=r"row 4 has 3 nonzeros in range 2 \(columns 8 to 11\), expected 2"):
        BalancedMatrix.from_csr(CSR.from_dense(dense), 32)
    moved = csr(6, 128, 0.5).to_dense()
    used, free = np.flatnonzero(moved[5, :4])[0], 4 + np.flatnonzero(moved[5, 4:8] == 0)[0]
    moved[5, free], moved[5, used] = 1.0, 0.0  # as many in the row, one in the wrong range
    with pytest.raises(MatrixError, match="row 5 has 1 nonzeros in range 0"):
        BalancedMatrix.from_csr(CSR.from_dense(moved), 32)
    with pytest.raises(MatrixError, match="without nonzeros"):
        BalancedMatrix.from_csr(CSR.from_dense(np.zeros((3, 64))), 32)
    with pytest.raises(MatrixError, match="do not fit"):
        BalancedMatrix.from_csr(csr(3, 64, 0.5), 65)
    uniform = Problem("test", "test", "spmv", 64, 256, 1, 0.5, "uniform:0")
    with pytest.raises(Unsupported, match="not balanced: row"):
        next(balanced.balanced.plans(uniform, make_operands(uniform), "sm_90"))


@pytest.mark.parametrize("k", [4, 512, 514])
def test_its_structure_takes_as_many_bytes_as_positions_are_stored_in(k):
    problem = Problem("t", "t", "spmm", 6, k, 8, 0.5, "balanced:2:0")
    sparse = make_operands(problem).sparse
    assert balanced.structure_bytes(problem, sparse.nnz) == BalancedMatrix.from_csr(sparse, 2).positions.nbytes
