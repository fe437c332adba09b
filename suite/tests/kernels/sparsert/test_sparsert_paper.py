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
