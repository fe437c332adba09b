"""Which family of SpMM kernels to take for a matrix, before any of them is tuned."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnzbench import cost_rule
from nnzbench.matrices.formats import CSR

FAMILIES = ("sputnik", "row_stream", "panel", "sparsert")


def family_features(
    family: str, m: int, k: int, n: int, nnz: int, lengths: NDArray[np.int64], sms: int
) -> dict[str, float]:
    """What bounds any SpMM kernel, under the family's own names so that each has constants of its own."""
    values = {
        "launch": 1.0,
        "products": nnz * n / sms,
        "outputs": m * n / sms,
        "panel": k * n / sms,
        "nonzeros": nnz / sms,
        "longest": float(lengths.max(initial=0)),
    }
    return {f"{family}.{name}": value for name, value in values.items()}


def rule_family(matrix: CSR, n: int, sms: int) -> str:
    """The family of least predicted time for `n` columns. Raises `KeyError` where the rule was not fitted yet."""
    costs = cost_rule.load("family")
    lengths = matrix.row_lengths

    def predicted(family: str) -> float:
        return costs.predict(family_features(family, matrix.m, matrix.k, n, matrix.nnz, lengths, sms), family)

    return min((family for family in FAMILIES if family in costs.factors), key=predicted)
