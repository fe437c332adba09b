"""Whole networks, small, on the processor against float64."""

from dataclasses import replace

import numpy as np
import pytest
from fake_gpu import FakeCublas, open_fake
from kernel_problems import TRANSFORMER, mobilenet

from nnzbench.bench import memory
from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import MatrixError
from nnzbench.data.problems import tables
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.networks import EPSILON, HEADS, LAYERS, MobileNet, blocks_of
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import Problem
from nnzbench.data.problems.reference import reference
from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.kernels.composed.networks import PRODUCT, DenseHeads, mobilenet_plan, transformer_plan
from nnzbench.kernels.registry import candidates, kernels
from nnzbench.kernels.sputnik.spmm import heuristic_tile
from nnzbench.kernels.vendor import support
from nnzbench.results.roofline import dense_work, useful_work

SMALL = replace(TRANSFORMER, m=19, k=19)


def error_of(name, problem, which, build="plain"):
    """Of the kernel's candidate of that number, run twice: the second run must not see the first one's residuals."""
    data, device = make_operands(problem), CpuDevice(build)
    try:
        candidate = list(candidates(kernels()[name], problem, data, device))[which]
        prepared = candidate.prepare()
        for _ in range(2 if build == "plain" else 1):
            prepared.poison()
            prepared.run()
        return relative_error(prepared.read(), reference(problem, data))
    finally:
        device.close()


@pytest.mark.parametrize(
    ("name", "problem", "which", "build"),
    [
        ("sparse_transformer", TRANSFORMER, 0, "plain"),
        ("sparse_transformer", SMALL, 2, "plain"),
        ("sparse_transformer", SMALL, 0, "asan"),
        ("dense_transformer", SMALL, 1, "plain"),
        ("sparse_mobilenet", mobilenet(0.9), 0, "plain"),
        ("sparse_mobilenet", mobilenet(0.9, 0.125), 0, "asan"),
        ("dense_mobilenet", mobilenet(0.0), 0, "plain"),
    ],
)
def test_networks_match_float64(name, problem, which, build):
    assert passes(error_of(name, problem, which, build), "f32")


