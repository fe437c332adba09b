"""`tensor_spmm` against float64 on the processor, and the tilings that it is tried with."""

import re
from dataclasses import replace

import numpy as np
import pytest
from kernel_cases import TENSOR_CASES, TILINGS
from kernel_problems import assert_exact as exact
from kernel_problems import whole
from on_cpu import execute, matrix
from on_cpu import spmm_operands as operands
from on_cpu import spmm_problem as problem

from nnzbench.advise.operators.tokens import by_tokens, turns
from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.check import relative_error
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.reference import reference
from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.kernels.registry import with_variant
from nnzbench.kernels.tensor import spmm
from nnzbench.kernels.tensor.spmm import TensorTiling, make_plan, tensor_spmm


def assert_exact(data, tiling, dtype="f16", build="plain", order="forward"):
    if tiling.fp8:
        data, dtype = data.cast("f8"), "f8"
    exact(make_plan(problem(data, dtype), data, tiling), problem(data, dtype), data, build, order)


def test_bf16_and_rounding():
    data = operands(matrix(40, 200, 0.3), 20).cast("bf16")
    plan = make_plan(problem(data, "bf16"), data, TILINGS[2])
    assert plan.math == "bf16"
    truth = reference(problem(data, "bf16"), data)
    allowed = 2.0**-8 * np.abs(truth.value) + 1e-6 * truth.scale
    assert (np.abs(execute(plan) - truth.value) <= allowed).all()
    assert_exact(whole(matrix(40, 200, 0.3), 20, "bf16"), TILINGS[3], "bf16")


def test_sums_halfway_between_two_bf16_numbers_go_to_the_even_one():
    low = np.array([[1, 2**-8], [1 + 2**-7, 2**-8]], dtype=np.float32)
    data = Operands(CSR.from_dense(low), {"b": np.ones((2, 16), np.float32)}, "").cast("bf16")
    expected = np.repeat([[1], [1 + 2**-6]], 16, axis=1)
    assert np.array_equal(execute(make_plan(problem(data, "bf16"), data, TILINGS[1])), expected)


def test_values_in_fp16_are_summed_in_fp32():
    data = operands(matrix(64, 500, 0.2), 24).cast("f16")
    plan = make_plan(problem(data), data, TILINGS[2])
    assert relative_error(execute(plan), reference(problem(data), data)) < 5e-4


def test_negative_zeros_and_overflow():
    sparse = matrix(33, 128, 0.3)
    data = operands(sparse, 8).cast("f16")
    zeros = Operands(data.sparse, {"b": np.full((128, 8), -0.0, np.float16)}, "")
    assert not execute(make_plan(problem(zeros), zeros, TILINGS[0])).any()
    large = Operands(
        data.sparse.with_values(np.full(sparse.nnz, 6e4, np.float16)), {"b": np.full((128, 8), 1e3, np.float16)}, ""
    )
    assert np.isposinf(execute(make_plan(problem(large), large, TILINGS[0]))).all()  # behind fp16, not behind fp32


def test_results_are_the_same_in_any_order():
    data = operands(matrix(40, 700, 0.3), 16).cast("f16")
    tiling = TensorTiling(16, 4, 1, 2, 128, 2, 1, 6)
    first = execute(make_plan(problem(data), data, tiling)).tobytes()
    for other in (tiling, replace(tiling, early=True, spread=True)):
        plan = make_plan(problem(data), data, other)
        for order in ("forward", "backward", "random:1", "random:2"):
            assert execute(plan, "plain", order).tobytes() == first, (other, order)


@pytest.mark.parametrize("tiling", [TILINGS[0], TILINGS[10]], ids=str)
def test_counters_are_ready_for_the_next_launch(tiling):
    data = whole(matrix(40, 390, 0.3), 8)
    prepared = CpuDevice().prepare(make_plan(problem(data), data, tiling))
    for _ in range(3):
        prepared.poison()
        prepared.run()
        assert np.array_equal(prepared.read(), reference(problem(data), data).value)
    prepared.close()


def test_older_tensor_cores_are_refused():
    data = operands(matrix(32, 64, 0.3), 8).cast("f16")
    with pytest.raises(Unsupported, match="2:4"):
        next(tensor_spmm.plans(problem(data), data, "sm_75"))


