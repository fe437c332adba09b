"""Which buffers of a plan are weights."""

import numpy as np
import pytest

from nnzbench.kernels.registry import kernels
from nnzbench.problems.buffers import inputs, weights_of
from nnzbench.problems.operands import make_operands
from nnzbench.problems.problem import Problem


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("kernel", ["tensor_spmm", "row_stream"])
def test_neither_operands_nor_result_nor_workspace_are_weights(kernel, dtype):
    problem = Problem("t", "p", "spmm", 128, 256, 16, 0.7, "uniform:1", dtype)
    operands = make_operands(problem)
    for plan in kernels()[kernel].plans(problem, operands, "sm_90"):
        names = weights_of(plan, operands)
        assert inputs(plan, operands) == {"b": "b"}
        assert names
        assert not {"b", plan.output} & set(names)
        left = [array for name, array in plan.buffers.items() if name not in {*names, "b", plan.output}]
        assert not any(map(np.any, left))
