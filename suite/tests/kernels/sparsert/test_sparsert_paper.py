from dataclasses import replace

import numpy as np
import pytest
from on_cpu import execute
from on_cpu import matrix as random_matrix
from sparsert_programs import assembled, interpret, right, truth

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import Problem
from nnzbench.devices.build.cache import Job, build
from nnzbench.kernels.sparsert import paper_schedule as paper
from nnzbench.kernels.sparsert.paper import ENTRY, MAX_NONZEROS, PaperProduct, plans, rolled_plan, unrolled_plan
from nnzbench.kernels.sparsert.paper_schedule import MatrixB, PaperTiling
from nnzbench.papers.catalogue import EXPERIMENTS


def uneven_matrix():
    dense = random_matrix(48, 40, 0.3).to_dense()
    dense[:20] *= np.random.default_rng(5).random((20, 40)) < 0.2
    dense[7] = 0
    return CSR.from_dense(dense)


def spmm(matrix, n, arch="sm_90"):
    b = np.random.default_rng(1).standard_normal((matrix.k, n)).astype(np.float32)
    return PaperProduct(matrix, b, MatrixB(matrix.k, n), (matrix.m, n), arch)


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_emitted_ptx_multiplies(groups, balanced):
    matrix = uneven_matrix()
    work = spmm(matrix, 64)
    plan = unrolled_plan(work, PaperTiling(6, 2, groups, balanced))
    assert right(interpret(plan), truth(matrix, work.b))


def test_tilings_that_differ_in_width_alone_share_a_program():
    matrix = uneven_matrix()
    work = spmm(matrix, 64)
    made = [unrolled_plan(work, PaperTiling(6, n_blocks, 2), 128) for n_blocks in (1, 2)]
    assert made[0].source == made[1].source
    assert made[0].launches != made[1].launches
    for plan in made:
        assert right(interpret(plan), truth(matrix, work.b))


@pytest.mark.parametrize("make", [unrolled_plan, rolled_plan])
@pytest.mark.parametrize("tiling", [PaperTiling(6, 1, 1), PaperTiling(3, 7, 4), PaperTiling(6, 7, 2, balanced=False)])
def test_on_the_processor_with_groups_narrower_than_a_warp(make, tiling):
    matrix = uneven_matrix()
    work = spmm(matrix, 49, "sm_80")
    assert right(execute(make(work, tiling)), truth(matrix, work.b))


def one_dense_row():
    dense = random_matrix(37, 29, 0.1).to_dense()
    dense[11], dense[20:] = 1.5, 0
    return CSR.from_dense(dense)


@pytest.mark.parametrize(
    ("matrix", "n"),
    [(CSR.from_dense(np.zeros((13, 8), np.float32)), 7), (one_dense_row(), 1), (random_matrix(1, 40, 0.3), 49)],
    ids=["empty", "one dense row", "one row"],
)
@pytest.mark.parametrize("name", ["tuned", "unbalanced"])
def test_awkward_matrices_on_the_processor(matrix, n, name):
    problem = Problem("t", "t", "spmm", matrix.m, matrix.k, n, 0.9, "uniform:0")
    b = np.random.default_rng(2).standard_normal((matrix.k, n)).astype(np.float32)
    found = list(plans(problem, Operands(matrix, {"b": b}, "p"), "sm_80", balanced=name == "tuned"))
    assert {1, 2, 4, 8} <= {plan.launches[0].block[1] for plan in found} <= set(paper.GROUPS)
    for plan in (found[0], found[-1]):
        assert right(execute(plan), truth(matrix, b))


def test_balancing_between_blocks_is_what_can_be_left_out():
    matrix = uneven_matrix()

    def worst(balanced):
        dealt = paper.deal(matrix, PaperTiling(6, 2, 4, balanced))
        groups = np.array([body.rows.size for body in dealt.bodies]).reshape(6, 4)
        assert groups.sum() == matrix.nnz
        return int(groups.sum(axis=1).max()), int((groups.max(axis=1) - groups.min(axis=1)).max())

    assert worst(True)[0] < worst(False)[0]
    assert worst(True)[1] <= 1
    assert worst(False)[1] <= 1
    assert set(np.diff(paper.deal(matrix, PaperTiling(6, 2, 4, False)).row_start)) == {8}


