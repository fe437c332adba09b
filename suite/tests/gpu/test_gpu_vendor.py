"""Every vendor candidate against float64 on a real GPU, on awkward shapes."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import VendorKernel, candidates, kernels
from nnzbench.kernels.vendor.cudnn_graphs import load_frontend
from nnzbench.kernels.vendor.cusparselt import library_version
from nnzbench.matrices.formats import CSR
from nnzbench.matrices.generate import banded
from nnzbench.matrices.prune import n_of_m
from nnzbench.measure import memory
from nnzbench.measure.session import open_libraries
from nnzbench.plans.plan import Unsupported
from nnzbench.problems.check import passes, relative_error
from nnzbench.problems.operands import Operands, make_operands
from nnzbench.problems.problem import ConvShape, Op, Problem
from nnzbench.problems.reference import reference
from nnzbench.records.beside import STEP
from nnzbench.report.data.networks import attention_bytes

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]

SHAPES = [(64, 96, 1), (40, 56, 7), (7, 96, 40), (256, 128, 49), (11, 55, 8), (1, 1, 1)]


def make(m, k, n, dtype):
    """90 % sparse, with empty rows where there are several."""
    rng = np.random.default_rng(m + k + n)
    dense = rng.standard_normal((m, k), dtype=np.float32) * (rng.random((m, k)) < max(0.1, 1 / (m * k)))
    dense[1 : m : max(2, m // 3)] = 0.0
    matrix = CSR.from_dense(dense)
    operands = Operands(matrix, {"b": rng.standard_normal((k, n), dtype=np.float32)}, matrix.pattern_hash())
    return Problem("test", f"{m}x{k}x{n}", "spmm", m, k, n, 0.9, "uniform:0", dtype), operands.cast(dtype)


def check_every_candidate(gpu, name, problem, operands):
    """Variants by outcome, `ok` or `unsupported`; a wrong result fails the test."""
    expected = reference(problem, operands)
    outcomes: Counter[str] = Counter()
    for candidate in candidates(kernels()[name], problem, operands, gpu):
        try:
            prepared = candidate.prepare()
        except Unsupported as reason:
            outcomes["unsupported"] += 1
            print(f"{name} {candidate.variant}: {reason}")
            continue
        try:
            for _ in range(2):  # the second run would reveal a result that depends on what the first left behind
                prepared.poison()
                prepared.run()
                error = relative_error(prepared.read(), expected)
                assert passes(error, candidate.math), f"{candidate.variant}: relative error {error:.3g}"
            assert gpu.timer is not None
            prepared.poison()
            if prepared.capturable:
                gpu.timer.elapsed_us(gpu.timer.capture(prepared.run, 3))
                assert passes(relative_error(prepared.read(), expected), candidate.math), (
                    f"{candidate.variant} in a graph"
                )
            print(f"{name} {candidate.variant}: {error:.2g}{'' if prepared.capturable else ', no graph'}")
        finally:
            prepared.close()
        outcomes["ok"] += 1
    return outcomes


def needs(library, load):
    try:
        load()
    except Unsupported as reason:
        pytest.skip(f"no {library}: {reason}")


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["cublas", "cublaslt", "cusparse"])
def test_every_product_is_right_or_unsupported(gpu, name, dtype, shape):
    outcomes = check_every_candidate(gpu, name, *make(*shape, dtype))
    assert outcomes["ok"] > 0, outcomes


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("op", ["spmv", "sddmm"])
@pytest.mark.parametrize("shape", [(64, 96), (70, 33), (256, 128)], ids=lambda shape: "x".join(map(str, shape)))
def test_vectors_and_sampled_products(gpu, op, shape, dtype):
    m, k = shape
    problem, operands = make(m, k, 1, dtype)
    if op == "sddmm":  # the matrix is the pattern of the m x k result
        rng = np.random.default_rng(5)
        dense = {"a": rng.standard_normal((m, 40), np.float32), "b": rng.standard_normal((k, 40), np.float32)}
        problem, operands = replace(problem, k=40, n=k), replace(operands, dense=dense).cast(dtype)
    outcomes = check_every_candidate(gpu, "cusparse", replace(problem, op=op), operands)
    assert outcomes["ok"] > 0 or dtype == "f16", outcomes


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_block_patterns(gpu, dtype):
    rng = np.random.default_rng(1)
    blocks = np.kron(rng.random((8, 12)) < 0.4, np.ones((16, 16), bool))
    matrix = CSR.from_dense(rng.standard_normal((128, 192), np.float32) * blocks)
    b = rng.standard_normal((192, 64), np.float32)
    operands = Operands(matrix, {"b": b}, matrix.pattern_hash()).cast(dtype)
    problem = Problem("test", "blocks", "spmm", 128, 192, 64, 0.6, "block:16x16:0", dtype)
    assert check_every_candidate(gpu, "cusparse", problem, operands)["ok"] > 0


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_convolutions(gpu, dtype):
    needs("cuDNN", load_frontend)
    for shape in (
        ConvShape(2, 16, 14, 14, 24, 3, 3, 1, 1),
        ConvShape(3, 8, 9, 11, 16, 1, 1, stride=2),
        ConvShape(4, 20, 1, 30, 12, 1, 3),
    ):
        rng = np.random.default_rng(2)
        k = shape.channels * shape.r * shape.s
        weights = rng.standard_normal((shape.filters, k), np.float32) * (rng.random((shape.filters, k)) < 0.2)
        matrix = CSR.from_dense(weights)
        x = rng.standard_normal((shape.batch, shape.channels, shape.height, shape.width), np.float32)
        operands = Operands(matrix, {"x": x}, matrix.pattern_hash()).cast(dtype)
        n = shape.batch * shape.out_height * shape.out_width
        op: Op = "conv1d" if shape.height == 1 else "conv2d"
        problem = Problem("test", str(shape), op, shape.filters, k, n, 0.8, "uniform:0", dtype, conv=shape)
        assert check_every_candidate(gpu, "cudnn", problem, operands)["ok"] > 0, shape
        every, untuned = (
            [one.variant for one in candidates(kernels()["cudnn"], problem, operands, gpu, some)]
            for some in (False, True)
        )
        assert untuned == [name for name in every if not name.count("plan") or name.endswith("_default")]


def test_libraries_that_are_opened_beforehand_work_afterwards(gpu):
    assert isinstance(gpu, GpuDevice)
    names = [name for name, one in kernels().items() if isinstance(one, VendorKernel)]
    used = gpu.used_bytes()
    open_libraries(gpu, names)
    assert gpu.used_bytes() - used < 4 << 30
    for name in ("cublas", "cublaslt", "cusparse"):
        assert check_every_candidate(gpu, name, *make(256, 128, 49, "f16"))["ok"] > 0


@pytest.mark.parametrize(("dtype", "keep"), [("f16", (2, 4)), ("bf16", (2, 4)), ("f32", (1, 2))])
def test_two_of_four(gpu, dtype, keep):
    needs("cuSPARSELt", library_version)
    assert isinstance(gpu, GpuDevice)
    if gpu.facts.compute_capability < (8, 0):
        pytest.skip("no sparse tensor cores")
    rng = np.random.default_rng(3)
    matrix = n_of_m(rng.standard_normal((128, 256), np.float32), *keep)
    b = rng.standard_normal((256, 64), np.float32)
    operands = Operands(matrix, {"b": b}, matrix.pattern_hash()).cast(dtype)
    problem = Problem("test", "nm", "spmm", 128, 256, 64, 0.5, "nm:2:4:0", dtype)
    assert check_every_candidate(gpu, "cusparselt", problem, operands)["ok"] > 0


def attention(mask, features, dtype):
    problem = Problem("test", "a", "attention", mask.m, mask.k, features, 0.9, "uniform:0", dtype)
    operands = make_operands(problem)
    return problem, replace(operands, sparse=mask, pattern=mask.pattern_hash()).cast(dtype)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("tokens", [1, 7, 49, 128, 513])
@pytest.mark.parametrize("band", ["all", "some"])
def test_fused_attention_over_a_triangle_and_over_an_added_mask(gpu, band, tokens, dtype):
    needs("cuDNN", load_frontend)
    mask = banded(tokens, tokens, 0.9, tokens if band == "all" else max(1, tokens // 4), 0)
    outcomes = check_every_candidate(gpu, "cudnn_attention", *attention(mask, 64, dtype))
    assert outcomes["ok"] > 0 or tokens % 8, outcomes


@pytest.mark.parametrize(
    ("name", "dtype"), [("sparse_attention", "f32"), ("dense_attention", "f32"), ("cudnn_attention", "f16")]
)
def test_attention_takes_about_the_memory_that_is_counted(gpu, name, dtype):
    if name == "cudnn_attention":
        needs("cuDNN", load_frontend)
    problem, operands = attention(banded(4096, 4096, 0.95, 64, 0), 128, dtype)
    candidate = next(candidates(kernels()[name], problem, operands, gpu))
    candidate.prepare().close()  # loads what the library keeps
    gpu.empty((256 << 20,), np.uint8).close()
    rest = gpu.empty((1 << 20,), np.uint8)  # holds on to the larger piece, whose rest would serve the candidate unseen
    use = memory.measure(problem, candidate, gpu)
    rest.close()
    assert use is not None
    nnz = operands.sparse.nnz
    counted = attention_bytes(name, candidate.variant, candidate.math, problem.m, problem.k, problem.n, nnz)
    assert counted - STEP <= use.taken_bytes <= 1.1 * counted + 4 * STEP, (use, counted)