@pytest.mark.parametrize(("shape", "at"), [*TENSOR_CASES[:6], *TENSOR_CASES[8:10], *TENSOR_CASES[14:17]], ids=str)
def test_rows_of_tokens_give_the_same_sums(shape, at):
    """B (n, k) and C (n, m), by the kernel's own form where the sizes allow it, and else between two turns."""
    m, k, n, density = shape
    for rows, columns in ((m, k), (m + m % 2, -(-k // 8) * 8)):
        data = whole(matrix(rows, columns, density, empty=(m - 1,) if m > 1 else (), full=m // 2), n)
        plan = by_tokens(make_plan(problem(data), data, TILINGS[at]), data)
        assert turns(plan) == (n > 1 and (rows % 2 > 0 or columns % 8 > 0))
        assert np.array_equal(execute(plan), reference(problem(data), data).value)


def test_rows_of_tokens_are_clean_under_sanitizers_and_keep_inf_to_its_rows():
    for build, tiling in (("asan", TILINGS[0]), ("tsan", TILINGS[3])):
        data = whole(matrix(34, 264, 0.35, empty=(0, 33), full=20), 36 if tiling.wide else 7)
        plan = by_tokens(make_plan(problem(data), data, tiling), data)
        assert np.array_equal(execute(plan, build), reference(problem(data), data).value)
    data = operands(matrix(46, 296, 0.3, empty=(4,), full=9), 11).cast("f16")
    b = data.dense["b"].copy()
    b[7, 3], b[295, 10] = np.inf, np.nan
    spoilt = Operands(data.sparse, {"b": b}, "")
    plain = make_plan(problem(data), spoilt, TILINGS[2])
    assert np.array_equal(execute(by_tokens(plain, spoilt)), execute(plain), equal_nan=True)


def test_a_plan_is_found_by_its_name_without_making_the_others(monkeypatch):
    """And of other weights the one that differs in its stages alone, which follow from them."""
    data = operands(matrix(512, 1024, 0.2), 16).cast("f16")
    one = problem(data, "f16")
    every = list(tensor_spmm.plans(one, data, "sm_90"))
    wanted = every[-1].variant
    made = []
    monkeypatch.setattr(spmm, "make_plan", lambda *given: made.append(given) or make_plan(*given))
    (found,) = with_variant(tensor_spmm, wanted).plans(one, data, "sm_90")
    assert found.variant == wanted
    assert len(made) == 1
    other = re.sub(r"\.\d+_p", ".9_p", wanted)
    (alike,) = with_variant(tensor_spmm, other, exact=False).plans(one, data, "sm_90")
    assert alike.variant == wanted
    assert not list(with_variant(tensor_spmm, other).plans(one, data, "sm_90"))


def gates(data, tiling, monkeypatch, factor=0.125):
    """The plan of a tiling with SwiGLU, and what float64 gives."""
    monkeypatch.setattr(spmm, "tilings", lambda *_: [tiling])
    dtype = "f8" if tiling.fp8 else "f16"
    if tiling.fp8:
        data = data.cast("f8")
    (plan,) = spmm.gated(problem(data, dtype), data, "sm_90", "", factor)
    with np.errstate(invalid="ignore", over="ignore"):
        gate, other = np.split(factor * (data.sparse.to_scipy() @ data.dense["b"].astype(np.float64)), 2)
        return plan, gate / (1 + np.exp(-gate)) * other


def assert_gated(data, tiling, monkeypatch, build="plain", order="forward"):
    """To half a step of fp16: sums are rounded once, when they have been multiplied."""
    plan, expected = gates(data, tiling, monkeypatch)
    assert np.abs(expected).max(initial=0) > 1
    found = execute(plan, build, order)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=2**-11 + 1e-5, atol=2.0**-24)


@pytest.mark.parametrize("at", [0, 1, 2, 8, 10, 15, 17])
def test_gates_let_their_rows_through(at, monkeypatch):
    """Of strips that are whole, of eights that are not, and of one row."""
    for half, n in ((21, 7), (64, 41), (1, 1)):
        assert_gated(whole(matrix(2 * half, 390, 0.35, full=half), n), TILINGS[at], monkeypatch)


def test_gates_are_clean_under_sanitizers_and_in_any_order(monkeypatch):
    for at, build, order in ((2, "asan", "forward"), (12, "tsan", "backward"), (1, "asan", "random:1")):
        assert_gated(whole(matrix(42, 390, 0.35, full=21), 36), TILINGS[at], monkeypatch, build, order)


@pytest.mark.parametrize("at", [0, 1, 2, 10])
def test_infinities_and_nan_reach_only_gates_that_use_them(at, monkeypatch):
    data = whole(matrix(46, 296, 0.15, empty=(4, 27), full=9), 11)
    data.dense["b"][7, 3], data.dense["b"][295, 10], data.dense["b"][11, 5] = np.inf, np.nan, -np.inf
    plan, expected = gates(data, TILINGS[at], monkeypatch)
    assert 0 < np.count_nonzero(~np.isfinite(expected)) < 30
    np.testing.assert_allclose(execute(plan).astype(np.float64), expected, rtol=2**-11 + 1e-5, atol=2.0**-24)
