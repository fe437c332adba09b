"""cuSPARSE's SpMV, SDDMM and block formats against float64, over a library that computes in NumPy."""

from dataclasses import replace

import numpy as np
import pytest
from kernel_problems import sampled
from vendor_candidates import check_all, every_of, product

from nnzbench.core.plan import Unsupported
from nnzbench.data.matrices.formats import CSR
from nnzbench.kernels.vendor import constrained
from nnzbench.kernels.vendor.cusparse import block_rows, blocked_ell, occupied, sliced_ell

every = every_of("cusparse")


def scattered(m, k, density=0.2):
    rng = np.random.default_rng(m + k)
    dense = rng.standard_normal((m, k)).astype(np.float32) * (rng.random((m, k)) < density)
    dense[m // 2] = 0.0
    return CSR.from_dense(dense)


def in_blocks(m, k, size, share):
    """Blocks of `size`, filled with one probability, a nonzero here and there missing."""
    rng = np.random.default_rng(0)
    blocks = np.kron(rng.random((m // size, k // size)) < share, np.ones((size, size)))
    dense = rng.standard_normal((m, k)).astype(np.float32) * blocks * (rng.random((m, k)) < 0.9)
    return CSR.from_dense(dense)


def make(op, matrix, n, dtype="f32"):
    if op == "sddmm":  # the matrix is the pattern of the m x n result
        problem, operands = sampled(matrix, n)
        return replace(problem, dtype=dtype), operands.cast(dtype)
    problem, operands = product(matrix, n, dtype)
    return replace(problem, op=op), operands


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(("op", "n"), [("spmv", 1), ("sddmm", 24)])
@pytest.mark.parametrize("shape", [(70, 33), (1, 5), (32, 64)])
def test_every_variant_of_spmv_and_sddmm_computes_the_result(op, n, shape, dtype, gpu):
    problem, operands = make(op, scattered(*shape), n, dtype)
    found = every(problem, operands, gpu)
    assert len(found) == {"spmv": 8, "sddmm": 6}[op]
    check_all(found.values(), problem, operands)
    assert list(gpu.cusparse.live.values()) == ["handle"]


@pytest.mark.parametrize("shape", [(70, 33), (1, 5), (32, 64)])
def test_the_constrained_product_transposes_its_second_operand_in_each_launch(shape, gpu, monkeypatch):
    monkeypatch.setattr(constrained, "Bindings", lambda: gpu.cusparse)
    problem, operands = make("sddmm", scattered(*shape), 24)
    check_all(every_of("constrained_gemm")(problem, operands, gpu).values(), problem, operands)
    assert list(gpu.cusparse.live.values()) == ["handle"]


@pytest.mark.parametrize(
    ("op", "n", "name"),
    [
        ("spmm", 4, "csr_alg3_col_preprocess"),
        ("spmv", 1, "spmv_csr_alg2_preprocess"),
        ("sddmm", 8, "sddmm_preprocess_col"),
    ],
)
def test_preprocessing_comes_before_the_first_run_and_never_again(op, n, name, gpu):
    every(*make(op, scattered(9, 7), n), gpu)[name].prepare()
    steps = [step for step, _ in gpu.cusparse.calls]
    assert steps[:3] == ["size", "preprocess", "run"]
    assert steps.count("preprocess") == 1


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_block_formats_compute_the_product(dtype, gpu):
    problem, operands = make("spmm", in_blocks(64, 96, 16, 0.4), 24, dtype)
    found = {name: one for name, one in every(problem, operands, gpu).items() if "bsr" in name or "bell" in name}
    bell = "tf32_bell" if dtype == "f32" else "bell"
    assert list(found) == [
        f"{name}{size}_{layout}" for size in (8, 16, 32) for name in ("bsr", bell) for layout in ("row", "col")
    ]
    assert all(one.math == ("tf32" if name.startswith("tf32") else dtype) for name, one in found.items())
    check_all(found.values(), problem, operands)
    assert list(gpu.cusparse.live.values()) == ["handle"]


def test_scattered_patterns_and_odd_sizes_have_no_block_rows_but_the_reason(gpu):
    found = every(*make("spmm", scattered(64, 64, 0.3), 8), gpu)
    with pytest.raises(Unsupported, match=r"at least 100 % of the blocks of 8, 16 or 32 hold a nonzero"):
        found["blocks"].prepare()
    assert not [name for name in found if "bsr" in name or "bell" in name]
    with pytest.raises(Unsupported, match="m and k are no multiples of 8"):
        every(*make("spmm", scattered(60, 64), 8), gpu)["blocks"].prepare()


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_a_refusal_of_16_bits_tells_the_version_and_who_refuses_it(dtype, gpu):
    gpu.cusparse.refused = gpu.cusparse.SpMMAlg.CSR_ALG2
    found = every(*make("spmm", scattered(64, 32), 8, dtype), gpu)
    with pytest.raises(Unsupported, match="csr_alg2_row: CUSPARSE_STATUS_NOT_SUPPORTED") as refused:
        found["csr_alg2_row"].prepare()
    told = "cuSPARSE 12.7.2; the cuSPARSE of CUDA 13.1 and 13.2 refuses" in str(refused.value)
    assert told == (dtype != "f32")
    assert list(gpu.cusparse.live.values()) == ["handle"]


def test_blocks_of_a_matrix():
    dense = np.zeros((4, 6), np.float32)
    dense[0, 5], dense[1, 4], dense[3, 0], dense[2, 3] = 1, 2, 3, 4
    matrix = CSR.from_dense(dense)
    assert occupied(matrix, 2) == 0.5
    offsets, columns, values = block_rows(matrix, 2)
    assert (offsets.tolist(), columns.tolist()) == ([0, 1, 3], [2, 0, 1])
    assert values[0].tolist() == [[0, 1], [2, 0]]
    columns, values = blocked_ell(matrix, 2)
    assert columns.tolist() == [[2, -1], [0, 1]]
    assert values.tolist() == [[0, 1, 0, 0], [2, 0, 0, 0], [0, 0, 0, 4], [3, 0, 0, 0]]


def test_an_empty_matrix_has_formats_too():
    empty = CSR.from_dense(np.zeros((16, 8), np.float32))
    columns, values = blocked_ell(empty, 8)
    assert (columns.tolist(), values.shape) == ([[-1], [-1]], (16, 8))
    offsets, columns, values = sliced_ell(empty)
    assert (offsets.tolist(), columns.size, values.size) == ([0, 0], 0, 0)
