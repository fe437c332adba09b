"""Networks and the collection as the report shows them: sums of recorded layers, memory of plans, figure 2."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_records import to_frame

from nnzbench.facts.selector import kernel
from nnzbench.kernels.registry import kernels
from nnzbench.kernels.sputnik.layers import mask_bits
from nnzbench.kernels.vendor.attention import added_mask
from nnzbench.problems import tables
from nnzbench.problems.operands import make_operands
from nnzbench.problems.problem import DType, Problem
from nnzbench.records.record import SCHEMA, Record
from nnzbench.report.data import networks


def record(problem: Problem, kernel: str, us: float | None, variant: str = "v", **changed: object) -> Record:
    base = Record(
        SCHEMA, problem.experiment, problem.name, problem.recorded_op, problem.m, problem.k, problem.n, problem.shape,
        "f32", problem.sparsity, 1, "", problem.source, kernel, variant, True, "cupy", "fake-gpu", "sm_90", "hot", "ok",
        "", us, us, us, 9, None, 1.0, 1.0, None, None, None, None, None, None, None, None, 1e-7, "environment.json",
    )  # fmt: skip
    return replace(base, **changed)  # type: ignore[arg-type]


def recorded() -> list[Record]:
    rows = []
    for problem in tables.load("sputnik_mobilenet", real=False):
        if problem.op == "depthwise":
            rows.append(record(problem, "depthwise_conv", 2.0))
            continue
        rows.append(record(problem, "cublas_bias_relu", 10.0, "f32_rowmajor"))
        rows.append(record(problem, "cublas_bias_relu", 9.0, "f32_colmajor"))
        rows.append(record(problem, "cublas_bias_relu", 1.0, "tf32_rowmajor"))
        rows.append(record(problem, "cublas_bias_relu", 1.0, "f32_rowmajor", policy="cold"))
        if problem.sparsity:
            rows.append(record(problem, "sputnik_bias_relu", 5.0))
            rows.append(record(problem, "row_stream_bias_relu", 4.0))
    return rows


def test_a_network_is_the_sum_of_its_layers() -> None:
    found = {network.name: network for network in networks.mobilenets(to_frame(recorded()))}
    assert list(found) == [f"dense_w{w}" for w in ("1", "1.2", "1.4")] + [
        f"sparse_w{w}" for w in ("1", "1.3", "1.4", "1.5", "1.6", "1.7", "1.8")
    ]
    dense, sparse = found["dense_w1.4"], found["sparse_w1.8"]
    assert (dense.depthwise_us, dense.us) == (26, 26 + 117)  # 13 pairs, fp32 cuBLAS
    assert sparse.us == 26 + 9 + 12 * 4  # the first layer stays dense
    assert sparse.frames_per_second == pytest.approx(1e6 / 83)
    assert (dense.sparse, sparse.sparse, dense.width, sparse.width) == (False, True, 1.4, 1.8)
    (paper,) = (
        n
        for n in networks.mobilenets(to_frame(recorded()), sparse=kernel("sputnik_bias_relu"))
        if n.name == "sparse_w1.8"
    )
    assert paper.us == 26 + 9 + 12 * 5


def test_a_network_with_a_layer_that_was_not_timed_has_no_speed() -> None:
    rows = [r for r in recorded() if not r.problem.startswith("sparse_w1.8_pw06")]
    wrong = [
        replace(r, status="wrong", reason="x", median_us=None, q1_us=None, q3_us=None, selected=False) for r in rows
    ]
    for given in (rows, wrong):
        (network,) = (n for n in networks.mobilenets(to_frame(given)) if n.name == "sparse_w1.8")
        assert network.us is None
        assert network.frames_per_second is None


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_attention_memory_is_that_of_the_plan(dtype: DType) -> None:
    problem = Problem("test", "p", "attention", 1024, 1024, 32, 0.9, "banded:64:0", dtype)
    operands = make_operands(problem)
    plan = next(kernels()["sparse_attention"].plans(problem, operands, "sm_90"))  # type: ignore[union-attr]
    held = sum(array.nbytes for array in plan.buffers.values())
    sizes = (1024, 1024, 32, operands.sparse.nnz)
    assert networks.attention_bytes("sparse_attention", "any", dtype, *sizes) == pytest.approx(held, rel=0.02)
    if dtype == "f32":
        dense = sum(4 * 1024 * 32 for _ in "qkvo") + 4 * 1024 * 1024 + mask_bits(operands.sparse).nbytes
        assert networks.attention_bytes("dense_attention", "tf32", "tf32", *sizes) == dense
        assert dense / held > 2
    else:
        fused = sum(2 * 1024 * 32 for _ in "qkvo")
        assert networks.attention_bytes("cudnn_attention", "f16_causal_plan00_default", "f16", *sizes) == fused
        added = fused + added_mask(operands.sparse, "f16").nbytes
        assert networks.attention_bytes("cudnn_attention", "f16_bias_plan00_default", "f16", *sizes) == added
        assert fused < held < added
