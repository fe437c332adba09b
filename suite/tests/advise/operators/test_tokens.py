"""Operators for rows of tokens: kernels with a form of their own for them, the others between two turns."""

from dataclasses import replace

import numpy as np
import pytest
from on_cpu import fresh_cache, matrix  # noqa: F401

import nnzbench
from nnzbench.advise import api
from nnzbench.advise.operators import tokens
from nnzbench.advise.operators.archive import Packing
from nnzbench.advise.operators.make import draft, family, make, remake
from nnzbench.core.architectures import Part
from nnzbench.core.plan import Unsupported
from nnzbench.core.progress import RunProgress
from nnzbench.data.problems.check import TOLERANCE, relative_error
from nnzbench.data.problems.operands import round_to, storage_dtype
from nnzbench.data.problems.reference import reference
from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.kernels import registry
from nnzbench.kernels.tensor.spmm import make_plan, tilings

M, K = 70, 200
# kernel, type, most tokens, whether fewer are taken as they come, whether its operands are turned on the way
CASES = [
    ("tensor_spmm", "f16", 16, True, False), ("tensor_spmm", "bf16", 16, True, False),
    ("tensor_spmm", "f16", 1, False, False), ("delta_spmv", "f16", 1, False, False),
    ("delta_spmv", "bf16", 1, False, False), ("sputnik", "f32", 12, False, True),
    ("row_stream", "f16", 24, False, True), ("row_stream", "f32", 1, False, False),
]  # fmt: skip


def made(kernel, dtype, n, m=M, k=K):
    layer = api.as_layer(matrix(m, k, 0.3, empty=(4,)).to_dense())
    problem = layer.problem("spmm", n, dtype)
    operator = make(problem, layer.operands(problem), api._session("cpu"), RunProgress(), [kernel], 10.0, "tokens")
    return operator, round_to(layer.matrix.to_dense(), dtype).astype(np.float64)


def assert_right(operator, weights, rows, bias=None):
    facts = operator.facts
    x = np.random.default_rng(1).standard_normal((rows, facts.k)).astype(storage_dtype(facts.dtype))
    rounded = round_to(x, facts.dtype).astype(np.float64)
    found = operator(x, bias=bias)
    assert found.shape == (rows, facts.m)
    shift = 0 if bias is None else bias
    scale = np.abs(rounded) @ np.abs(weights).T + np.abs(shift) + 1e-9
    assert (np.abs(found - (rounded @ weights.T + shift)) / scale).max() < TOLERANCE[facts.dtype]


@pytest.mark.parametrize(("kernel", "dtype", "n", "fewer", "turned"), CASES)
def test_rows_of_tokens_come_in_and_go_out(kernel, dtype, n, fewer, turned):
    operator, weights = made(kernel, dtype, n)
    assert operator.fewer == fewer
    assert tokens.turns(operator.packed.plan) == turned
    bias = round_to(np.linspace(-2, 2, M, dtype=np.float32), dtype)
    for rows in (n, 5) if fewer else (n,):
        assert_right(operator, weights, rows)
        if operator.adds_bias:
            assert_right(operator, weights, rows, bias)
    assert operator.adds_bias == (kernel in ("tensor_spmm", "delta_spmv"))
    if not operator.adds_bias:
        with pytest.raises(nnzbench.OperatorError, match="adds no bias"):
            operator(np.zeros((n, K), storage_dtype(dtype)), bias=bias)
    if not fewer:
        with pytest.raises(nnzbench.OperatorError, match="must have the shape"):
            operator(np.zeros((n + 1, K), storage_dtype(dtype)))
    with pytest.raises(nnzbench.OperatorError, match="must have the shape"):
        operator(np.zeros((n + 1, K), storage_dtype(dtype)))


