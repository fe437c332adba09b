"""The memory of attention as the report counts it: that of the plans."""

from __future__ import annotations

import pytest

from nnzbench.data.problems.operands import make_operands
from nnzbench.data.problems.problem import DType, Problem
from nnzbench.kernels.registry import kernels
from nnzbench.kernels.sputnik.layers import mask_bits
from nnzbench.kernels.vendor.attention import added_mask
from nnzbench.papers.sputnik import networks


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
