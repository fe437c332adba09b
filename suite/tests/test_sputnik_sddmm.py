from __future__ import annotations

import numpy as np
import pytest
from on_cpu import execute, fresh_cache, matrix, mutated  # noqa: F401

from nnzbench.check import passes, relative_error
from nnzbench.devices.cpu_device import SanitizerError
from nnzbench.kernel import Array, Unsupported, kernels
from nnzbench.kernels.sputnik_sddmm import Strip, candidates, heuristic_strip, sddmm_plan
from nnzbench.matrices.formats import CSR
from nnzbench.operands import Operands, Reference, reference
from nnzbench.problem import DType, Problem
from nnzbench.sparse_rows import StripOrder, row_strips

VECTOR = Strip(items=16, width=8, vector=4, strips=4)
BY_COLUMNS = Strip(items=16, width=8, vector=4, strips=8, by_columns=True)
SCALAR = Strip(items=32, width=32, vector=1, strips=2)


def factors(pattern: CSR, k: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((pattern.m, k)), rng.standard_normal((pattern.k, k))
    return a.astype(np.float32), b.astype(np.float32)


def expected(pattern: CSR, a: Array, b: Array) -> Reference:
    problem = Problem("test", "t", "sddmm", pattern.m, a.shape[1], pattern.k, 0.0, "")
    return reference(problem, Operands(pattern, {"a": a, "b": b}, ""))


AWKWARD = {
    "one entry": (matrix(1, 1, density=1.0), 4),
    "one row": (matrix(1, 150, density=0.7), 32),
    "full row, empty rows": (matrix(37, 70, empty=(0, 5, 36), full=9), 100),
    "length 7": (matrix(37, 70, empty=(0, 5, 36), full=9), 7),
    "length 1": (matrix(6, 19, density=0.5), 1),
}


@pytest.mark.parametrize("build", ["plain", "asan"])
@pytest.mark.parametrize("case", AWKWARD)
def test_awkward_shapes(case: str, build: str) -> None:
    pattern, k = AWKWARD[case]
    a, b = factors(pattern, k)
    plan = sddmm_plan(pattern, a, b, VECTOR if k % 4 == 0 else SCALAR)
    assert passes(relative_error(execute(plan, build), expected(pattern, a, b)), "f32")


def test_strips_by_columns_compute_the_same() -> None:
    pattern = matrix(37, 70, empty=(0, 5, 36), full=9)
    a, b = factors(pattern, 100)
    assert passes(relative_error(execute(sddmm_plan(pattern, a, b, BY_COLUMNS)), expected(pattern, a, b)), "f32")


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", ["sputnik_sddmm", "sputnik_sddmm_ablation"])
def test_first_plans_are_correct(name: str, dtype: DType) -> None:
    problem = Problem("test", "t", "sddmm", 13, 40, 70, 0.7, "", dtype)
    pattern = matrix(13, 70, full=2, empty=(3,))
    a, b = factors(pattern, 40)
    operands = Operands(pattern, {"a": a, "b": b}, "").cast(dtype)
    plans = list(kernels()[name].plans(problem, operands, "sm_90"))  # type: ignore[union-attr]
    assert len({plan.variant for plan in plans}) == len(plans)
    for plan in plans[:3]:
        assert passes(relative_error(execute(plan), reference(problem, operands)), plan.math)


def test_shuffles_and_staging_are_free_of_races() -> None:
    pattern = matrix(9, 60, density=0.6)
    a, b = factors(pattern, 36)
    assert passes(relative_error(execute(sddmm_plan(pattern, a, b, VECTOR), "tsan"), expected(pattern, a, b)), "f32")


def test_unused_rows_of_b_never_leak() -> None:
    dense = matrix(23, 40, density=0.4).to_dense()
    dense[:, [0, 7, 39]] = 0
    pattern = CSR.from_dense(dense)
    a, b = factors(pattern, 36)
    truth = expected(pattern, a, b)
    b[[0, 7]], b[39] = np.nan, np.inf
    assert passes(relative_error(execute(sddmm_plan(pattern, a, b, VECTOR)), truth), "f32")


def test_no_nonzeros_is_unsupported() -> None:
    pattern = matrix(3, 4, density=0.0)
    with pytest.raises(Unsupported, match="no nonzeros"):
        sddmm_plan(pattern, *factors(pattern, 8), VECTOR)


def test_a_planted_read_past_the_end_is_found() -> None:
    pattern = matrix(5, 33, density=0.5)
    mutant = mutated(
        sddmm_plan(pattern, *factors(pattern, 36), VECTOR), "const bool inside = at < k;", "const bool inside = true;"
    )
    with pytest.raises(SanitizerError, match="heap-buffer-overflow"):
        execute(mutant, "asan")


def test_a_planted_missing_barrier_is_found() -> None:
    pattern = matrix(5, 33, density=0.5)
    mutant = mutated(sddmm_plan(pattern, *factors(pattern, 36), VECTOR), "    __syncwarp();\n", "")
    with pytest.raises(SanitizerError, match="data race"):
        execute(mutant, "tsan")


@pytest.mark.parametrize("order", ["rows", "length", "columns"])
def test_strips_cover_every_entry_once(order: StripOrder) -> None:
    pattern = matrix(20, 50, empty=(4,), full=11)
    strips = row_strips(pattern, 16, order, 10)
    lengths = strips[:, 2] - strips[:, 1]
    assert lengths.min() > 0
    assert lengths.max() == 16
    covered = np.concatenate([np.arange(first, end) for _, first, end, _ in strips])
    assert sorted(covered) == list(range(pattern.nnz))
    assert (pattern.offsets[strips[:, 0]] <= strips[:, 1]).all()
    assert (strips[:, 2] <= pattern.offsets[strips[:, 0] + 1]).all()
    assert (np.diff(lengths) <= 0).all() == (order == "length")
    groups = pattern.indices[strips[:, 1]] // 10
    assert (np.diff(groups) >= 0).all() == (order == "columns")
    if order == "columns":
        assert all((np.diff(lengths[groups == group]) <= 0).all() for group in range(5))


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("k", [1, 7, 32, 64, 2048])
def test_every_strip_fits_its_problem(k: int, itemsize: int) -> None:
    for strip in [heuristic_strip(k, itemsize), *candidates(k, itemsize)]:
        assert k % strip.vector == 0
        assert strip.items % strip.width == 0
        assert strip.width * strip.strips % 32 == 0
