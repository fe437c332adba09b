"""Every vendor candidate against float64 on a real GPU, on awkward shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from nnzbench.check import passes, relative_error
from nnzbench.devices import Device, open_device
from nnzbench.kernel import Unsupported, candidates, kernels
from nnzbench.matrices.formats import CSR
from nnzbench.operands import Operands, reference
from nnzbench.problem import DType, Problem

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cache_dir")]

SHAPES = [(64, 96, 1), (40, 56, 7), (7, 96, 40), (256, 128, 49), (11, 55, 8), (1, 1, 1)]


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    try:
        opened = open_device("cupy")
    except Unsupported as reason:
        pytest.skip(str(reason))
    yield opened
    opened.close()


def make(m: int, k: int, n: int, dtype: DType) -> tuple[Problem, Operands]:
    """90 % sparse, with empty rows where there are several."""
    rng = np.random.default_rng(m + k + n)
    dense = rng.standard_normal((m, k), dtype=np.float32) * (rng.random((m, k)) < max(0.1, 1 / (m * k)))
    dense[1 : m : max(2, m // 3)] = 0.0
    matrix = CSR.from_dense(dense)
    operands = Operands(matrix, {"b": rng.standard_normal((k, n), dtype=np.float32)}, matrix.pattern_hash())
    return Problem("test", f"{m}x{k}x{n}", "spmm", m, k, n, 0.9, "uniform:0", dtype), operands.cast(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["cublas", "cublaslt", "cusparse"])
def test_every_candidate_is_right_or_unsupported(
    device: Device, name: str, dtype: DType, shape: tuple[int, int, int]
) -> None:
    problem, operands = make(*shape, dtype)
    expected = reference(problem, operands)
    outcomes: Counter[str] = Counter()
    for candidate in candidates(kernels()[name], problem, operands, device):
        try:
            prepared = candidate.prepare()
        except Unsupported:
            outcomes["unsupported"] += 1
            continue
        try:
            for _ in range(2):  # the second run would reveal a result that depends on what the first left behind
                prepared.poison()
                prepared.run()
                error = relative_error(prepared.read(), expected)
                assert passes(error, candidate.math), f"{candidate.variant}: relative error {error:.3g}"
            assert device.timer is not None
            prepared.poison()
            if prepared.capturable:
                device.timer.elapsed_us(device.timer.capture(prepared.run, 3))
                assert passes(relative_error(prepared.read(), expected), candidate.math), (
                    f"{candidate.variant} in a graph"
                )
        finally:
            prepared.close()
        outcomes["ok"] += 1
    assert outcomes["ok"] > 0, outcomes
