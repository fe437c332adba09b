"""Small problems of kernels, for tests on the processor, on a GPU and in other precisions. Not a test file."""

from typing import Any

import numpy as np
from on_cpu import execute, matrix, spmm_operands

from nnzbench.core.plan import Plan
from nnzbench.data.matrices import encodings, prune
from nnzbench.data.matrices.formats import CSR
from nnzbench.data.matrices.prune import BalancedMatrix
from nnzbench.data.problems.networks import MobileNet
from nnzbench.data.problems.operands import Operands
from nnzbench.data.problems.problem import DType, Problem
from nnzbench.data.problems.reference import reference

TRANSFORMER = Problem("t", "small", "transformer", 45, 45, 8, 0.8, "banded:6:0")


def whole_rows(packed: BalancedMatrix) -> Any:
    """A balanced matrix with all its zeros, out of its ranges; none of its values is zero but the surplus."""
    dense = np.zeros((packed.m, packed.k), packed.values.dtype)
    row, part, at = np.nonzero(packed.values)
    dense[row, part * packed.width + packed.positions[row, part, at]] = packed.values[row, part, at]
    return dense


def mobilenet(sparsity: float, width: float = 0.25, height: int = 33) -> Problem:
    source = f"mobilenet:{width:g}:{height}:0"
    m, k = MobileNet.of(source).sizes
    return Problem("t", "small", "mobilenet", m, k, 1, sparsity, source)


def with_dense_columns(m: int, k: int, columns: int, density: float = 0.05) -> CSR:
    """A matrix of which the first `columns` columns are full and the others nearly empty, as are some rows."""
    rng = np.random.default_rng(2)
    dense = rng.standard_normal((m, k)).astype(np.float32)
    dense[:, columns:][rng.random((m, k - columns)) >= density] = 0
    dense[[0, m // 2]] = 0
    return CSR.from_dense(dense)


def v_two_m(m: int, k: int, v: int, group: int) -> CSR:
    """A V:2:M matrix whose last row, a row within and a block's first columns are empty; some rows have one of four."""
    dense = prune.v_n_m(np.random.default_rng(m + k).standard_normal((m, k), dtype=np.float32), v, 2, group).to_dense()
    dense[m // 2 :: 3][:, ::2] = 0
    dense[m // 3], dense[:v, :group], dense[m - 1 : m - (m == 1)] = 0, 0, 0
    return CSR.from_dense(dense)


def uneven() -> CSR:
    """One row of 1,100 nonzeros among short ones: its remainder is split into runs of 512."""
    return matrix(7, 1200, density=0.01, full=4)


def sampled(pattern: CSR, features: int) -> tuple[Problem, Operands]:
    rng = np.random.default_rng(6)
    dense = {
        "a": rng.standard_normal((pattern.m, features), dtype=np.float32),
        "b": rng.standard_normal((pattern.k, features), dtype=np.float32),
    }
    problem = Problem("t", "t", "sddmm", pattern.m, features, pattern.k, 0.5, "")
    return problem, Operands(pattern, dense, "")


AWKWARD = {
    "one entry": matrix(1, 1, density=1.0),
    "tiles in two panels, odd rows": with_dense_columns(145, 300, 260),
    "no tile, empty rows, one full": matrix(37, 70, empty=(0, 5, 36), full=9),
    "one row in runs of 512": uneven(),
}
"""By what is awkward of them for ASpT's tiles."""


def coded_operands(m: int, k: int, n: int, density: float = 0.1, dtype: DType = "f32", **rows: Any) -> Operands:
    """Weights of a codebook's few values, as EIE takes them."""
    return spmm_operands(encodings.shared(matrix(m, k, density, **rows)), n).cast(dtype)


def whole(sparse: CSR, n: int, dtype: DType = "f16") -> Operands:
    """Small whole numbers: products and sums are exact, and so is rounding them."""
    rng = np.random.default_rng(5)
    values = rng.integers(1, 4, sparse.nnz) * rng.choice((-1, 1), sparse.nnz)
    b = rng.integers(-1, 2, (sparse.k, n))
    return Operands(sparse.with_values(values.astype(np.float32)), {"b": b.astype(np.float32)}, "").cast(dtype)


def assert_exact(plan: Plan, problem: Problem, data: Operands, build: str = "plain", order: str = "forward") -> None:
    """The result is that of float64 to the bit, of whole numbers that every type holds."""
    expected = reference(problem, data).value
    assert np.abs(expected).max(initial=0) < 256
    assert np.array_equal(execute(plan, build, order), expected), plan.variant


def assert_spoils_its_users_alone(plan: Plan, data: Operands, most: int, atol: float) -> None:
    """Infinities and NaN in B reach the results that float64 says, some and at most `most`, and no other."""
    with np.errstate(invalid="ignore"):
        expected = data.sparse.to_scipy() @ data.dense["b"].astype(np.float64)
    assert 0 < np.count_nonzero(~np.isfinite(expected)) < most
    np.testing.assert_allclose(execute(plan).astype(np.float64), expected, rtol=0, atol=atol)


def operands_of(dense: np.ndarray[Any, Any], n: int) -> Operands:
    return spmm_operands(CSR.from_dense(dense), n)


def without_columns(dense: np.ndarray[Any, Any], *columns: int) -> np.ndarray[Any, Any]:
    """The matrix with zeros in those columns, whose rows of B nothing uses then."""
    left = dense.copy()
    left[:, columns] = 0
    return left
