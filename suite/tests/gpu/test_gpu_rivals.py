"""MergeSpMM, ASpT and small whole networks on a real GPU: right as often as they run, and in one graph."""

from __future__ import annotations

import pytest
from kernel_problems import AWKWARD, TRANSFORMER, mobilenet, sampled
from on_cpu import matrix, spmm_operands, spmm_problem

from nnzbench.devices import Device
from nnzbench.kernels.registry import candidates, kernels
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.check import passes, relative_error
from nnzbench.problems.operands import Operands, make_operands
from nnzbench.problems.problem import Problem
from nnzbench.problems.reference import reference

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]


def check_all(gpu: Device, name: str, problem: Problem, operands: Operands) -> None:
    """Every candidate twice in a row: what adds to its output must not see the first run's."""
    expected = reference(problem, operands)
    for candidate in candidates(kernels()[name], problem, operands, gpu):
        try:
            prepared = candidate.prepare()
        except Unsupported:  # TF32 on a GPU that has none
            continue
        for _ in range(2):
            prepared.poison()
            prepared.run()
            assert passes(relative_error(prepared.read(), expected), candidate.math), candidate.variant
        assert prepared.capturable, candidate.variant
        prepared.close()


@pytest.mark.parametrize("n", [1, 7, 32, 49, 64, 128, 500])
def test_merge_spmm(gpu: Device, n: int) -> None:
    for sparse in (matrix(37, 470, empty=(0, 5, 36), full=9), matrix(2000, 60, 0.05), matrix(300, 2000, 0.3)):
        data = spmm_operands(sparse, n)
        check_all(gpu, "merge_spmm", spmm_problem(data), data)


@pytest.mark.parametrize("n", [32, 128])
def test_aspt(gpu: Device, n: int) -> None:
    for sparse in (*AWKWARD.values(), matrix(1000, 2048, 0.2), matrix(500, 8192, 0.1)):
        data = spmm_operands(sparse, n)
        check_all(gpu, "aspt", spmm_problem(data), data)
        check_all(gpu, "aspt_sddmm", *sampled(sparse, n))


@pytest.mark.parametrize("name", ["sparse_transformer", "dense_transformer"])
def test_transformers(gpu: Device, name: str) -> None:
    check_all(gpu, name, TRANSFORMER, make_operands(TRANSFORMER))


@pytest.mark.parametrize(
    ("name", "sparsity"), [("sparse_mobilenet", 0.9), ("dense_mobilenet", 0.9), ("dense_mobilenet", 0.0)]
)
def test_mobilenets(gpu: Device, name: str, sparsity: float) -> None:
    for problem in (mobilenet(sparsity), mobilenet(sparsity, 1.0, 224)):
        check_all(gpu, name, problem, make_operands(problem))
