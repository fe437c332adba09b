"""A decoder of a language model on the processor against float64, and what its parts say of themselves."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.decoder import HEAD, MODELS, Case, matrices
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import reference
from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.kernels.composed import decoder as composed
from nnzbench.kernels.composed import decoder_products
from nnzbench.kernels.registry import candidates, kernels

NET = MODELS["tiny"]


def problem(n: int, cached: int, sparsity: float = 0.6, label: str = "tiny") -> Problem:
    net = MODELS["tiny"]
    return Problem(
        "decoder_block",
        "p",
        "decoder",
        net.weights // net.hidden,
        net.hidden,
        n,
        sparsity,
        "uniform:3",
        "f16",
        label=f"{label}_kv{cached}",
    )


SMALL = replace(NET, blocks=1, heads=1)
"""One block and head: those of others have the same launches."""


@pytest.mark.parametrize(
    ("n", "cached", "sanitizer", "net", "most", "gated"),
    [
        (1, 0, "plain", NET, 2, True),
        (3, 7, "plain", replace(NET, heads=7), 2, False),
        (5, 7, "plain", replace(NET, inside=388), 2, True),  # not whole eights of gates
        (2, 530, "plain", replace(NET, heads=8, key_heads=2), 2, False),
        (1, 2300, "plain", replace(NET, heads=1), 64, True),  # more parts than are added at once
        (5, 130, "asan", SMALL, 2, True),
        (2, 130, "asan", SMALL, 2, False),
        (1, 130, "tsan", SMALL, 2, True),
    ],
)
def test_the_network_is_that_of_float64(n, cached, sanitizer, net, most, gated, monkeypatch):
    """With SwiGLU in the product before it, where that has such a form, and with a step of its own."""
    monkeypatch.setitem(MODELS, "tiny", net)
    if not gated:
        monkeypatch.setattr(decoder_products, "GATED", {})
    monkeypatch.setattr(composed, "MOST_SPLITS", most)  # with two parts some warps have more than one tile
    one = problem(n, cached)
    operands = make_operands(one)
    expected = reference(one, operands)
    device = CpuDevice(sanitizer)
    network = decoder_products.DecoderNetwork(one, operands, device)
    assert (network.gated(composed.FAMILIES["sparse_block"][0]) is not None) == gated
    (candidate,) = candidates(kernels()["sparse_block"], one, operands, device)
    prepared = candidate.prepare()
    prepared.poison()
    assert np.isnan(prepared.read().astype(np.float32)).all()
    prepared.run()
    error = relative_error(prepared.read(), expected)
    assert passes(error, "f16"), error
    if sanitizer == "plain":
        prepared.run()
        assert relative_error(prepared.read(), expected) == error  # the counters of parts are zero again
    other = make_operands(problem(n, cached, 0.7))
    assert not passes(relative_error(prepared.read(), reference(one, other)), "f8_network")  # it tells networks apart
    device.close()


def test_matrices_are_the_operands_weights_flat_in_their_order():
    operands = make_operands(problem(1, 0))
    parts = matrices(NET, operands.sparse)
    assert {name: (one.m, one.k) for name, one in parts.items()} == NET.products
    flat = np.concatenate([one.to_dense().reshape(-1) for one in parts.values()])
    assert np.array_equal(flat, operands.sparse.to_dense().reshape(-1))


def test_each_matrix_has_its_own_zeros():
    one = replace(problem(1, 0, 0.68), source="layers:60-60-75-70:3")
    found = matrices(NET, make_operands(one).sparse)
    assert [round(matrix.sparsity, 2) for matrix in found.values()] == [0.6, 0.6, 0.75, 0.7]


@pytest.mark.parametrize("levels", ["70-70", "10-60-75-70", "a-60-75-70", "60-60-75-170"])
def test_levels_that_are_not_the_problems_are_refused(levels):
    with pytest.raises(MatrixError):
        make_operands(replace(problem(1, 0, 0.68), source=f"layers:{levels}:3"))


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


def test_tensor_cores_that_cannot_do_it_are_told():
    one = problem(1, 0)
    with pytest.raises(Unsupported, match="sm_75"):
        next(candidates(kernels()["sparse_block"], one, make_operands(one), CpuDevice(arch="sm_75")))


def test_more_tokens_than_32_bits_count_are_told():
    one = problem(2**31 // max(m for m, _ in NET.products.values()) + 1, 0)
    network = composed.DecoderNetwork(one, make_operands(problem(1, 0)), CpuDevice())
    with pytest.raises(Unsupported, match="32 bits"):
        composed.steps(network, {}, False)


def test_what_networks_share_is_what_each_makes_alone(differing):
    """Over the same weights: of every matrix in every form, for one token and for two, of other values."""
    operands = make_operands(problem(1, 0))
    for n, seed in ((1, 0), (2, 0), (2, 1)):
        one = replace(problem(n, 0), seed=seed)
        network = composed.DecoderNetwork(one, replace(operands, dense=make_operands(one).dense), CpuDevice())
        for name, math, whole in itertools.product((*NET.products, HEAD), ("f16", "bf16", "f8"), (False, True)):
            composed._truth(*network.part(name, composed.ProductFamily(math, (), whole=whole)))
        for name, family in itertools.product(NET.products, composed.FAMILIES["sparse_block"]):
            network._best(name, family)
            network._best(name, replace(family, kernels=("row_stream",)))
    assert not differing