def test_grid_is_feasible_and_small():
    for m, n in ((64, 12544), (512, 49), (2048, 256), (37, 7), (1, 1)):
        tilings = paper.grid(m, n)
        assert 1 <= len(tilings) <= 42
        assert len({t.name for t in tilings}) == len(tilings)
        widest = paper.widest_blocks(m, n)
        for t in tilings:
            assert n % t.n_blocks == 0
            assert 1 <= t.m_blocks <= m
            assert n // t.n_blocks * t.groups <= widest[t.groups] <= 1024


@pytest.mark.parametrize("experiment", ["sparsert_table1", "sparsert_ablation", "sparsert_table3"])
def test_no_problem_of_the_paper_is_refused(experiment):
    for problem in EXPERIMENTS[experiment].problems(real=False):
        assert problem.m * problem.k * (1 - problem.sparsity) < MAX_NONZEROS
        for t in paper.grid(problem.m, problem.n):
            rows, width = -(-problem.m // t.m_blocks), problem.n // t.n_blocks
            assert rows in paper.ROWS_PER_BLOCK
            assert width >= 28
            assert (2 * rows + 24) * width * t.groups <= 65536  # balanced blocks may be twice as tall
            assert t.groups == 1 or 2 * rows * width * 4 <= 48 * 1024


def test_kernels_of_the_ablation_differ_as_named():
    matrix = uneven_matrix()
    problem = Problem("t", "t", "spmm", 48, 40, 64, 0.7, "uniform:0")
    operands = Operands(matrix, {"b": np.zeros((40, 64), np.float32)}, "p")
    tuned = list(plans(problem, operands, "sm_90"))
    fixed = list(plans(problem, operands, "sm_90", tuned=False))
    rolled = list(plans(problem, operands, "sm_90", unrolled=False))
    assert len(tuned) > 4
    assert len({plan.source for plan in tuned}) < len(tuned)
    assert len(fixed) == 1
    assert (fixed[0].variant, fixed[0].source) in {(plan.variant, plan.source) for plan in tuned}
    assert {plan.variant for plan in rolled} == {plan.variant for plan in tuned}
    assert {plan.language for plan in rolled} == {"cuda"}
    with pytest.raises(Unsupported, match="output is empty"):
        next(plans(replace(problem, n=0), operands, "sm_90"))


def test_what_does_not_fit_is_refused_with_a_sentence():
    matrix = random_matrix(64, 16, 0.5)
    with pytest.raises(Unsupported, match="1024 threads with 64 accumulators"):
        unrolled_plan(spmm(matrix, 1024), PaperTiling(1, 1, 1))
    far = replace(spmm(matrix, 64), dense=MatrixB(2**24, 64))
    with pytest.raises(Unsupported, match="2 GB"):
        unrolled_plan(far, PaperTiling(8, 1, 1))
    k = 2 * MAX_NONZEROS
    large = CSR(1, k, np.array([0, k]), np.arange(k, dtype=np.int32), np.ones(k, np.float32))
    operands = Operands(large, {"b": np.zeros((k, 1), np.float32)}, "p")
    with pytest.raises(Unsupported, match=f"at most {MAX_NONZEROS}"):
        next(plans(Problem("t", "t", "spmm", 1, k, 1, 0.0, "uniform:0"), operands, "sm_90"))


@pytest.mark.parametrize("arch", ["sm_70", "sm_90"])
def test_assembles(arch):
    work = spmm(uneven_matrix(), 49, arch)
    for tiling in (PaperTiling(6, 1, 4), PaperTiling(6, 1, 1)):
        assert assembled(unrolled_plan(work, tiling).source, arch, ENTRY).code_bytes
        try:
            assert build(Job.of(rolled_plan(work, tiling), arch).program()).resources
        except Unsupported as error:
            pytest.skip(str(error))
