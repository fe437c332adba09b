"""Every vendor candidate against float64 on a real GPU, on awkward shapes."""

from dataclasses import replace

import numpy as np
import pytest
from kernel_problems import sampled
from on_cpu import conv_layer, matrix
from vendor_candidates import check_on_gpu, product

from nnzbench.bench import memory
from nnzbench.bench.session import open_libraries
from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.matrices.generate import banded
from nnzbench.data.matrices.prune import n_of_m
from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import ConvShape, Problem
from nnzbench.devices.gpu import GpuDevice
from nnzbench.kernels.registry import VendorKernel, candidates, kernels
from nnzbench.kernels.vendor.cudnn import load_frontend
from nnzbench.kernels.vendor.cusparselt import library_version
from nnzbench.kernels.vendor.pytorch import load_torch
from nnzbench.papers.sputnik.networks import attention_bytes
from nnzbench.results.records.beside import STEP

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]

SHAPES = [(64, 96, 1), (40, 56, 7), (7, 96, 40), (256, 128, 49), (11, 55, 8), (1, 1, 1)]


def pruned(m, k):
    """90 % sparse, with empty rows where there are several."""
    return matrix(m, k, max(0.1, 1 / (m * k)), empty=tuple(range(1, m, max(2, m // 3))))


def needs(library, load):
    try:
        load()
    except Unsupported as reason:
        pytest.skip(f"no {library}: {reason}")


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["cublas", "cublaslt", "cusparse"])
def test_every_product_is_right_or_unsupported(gpu, name, dtype, shape):
    m, k, n = shape
    assert check_on_gpu(gpu, name, *product(pruned(m, k), n, dtype))["ok"]


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("op", ["spmv", "sddmm"])
@pytest.mark.parametrize("shape", [(64, 96), (70, 33), (256, 128)], ids=lambda shape: "x".join(map(str, shape)))
def test_vectors_and_sampled_products(gpu, op, shape, dtype):
    # the matrix is the pattern of SDDMM's result
    problem, operands = sampled(pruned(*shape), 40) if op == "sddmm" else product(pruned(*shape), 1)
    outcomes = check_on_gpu(gpu, "cusparse", replace(problem, op=op, dtype=dtype), operands.cast(dtype))
    assert outcomes["ok"] or dtype == "f16", outcomes


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_block_patterns(gpu, dtype):
    rng = np.random.default_rng(1)
    blocks = np.kron(rng.random((8, 12)) < 0.4, np.ones((16, 16), bool))
    dense = rng.standard_normal((128, 192), np.float32) * blocks
    assert check_on_gpu(gpu, "cusparse", *product(CSR.from_dense(dense), 64, dtype))["ok"]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_convolutions(gpu, dtype):
    needs("cuDNN", load_frontend)
    for shape in (
        ConvShape(2, 16, 14, 14, 24, 3, 3, 1, 1),
        ConvShape(3, 8, 9, 11, 16, 1, 1, stride=2),
        ConvShape(4, 20, 1, 30, 12, 1, 3),
    ):
        problem, operands = conv_layer(shape, dtype)
        assert check_on_gpu(gpu, "cudnn", problem, operands)["ok"], shape
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
        assert check_on_gpu(gpu, name, *product(pruned(256, 128), 49, "f16"))["ok"]


@pytest.mark.parametrize(("dtype", "keep"), [("f16", (2, 4)), ("bf16", (2, 4)), ("f32", (1, 2))])
def test_two_of_four(gpu, dtype, keep):
    needs("cuSPARSELt", library_version)
    assert isinstance(gpu, GpuDevice)
    if gpu.facts.compute_capability < (8, 0):
        pytest.skip("no sparse tensor cores")
    weights = np.random.default_rng(3).standard_normal((128, 256), np.float32)
    assert check_on_gpu(gpu, "cusparselt", *product(n_of_m(weights, *keep), 64, dtype))["ok"]


@pytest.mark.parametrize("shape", [(256, 256, 1), (128, 384, 16), (192, 128, 33), (128, 256, 64)])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("pattern", ["scattered", "2:4", "blocks"])
def test_pytorch_in_each_layout_that_takes_the_pattern(gpu, pattern, dtype, shape):
    needs("PyTorch", load_torch)
    m, k, n = shape
    rng = np.random.default_rng(m)
    weights = rng.standard_normal((m, k), np.float32)
    blocks = np.kron(rng.random((m // 64, k // 64)) < 0.6, np.ones((64, 64), bool))
    made = {"scattered": pruned(m, k), "2:4": n_of_m(weights, 2, 4), "blocks": CSR.from_dense(weights * blocks)}
    layouts = 3 if pattern == "blocks" and dtype != "f32" else 1  # CSR, and BSR of two sizes
    assert check_on_gpu(gpu, "pytorch", *product(made[pattern], n, dtype))["ok"] >= layouts
    if dtype != "f32":
        assert check_on_gpu(gpu, "pytorch_int4", *product(made[pattern], n, dtype))["ok"] == 1


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
    outcomes = check_on_gpu(gpu, "cudnn_attention", *attention(mask, 64, dtype))
    assert outcomes["ok"] or tokens % 8, outcomes


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
