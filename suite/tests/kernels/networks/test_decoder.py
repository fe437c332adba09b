"""A decoder of a language model on the processor against float64, and what its parts say of themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from on_cpu import fresh_cache  # noqa: F401 - a fixture

from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.kernels.composed import decoder as composed
from nnzbench.kernels.registry import candidates, kernels
from nnzbench.matrices.formats import MatrixError
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.check import passes, relative_error
from nnzbench.problems.decoder import MODELS, Case, matrices
from nnzbench.problems.operands import make_operands
from nnzbench.problems.problem import Problem
from nnzbench.problems.reference import reference

NET = MODELS["tiny"]


def problem(n: int, cached: int, sparsity: float = 0.6, label: str = "tiny") -> Problem:
    rows = NET.weights // NET.hidden
    return Problem(
        "decoder_block", "p", "decoder", rows, NET.hidden, n, sparsity, "uniform:3", "f16", label=f"{label}_kv{cached}"
    )


class StepsOn(CpuDevice):
    """A processor with a sanitizer for the steps alone: products have tests of their own, and take most of the time."""

    def prepare(self, plan):
        return (super() if plan.source == composed.SOURCE else CpuDevice()).prepare(plan)


@pytest.mark.parametrize(
    ("n", "cached", "sanitizer"),
    [(1, 0, "plain"), (3, 7, "plain"), (2, 530, "plain"), (2, 37, "asan"), (1, 20, "tsan")],
)
def test_the_network_is_that_of_float64(n, cached, sanitizer, monkeypatch):
    if sanitizer == "tsan":
        monkeypatch.setitem(MODELS, "tiny", replace(NET, blocks=1))  # the second has the same launches
    one = problem(n, cached)
    operands = make_operands(one)
    expected = reference(one, operands)
    device = StepsOn(sanitizer)
    (candidate,) = candidates(kernels()["sparse_block"], one, operands, device)
    prepared = candidate.prepare()
    prepared.poison()
    assert np.isnan(prepared.read().astype(np.float32)).all()
    prepared.run()
    error = relative_error(prepared.read(), expected)
    assert passes(error, "f16"), error
    other = make_operands(problem(n, cached, 0.7))
    assert not passes(relative_error(prepared.read(), reference(one, other)), "f8_network")  # it tells networks apart
    device.close()


def test_matrices_are_the_operands_weights_flat_in_their_order():
    operands = make_operands(problem(1, 0))
    parts = matrices(NET, operands.sparse)
    assert {name: (one.m, one.k) for name, one in parts.items()} == NET.products
    flat = np.concatenate([one.to_dense().reshape(-1) for one in parts.values()])
    assert np.array_equal(flat, operands.sparse.to_dense().reshape(-1))


@pytest.mark.parametrize(("cached", "label"), [(5, "unknown"), (-1, "tiny"), (5, "llama3_8b")])
def test_another_model_or_size_is_refused(cached, label):
    with pytest.raises(MatrixError):
        Case.of(problem(1, cached, label=label))


@pytest.mark.parametrize(
    ("kernel", "sparsity"),
    [("dense_block", 0.5), ("fp8_block", 0.5), ("sparse_block", 0.0), ("two_four_block", 0.5)],
)
def test_weights_of_another_kind_are_refused(kernel, sparsity):
    one = problem(1, 0, sparsity)
    with pytest.raises(Unsupported):
        next(candidates(kernels()[kernel], one, make_operands(one), CpuDevice()))


@pytest.mark.parametrize("tokens", [1, 255, 600, 2049, 8193, 100_000])
def test_splits_cover_all_tokens_and_none_is_empty(tokens):
    splits, each = composed.splitting(tokens)
    assert (splits - 1) * each < tokens <= splits * each