@pytest.mark.parametrize(("n", "wanted"), [(16, ""), (16, "early"), (32, "spread"), (32, "add")])
def test_a_bias_is_added_once_however_slices_are(n, wanted):
    layer = api.as_layer(matrix(M, 1024, 0.2, empty=(4,)).to_dense())
    problem = layer.problem("spmm", n, "f16")
    operands = layer.operands(problem)
    operands.dense["b"][7, 3] = np.inf
    plans = tokens.kernels_for("tokens", registry.kernels())["tensor_spmm"].plans(problem, operands, "sm_80")
    plan = next(one for one in plans if wanted in one.variant.split("_") or not wanted)
    assert plan.launches[0].grid[1] > 1, "slices"
    plan.buffers[tokens.BIAS][:] = bias = np.linspace(-2, 2, M, dtype=np.float16)
    prepared = api.open_device("cpu").prepare(plan)
    prepared.poison()
    prepared.run()
    dense, b = operands.sparse.to_dense().astype(np.float64), operands.dense["b"].astype(np.float64)
    b[7, 3] = 0
    exact = dense @ b + bias[:, None]
    exact[dense[:, 7] != 0, 3] = np.inf * np.sign(dense[dense[:, 7] != 0, 7])
    assert np.allclose(prepared.read(), exact, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize(
    ("n", "panel_k", "panels"), [(5, 1024, 2), (16, 256, 2), (32, 512, 2), (61, 512, 2), (128, 256, 2), (16, 256, 1)]
)
def test_every_panel_of_a_slice_is_turned(n, panel_k, panels):
    layer = api.as_layer(matrix(M, 1500, 0.2).to_dense())
    problem = layer.problem("spmm", n, "f16")
    operands = layer.operands(problem)
    some = next(one for one in tilings(problem, operands.sparse, "sm_80") if one.form == "words")
    tiling = replace(
        some, panel_k=panel_k, panels=panels, slices=1, stages=2, early=False, spread=False, separate=False
    )
    plan = tokens.by_tokens(make_plan(problem, operands, tiling), operands)
    prepared = api.open_device("cpu").prepare(plan)
    prepared.poison()
    prepared.run()
    assert relative_error(prepared.read(), reference(problem, operands)) < TOLERANCE["f16"]


def test_what_takes_columns_already_is_not_turned():
    operator, weights = made("flash_llm", "f16", 8, 256, 128)
    assert not tokens.turns(operator.packed.plan)
    assert_right(operator, weights, 8)


def test_generated_code_takes_no_rows():
    with pytest.raises(nnzbench.OperatorError, match="takes no rows of tokens"):
        made("sparsert", "f32", 16)


def test_saved_with_its_layout_and_loaded(tmp_path):
    operator, weights = made("tensor_spmm", "f16", 16)
    operator.save(tmp_path)
    again = nnzbench.load(tmp_path)
    assert again.facts == operator.facts
    assert again.fewer
    assert_right(again, weights, 3)


def test_a_draft_is_checked_where_it_is_made():
    layer = api.as_layer(matrix(M, K, 0.3).to_dense())
    problem = layer.problem("spmm", 8, "f16")
    known = registry.kernels()
    saved = draft(problem, layer.operands(problem), ["sparsert", "tensor_spmm"], "sm_80", known)
    assert (saved.facts.kernel, saved.facts.relative_error, saved.facts.hot_us) == ("tensor_spmm", None, None)
    device = api.open_device("cpu")
    stale = replace(saved, facts=replace(saved.facts, digest="0" * 64))
    for one in (saved, stale):
        made = family(Packing(M, K, "f16", "", {8: one.facts}), {8: one}, device, known)
        assert made.operators[8].facts.relative_error < TOLERANCE["f16"]
    with pytest.raises(nnzbench.OperatorError, match="not what was checked"):
        remake(stale, device, known)
    with pytest.raises(nnzbench.OperatorError, match="no kernel takes these weights"):
        draft(problem, layer.operands(problem), ["delta_spmv", "cublas"], "sm_80", known)


def test_what_was_packed_on_a_smaller_gpu_is_planned_as_there():
    layer = api.as_layer(matrix(4096, 64, 0.3).to_dense())
    problem, known = layer.problem("spmm", 1, "f16"), registry.kernels()
    small, table = (
        draft(problem, layer.operands(problem), ["delta_spmv"], Part("sm_80", sms), known) for sms in (2, 0)
    )
    assert small.facts.digest != table.facts.digest
    assert remake(small, api.open_device("cpu"), known).facts.digest == small.facts.digest


def test_turning_is_clean_under_sanitizers():
    layer = api.as_layer(matrix(41, 70, 0.3).to_dense())
    problem = layer.problem("spmm", 33, "f32")
    operands = layer.operands(problem)
    plan = next(tokens.kernels_for("tokens", registry.kernels())["sputnik"].plans(problem, operands, "sm_80"))
    device = CpuDevice("asan")
    prepared = device.prepare(plan)
    prepared.poison()
    prepared.run()
    assert np.allclose(prepared.read(), operands.sparse.to_dense() @ operands.dense["b"], atol=1e-4)


def test_a_plan_with_a_result_of_its_own_form_is_refused():
    layer = api.as_layer(matrix(256, 128, 0.3).to_dense())
    problem = layer.problem("spmm", 8, "f16")
    operands = layer.operands(problem)
    plan = next(registry.kernels()["flash_llm"].plans(problem, operands, "sm_80"))
    plan.buffers["b"][:] = 0  # no longer the operand
    with pytest.raises(Unsupported, match="a form of its own"):
        tokens.by_tokens(plan, operands)