@pytest.fixture
def gpu(monkeypatch):
    """A fake GPU whose cuBLAS multiplies and on which the dense Transformer's kernels of ours are NumPy."""

    def floats(backend, pointer, *shape):
        return backend.array(pointer, np.float32, int(np.prod(shape))).reshape(shape)

    def copy(backend, grid, block, args, shared_bytes):
        size, x, y = args
        floats(backend, y, int(size))[:] = floats(backend, x, int(size))

    def layer_norm(backend, grid, block, args, shared_bytes):
        m, n, *pointers = args
        x, gain, shift, y = (
            floats(backend, pointer, *shape)
            for pointer, shape in zip(pointers, ((int(m), int(n)), (int(n),), (int(n),), (int(m), int(n))), strict=True)
        )
        spread = np.sqrt(x.var(axis=1, keepdims=True) + EPSILON)
        y[:] = (x - x.mean(axis=1, keepdims=True)) / spread * gain + shift

    def bias_relu_columns(backend, grid, block, args, shared_bytes):
        size, n, bias, x = args
        values = floats(backend, x, int(size) // int(n), int(n))
        values[:] = np.maximum(values + floats(backend, bias, int(n)), 0)

    def masked_softmax(backend, grid, block, args, shared_bytes):
        n, words, mask, x = args
        scores = floats(backend, x, grid[0], int(n))
        bits = backend.array(mask, np.uint32, grid[0] * int(words)).reshape(grid[0], int(words))
        columns = np.arange(int(n))
        kept = bits[:, columns // 32] >> (columns % 32).astype(np.uint32) & 1
        weights = np.exp(scores - scores.max(axis=1, keepdims=True)) * kept
        scores[:] = weights / weights.sum(axis=1, keepdims=True)

    entries = (copy, layer_norm, bias_relu_columns, masked_softmax)
    device = open_fake({entry.__name__: entry for entry in entries})
    monkeypatch.setattr(support, "load_bindings", lambda name: FakeCublas(device.backend))
    return device


def test_on_a_gpu_cublas_computes_the_products_between_our_launches(gpu):
    data = make_operands(TRANSFORMER)
    found = list(candidates(kernels()["dense_transformer"], TRANSFORMER, data, gpu))
    assert [one.variant for one in found] == [
        "f32_default",
        "tf32_default",
        "f32_default_together",
        "tf32_default_together",
    ]
    expected = reference(TRANSFORMER, data)
    for candidate in found[1:3]:
        prepared = candidate.prepare()
        for _ in range(2):
            prepared.poison()
            prepared.run()
        assert passes(relative_error(prepared.read(), expected), "f32"), candidate.variant
        assert prepared.capturable
        prepared.close()
    taken = [memory.measure(TRANSFORMER, found[which], gpu) for which in (0, 2)]
    one, together = (use.taken_bytes for use in taken if use is not None)
    assert together - one == (HEADS - 1) * 4 * 45 * 45


def test_the_layers_are_those_of_the_table_of_layers():
    networks: dict[str, list[Problem]] = {}
    for one in tables.rows("sputnik_mobilenet"):
        networks.setdefault(one.label.rpartition("_")[0], []).extend([one] * one.count)
    assert len(networks) == 10
    for name, layers in networks.items():
        net = MobileNet(float(name.partition("_w")[2]), 224, 0)
        pointwise = [(p.m, p.k, p.n) for p in layers if p.op == "pointwise"]
        assert pointwise == [(b.filters, b.depthwise.channels, b.positions) for b in net.blocks]
        assert [p.conv for p in layers if p.op == "depthwise"] == [b.depthwise for b in net.blocks]


def test_all_layers_but_the_first_are_pruned():
    problem = mobilenet(0.9, 1.0, 32)
    matrices = list(blocks_of(MobileNet.of(problem.source), make_operands(problem).sparse))
    assert matrices[0].sparsity == 0
    assert all(one.sparsity == pytest.approx(0.9, abs=0.01) for one in matrices[1:])


def test_one_graph_has_every_launch_of_the_network():
    data = make_operands(TRANSFORMER)
    plan = transformer_plan("t", data.dense, DenseHeads(data.sparse, 8), together=False)
    products = [launch for launch in plan.launches if launch.entry == PRODUCT]
    assert len(products) == LAYERS * (HEADS * (3 + 2 + 1) + 2)
    assert len(plan.launches) == 1 + len(products) + LAYERS * (HEADS + 3)
    problem = mobilenet(0.9)
    data = make_operands(problem)
    net = MobileNet.of(problem.source)
    sparse = mobilenet_plan("t", net, data, lambda weights, n: heuristic_tile(n, 4))
    assert len(sparse.launches) == 1 + 13 * 2 + 1 + 2  # the first 1x1 convolution is dense: product, bias and ReLU
    assert sum(launch.entry == PRODUCT for launch in sparse.launches) == 1


def test_work_counts_what_the_network_multiplies():
    problem = mobilenet(0.0, 1.0, 224)
    data = make_operands(problem)
    assert dense_work(problem, data).flops == useful_work(problem, data).flops
    assert dense_work(problem, data).flops == pytest.approx(
        2 * 0.569e9, rel=0.01
    )  # the published 569 million of width 1
    full = Problem("t", "t", "transformer", 45, 45, 8, 0.0, "banded:45:0")
    mask = make_operands(full)
    assert useful_work(full, mask).flops == dense_work(full, mask).flops
    assert useful_work(TRANSFORMER, make_operands(TRANSFORMER)).flops < dense_work(full, mask).flops


def test_wrong_sources_and_dense_networks_are_refused():
    for source in ("mobilenet:1:224", "mobilenet:x:224:0", "mobilenet:0:224:0", "mobilenet:1:8:0", "uniform:0"):
        with pytest.raises(MatrixError, match="is not mobilenet"):
            MobileNet.of(source)
    problem = mobilenet(0.0)
    device = CpuDevice()
    with pytest.raises(Unsupported, match="weights are dense"):
        list(candidates(kernels()["sparse_mobilenet"], problem, make_operands(problem), device))
    device.close()
