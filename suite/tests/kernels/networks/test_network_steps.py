"""Attention, 1x1 and depthwise convolutions with bias and ReLU: references, our kernels, dense baselines."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fake_gpu import FakeCublas, open_fake
from on_cpu import check, execute, matrix
from vendor_candidates import check_all as check_candidates

from nnzbench.bench import memory
from nnzbench.core.plan import Launch, Plan, Step, Unsupported, chain
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.operands import Operands, make_operands, storage_dtype
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.data.problems.reference import reference
from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.kernels.composed.networks import bias_relu_columns
from nnzbench.kernels.registry import candidates, kernels
from nnzbench.kernels.sputnik.layers import mask_bits, masked_softmax_plan
from nnzbench.kernels.vendor import support
from nnzbench.papers.sputnik.networks import attention_bytes
from nnzbench.results.roofline import row_work


def problem(op, m, k, n, sparsity=0.8, conv=None):
    return Problem("test", "p", op, m, k, n, sparsity, "uniform:0", conv=conv)


def attention(m=45, k=70, features=12, dtype="f32"):
    one = replace(problem("attention", m, k, features), dtype=dtype)
    operands = make_operands(one)
    return one, replace(operands, sparse=matrix(m, k, 0.2, empty=(0, 17), full=3)).cast(dtype)


def depthwise(channels, height, width, stride, batch=1):
    conv = ConvShape(batch, channels, height, width, channels, 3, 3, 1, 1, stride, channels)
    return problem("depthwise", channels, 9, batch * conv.out_height * conv.out_width, 0.0, conv)


def softmax_rows(scores, mask):
    e = np.where(mask, np.exp(scores - np.max(scores, axis=1, keepdims=True)), 0)
    total = e.sum(axis=1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0)


def test_attention_reference_is_masked_softmax():
    one, operands = attention()
    q, k, v = (operands.dense[name].astype(np.float64) for name in "qkv")
    weights = softmax_rows(q @ k.T, operands.sparse.to_dense() != 0)
    np.testing.assert_allclose(reference(one, operands).value, weights @ v, atol=1e-12)
    assert np.std(q @ k.T) == pytest.approx(1, rel=0.1)  # the factor of scores is in q


def test_depthwise_reference_agrees_with_the_convolution_of_each_channel_alone():
    one = depthwise(4, 7, 9, 2, batch=2)
    operands = make_operands(one)
    result = reference(one, operands)
    assert operands.sparse.nnz == 36
    for channel in range(4):
        conv = ConvShape(2, 1, 7, 9, 1, 3, 3, 1, 1, 2)
        alone = replace(problem("conv2d", 1, 9, 40, 0.0, conv))
        weights = CSR.from_dense(operands.sparse.to_dense()[channel : channel + 1])
        product = reference(alone, Operands(weights, {"x": operands.dense["x"][:, channel : channel + 1]}, ""))
        expected = np.maximum(product.value[:, 0] + operands.dense["bias"][channel], 0)
        np.testing.assert_allclose(result.value[:, channel], expected)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("build", ["plain", "asan"])
def test_sparse_attention(build, dtype):
    rows = 48 if build == "plain" else 45  # 48 rows fill their blocks, 45 do not
    one, operands = attention(rows, dtype=dtype)
    plans = list(kernels()["sparse_attention"].plans(one, operands, "sm_90"))
    assert plans[0].variant.startswith("heuristic_")
    assert len({plan.variant for plan in plans}) == len(plans) > 4
    truth = reference(one, operands)
    for plan in (plans[0], plans[-1]):
        assert len(plan.stages()) == 3
        assert plan.math == dtype
        assert {plan.buffers[name].dtype for name in ("scores", "weights", "context")} == {storage_dtype(dtype)}
        assert passes(relative_error(execute(plan, build), truth), dtype)


@pytest.mark.parametrize("features", [1, 7, 49])
def test_sparse_attention_in_fp16_of_odd_heads(features):
    one, operands = attention(features=features, dtype="f16")
    plan = next(kernels()["sparse_attention"].plans(one, operands, "sm_90"))
    check(plan, one, operands, "asan")


def test_attention_buffers_grow_with_the_mask_and_not_with_its_square():
    one, operands = attention(400, 400, 8)
    plan = next(kernels()["sparse_attention"].plans(one, operands, "sm_90"))
    size = {name: array.nbytes for name, array in plan.buffers.items()}
    nnz = operands.sparse.nnz
    assert {"q", "keys", "v", "scores", "weights", "context", "indices"} < set(size)
    assert size["scores"] == 4 * nnz
    assert 4 * nnz <= size["weights"] < 4 * nnz + 32
    assert sum(size.values()) < 4 * 400 * 400


@pytest.mark.parametrize("name", ["sputnik_bias_relu", "row_stream_bias_relu"])
@pytest.mark.parametrize("n", [49, 64])
def test_pointwise(name, n):
    one = problem("pointwise", 40, 70, n)
    operands = replace(make_operands(one), sparse=matrix(40, 70, 0.2, empty=(0, 17), full=3))
    truth = reference(one, operands)
    assert (truth.value == 0).mean() == pytest.approx(0.5, abs=0.2)
    np.testing.assert_array_equal(truth.value[0], np.full(n, max(operands.dense["bias"][0], 0)))
    plans = list(kernels()[name].plans(one, operands, "sm_90"))
    for plan in plans[:2]:
        assert passes(relative_error(execute(plan, "asan"), truth), "f32")


@pytest.mark.parametrize(
    "shape", [(5, 7, 7, 1, 1), (3, 8, 13, 2, 2), (1, 1, 1, 1, 1), (4, 2, 1, 2, 1), (33, 14, 14, 2, 1)]
)
def test_depthwise(shape):
    one = depthwise(*shape)
    operands = make_operands(one)
    plans = list(kernels()["depthwise_conv"].plans(one, operands, "sm_90"))
    for plan in (plans[0], plans[2]):
        check(plan, one, operands, "asan")


WIDER = ConvShape(1, 4, 8, 8, 4, 5, 5, 2, 2, 1, 4)


@pytest.mark.parametrize(
    ("name", "one", "words"),
    [
        ("sparse_attention", problem("attention", 45, 70, 12, 0.0), "left to the dense kernels"),
        ("sputnik_bias_relu", problem("pointwise", 8, 8, 4, 0.0), "dense"),
        ("row_stream_bias_relu", problem("pointwise", 8, 8, 4, 0.0), "dense"),
        ("depthwise_conv", problem("depthwise", 4, 25, 64, 0.0, WIDER), "3x3"),
    ],
)
def test_dense_layers_and_other_filters_are_refused(name, one, words):
    with pytest.raises(Unsupported, match=words):
        next(kernels()[name].plans(one, make_operands(one), "sm_90"))


@pytest.mark.parametrize(("columns", "build"), [(70, "asan"), (70, "tsan"), (600, "asan")])
def test_masked_softmax(columns, build):
    mask = matrix(9, columns, 0.2, empty=(0, 8), full=3)
    scores = np.random.default_rng(2).standard_normal((9, columns)).astype(np.float32)
    plan = masked_softmax_plan(mask, scores)
    read = Plan("x", "cuda", plan.source, plan.defines, plan.buffers, "x", plan.launches)
    expected = softmax_rows(scores.astype(np.float64), mask.to_dense() != 0)
    device = CpuDevice(build)
    prepared = device.prepare(read)  # in place: not poisoned before
    prepared.run()
    np.testing.assert_allclose(prepared.read(), expected, atol=1e-6)
    device.close()


def test_bias_and_relu_of_columns_keep_nan():
    """A product that was not computed stays seen behind its ReLU."""
    x = np.random.default_rng(0).standard_normal((3, 70)).astype(np.float32)
    x[1, [0, 69]] = np.nan, -np.inf
    bias = np.linspace(-1, 1, 70, dtype=np.float32)
    plan = bias_relu_columns(("", x), ("", bias)).plan
    device = CpuDevice("asan")
    prepared = device.prepare(plan)  # in place: not poisoned before
    prepared.run()
    np.testing.assert_array_equal(prepared.read(), np.maximum(x + bias, 0))
    device.close()


def test_mask_bits_name_the_positions():
    mask = matrix(5, 70, 0.3)
    bits = mask_bits(mask)
    columns = np.arange(70)
    np.testing.assert_array_equal(bits[:, columns // 32] >> (columns % 32).astype(np.uint32) & 1, mask.to_dense() != 0)


def test_too_long_rows_are_refused():
    with pytest.raises(Unsupported, match="more than a block holds"):
        masked_softmax_plan(matrix(1, 64 * 512 + 1, 0.001), np.zeros((0, 0), np.float32))


# ------------------------------------------------------------------------------------------------- dense baselines


@pytest.fixture
def gpu(monkeypatch):
    """A fake GPU whose cuBLAS multiplies and whose two kernels of ours are NumPy."""

    def masked_softmax(backend, grid, block, args, shared_bytes):
        n, words, mask, x = args
        scores = backend.array(x, np.float32, grid[0] * int(n)).reshape(grid[0], int(n))
        bits = backend.array(mask, np.uint32, grid[0] * int(words)).reshape(grid[0], int(words))
        columns = np.arange(int(n))
        scores[:] = softmax_rows(scores, bits[:, columns // 32] >> (columns % 32).astype(np.uint32) & 1)

    def bias_relu(backend, grid, block, args, shared_bytes):
        n, bias, c = args
        values = backend.array(c, np.float32, grid[1] * int(n)).reshape(grid[1], int(n))
        values[:] = np.maximum(values + backend.array(bias, np.float32, grid[1])[:, None], 0)

    device = open_fake({"masked_softmax": masked_softmax, "bias_relu": bias_relu})
    library = FakeCublas(device.backend)
    monkeypatch.setattr(support, "load_bindings", lambda name: library)
    return SimpleNamespace(device=device, cublas=library)


def check_all(gpu, name, one, operands):
    found = list(candidates(kernels()[name], one, operands, gpu.device))
    check_candidates(found, one, operands)
    return [candidate.variant for candidate in found]


def test_dense_attention(gpu):
    one, operands = attention()
    assert check_all(gpu, "dense_attention", one, operands) == ["f32", "tf32"]
    assert row_work("dense_attention", one, operands).flops > row_work("sparse_attention", one, operands).flops


def test_dense_attention_takes_what_is_counted(gpu):
    one, operands = attention()
    for candidate in candidates(kernels()["dense_attention"], one, operands, gpu.device):
        candidate.prepare().close()  # the handle's workspace stays
        use = memory.measure(one, candidate, gpu.device)
        assert use is not None
        assert use.after_bytes == use.before_bytes
        counted = attention_bytes("dense_attention", candidate.variant, candidate.math, 45, 70, 12, operands.sparse.nnz)
        assert use.taken_bytes == counted


def test_dense_pointwise(gpu):
    one = problem("pointwise", 12, 20, 9, 0.0)
    variants = check_all(gpu, "cublas_bias_relu", one, make_operands(one))
    assert variants == ["f32_rowmajor", "f32_colmajor", "tf32_rowmajor", "tf32_colmajor"]


# -------------------------------------------------------------------------------------------------- names, chaining


def test_steps_are_recorded_as_products_told_apart_by_shape():
    assert (attention()[0].recorded_op, attention()[0].shape) == ("spmm", "attention")
    one = problem("pointwise", 8, 8, 4)
    assert (one.recorded_op, replace(one, sparsity=0.0).recorded_op, one.shape) == ("spmm", "gemm", "bias_relu")
    layer = depthwise(32, 112, 112, 2)
    assert (layer.recorded_op, layer.shape) == ("conv2d", "n1_c32_h112_w112_d32_r3_s3_p1_u2_g32_bias_relu")
    assert problem("spmm", 8, 8, 4).recorded_op == "spmm"


def test_a_chain_shares_what_it_is_told_to_share():
    def step(entry, size):
        buffers = {"x": np.zeros(size, np.float32), "y": np.zeros(size, np.float32)}
        return Plan(
            entry, "cuda", f"{entry}.cu", {"N": size}, buffers, "y", (Launch(entry, (1,) * 3, (1,) * 3, ("x", "y")),)
        )

    plan = chain("both", (Step(step("f", 4), {"y": "middle"}), Step(step("g", 6), {"x": "middle"})))
    assert {name: array.size for name, array in plan.buffers.items()} == {"0.x": 4, "middle": 6, "1.y": 6}
    assert [launch.args for launch in plan.launches] == [("0.x", "middle"), ("middle", "1.y")]
    assert [(stage.source, stage.defines) for stage in plan.stages()] == [("f.cu", {"N": 4}), ("g.cu", {"N": 6})]
    assert (plan.variant, plan.output) == ("both", "1.y")


def test_a_chain_refuses_to_share_different_data():
    def step(entry, data):
        buffers = {"x": np.array(data, dtype=np.int32)}
        return Plan("one", "cuda", "some.cu", {}, buffers, "x", (Launch(entry, (1, 1, 1), (32, 1, 1), ("x",)),))

    longer = chain("both", (Step(step("f", [1]), {"x": "x"}), Step(step("g", [1, 2]), {"x": "x"})))
    assert longer.buffers["x"].tolist() == [1, 2]
    with pytest.raises(ValueError, match="step 1 of both: 'x' is not the 'x' of an earlier step"):
        chain("both", (Step(step("f", [1]), {"x": "x"}), Step(step("g", [2]), {"x": "x"})))
