"""Shared by the kernels' tests: matrices with awkward rows, and running plans on the cpu device."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nnzbench.core.plan import Array, Plan
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.problems.check import passes, relative_error
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import ConvShape, DType, Problem
from nnzbench.data.problems.reference import reference
from nnzbench.devices.cpu_device import CpuDevice


@pytest.fixture(autouse=True, scope="module")
def fresh_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs of one test module, compiled once; import it to have it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNZBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def matrix(m: int, k: int, density: float = 0.3, seed: int = 0, empty: tuple[int, ...] = (), full: int = -1) -> CSR:
    """A random matrix with some rows emptied and one filled."""
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((m, k)).astype(np.float32)
    dense[rng.random((m, k)) >= density] = 0
    dense[list(empty)] = 0
    if full >= 0:
        dense[full] = rng.standard_normal(k)
    return CSR.from_dense(dense)


def spmm_operands(sparse: CSR, n: int) -> Operands:
    """`sparse` and a random B of `n` columns."""
    b = np.random.default_rng(3).standard_normal((sparse.k, n), dtype=np.float32)
    return Operands(sparse, {"b": b}, sparse.pattern_hash())


def spmm_problem(data: Operands, dtype: DType | None = None) -> Problem:
    """The product of `data`, in the type of its B unless another is told."""
    sparse, b = data.sparse, data.dense["b"]
    dtype = dtype or ("f16" if b.dtype == np.float16 else "f32")
    return Problem("test", "test", "spmm", sparse.m, sparse.k, b.shape[1], sparse.sparsity, "uniform:0", dtype)


def conv_layer(shape: ConvShape, dtype: DType = "f32", density: float = 0.3, **rows: Any) -> tuple[Problem, Operands]:
    """A problem of `shape` and its operands; `rows` empties or fills some output channels."""
    weights = matrix(shape.filters, shape.channels * shape.r * shape.s, density, **rows)
    x = np.random.default_rng(5).standard_normal((shape.batch, shape.channels, shape.height, shape.width))
    n = shape.batch * shape.out_height * shape.out_width
    op = "conv1d" if shape.height == shape.r == 1 else "conv2d"
    problem = Problem("t", "t", op, weights.m, weights.k, n, 1 - density, "uniform:0", dtype, conv=shape)  # type: ignore[arg-type]
    operands = Operands(weights, {"x": x.astype(np.float32)}, weights.pattern_hash()).cast(dtype)
    return problem, operands


def execute(plan: Plan, build: str = "plain", order: str = "forward") -> Array:
    """The output of `plan`, run on the processor after poisoning it."""
    device = CpuDevice(build, order)  # type: ignore[arg-type]
    try:
        prepared = device.prepare(plan)
        prepared.poison()
        prepared.run()
        return prepared.read()
    finally:
        device.close()


def error_of(plan: Plan, problem: Problem, data: Operands, build: str = "plain", order: str = "forward") -> float:
    """How far the result is from float64's."""
    return relative_error(execute(plan, build, order), reference(problem, data))


def check(plan: Plan, problem: Problem, data: Operands, build: str = "plain", order: str = "forward") -> None:
    """The result is right for the plan's arithmetic."""
    error = error_of(plan, problem, data, build, order)
    assert passes(error, plan.math), (plan.variant, error)
