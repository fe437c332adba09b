from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ptx_interpreter import Kernel
from test_sparsert import random_matrix, truth
from test_sparsert_cpu import cache, run_on_cpu  # noqa: F401

from nnzbench.check import passes, relative_error
from nnzbench.codegen import paper
from nnzbench.codegen.paper import PaperTiling
from nnzbench.compile import compile_cuda
from nnzbench.compile_pool import assemble_ptx
from nnzbench.kernel import Unsupported
from nnzbench.kernels.sparsert_paper import PaperKernel, rolled_plan, unrolled_plan
from nnzbench.matrices.formats import CSR
from nnzbench.operands import Operands
from nnzbench.problem import Problem


def uneven_matrix() -> CSR:
    dense = random_matrix(48, 40, 0.3).to_dense()
    dense[:20] *= np.random.default_rng(5).random((20, 40)) < 0.2
    dense[7] = 0
    return CSR.from_dense(dense)


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_emitted_ptx_multiplies(groups: int, balanced: bool) -> None:
    matrix = uneven_matrix()
    b = np.random.default_rng(1).standard_normal((40, 64)).astype(np.float32)
    plan = unrolled_plan(matrix, b, PaperTiling(6, 2, groups, balanced), "sm_90")
    launch = plan.launches[0]
    buffers = {"b": b.copy(), "c": np.full((48, 64), np.nan, np.float32)}
    Kernel(plan.source).launch(launch.grid, launch.block[0] * launch.block[1], buffers, launch.shared_bytes, False, 32)
    assert passes(relative_error(buffers["c"], truth(matrix, b)), "f32")


@pytest.mark.parametrize("make", [unrolled_plan, rolled_plan])
@pytest.mark.parametrize("tiling", [PaperTiling(6, 1, 1), PaperTiling(3, 7, 4), PaperTiling(6, 7, 2, balanced=False)])
def test_on_the_processor_with_groups_narrower_than_a_warp(make: object, tiling: PaperTiling) -> None:
    matrix = uneven_matrix()
    b = np.random.default_rng(1).standard_normal((40, 49)).astype(np.float32)
    plan = make(matrix, b, tiling, "sm_80")  # type: ignore[operator]
    assert passes(relative_error(run_on_cpu(plan), truth(matrix, b)), "f32")


def test_balancing_evens_out_blocks_and_groups() -> None:
    matrix = uneven_matrix()

    def worst(balanced: bool) -> tuple[int, int]:
        schedule = paper.make_schedule(matrix, 64, PaperTiling(6, 2, 4, balanced))
        groups = np.array([body.rows.size for body in schedule.bodies]).reshape(6, 4)
        assert groups.sum() == matrix.nnz
        return int(groups.sum(axis=1).max()), int(groups.max() - groups.min())

    assert worst(True)[0] < worst(False)[0]
    assert worst(True)[1] < worst(False)[1]


def test_grid_is_feasible_and_divides() -> None:
    for m, n in ((64, 12544), (512, 49), (2048, 256), (37, 7)):
        tilings = paper.grid(m, n)
        assert tilings
        assert len({t.name for t in tilings}) == len(tilings)
        for t in tilings:
            assert n % t.n_blocks == 0
            assert m % t.m_blocks == 0
            assert n // t.n_blocks * t.groups <= 1024


def test_kernels_of_the_ablation_differ_as_named() -> None:
    matrix = uneven_matrix()
    problem = Problem("t", "t", "spmm", 48, 40, 64, 0.7, "uniform:0")
    operands = Operands(matrix, {"b": np.zeros((40, 64), np.float32)}, "p")
    tuned = list(PaperKernel("tuned").plans(problem, operands, "sm_90"))
    fixed = list(PaperKernel("fixed", tuned=False).plans(problem, operands, "sm_90"))
    rolled = list(PaperKernel("rolled", unrolled=False).plans(problem, operands, "sm_90"))
    assert len(tuned) > 4
    assert len(fixed) == 1
    assert fixed[0].variant in {plan.variant for plan in tuned}
    assert {plan.variant for plan in rolled} == {plan.variant for plan in tuned}
    assert {plan.language for plan in rolled} == {"cuda"}
    with pytest.raises(Unsupported, match="output is empty"):
        next(PaperKernel("t").plans(replace(problem, n=0), operands, "sm_90"))


@pytest.mark.parametrize("arch", ["sm_70", "sm_90"])
def test_assembles(arch: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNZBENCH_CACHE", str(tmp_path))
    matrix, b = uneven_matrix(), np.zeros((40, 49), np.float32)
    try:
        for tiling in (PaperTiling(6, 1, 4), PaperTiling(6, 1, 1)):
            assert assemble_ptx(unrolled_plan(matrix, b, tiling, arch).source, arch).resources
            plan = rolled_plan(matrix, b, tiling, arch)
            assert compile_cuda(plan.source, plan.defines, arch).resources
    except Unsupported as error:
        pytest.skip(str(error))
