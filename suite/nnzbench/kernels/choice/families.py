"""Which family of SpMM kernels to take for a matrix, before any of them is tuned."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnzbench.kernels import cost_rule
from nnzbench.matrices.formats import CSR

FAMILIES = ("sputnik", "row_stream", "ring", "sparsert", "tensor_spmm", "delta_spmv")


def family_features(
    family: str, k: int, n: int, lengths: NDArray[np.int64], *, itemsize: int, sms: int
) -> dict[str, float]:
    """What bounds any SpMM kernel, under the family's own names so that each has constants of its own.

    `lengths` (m,) are the nonzeros of A's rows; work that multiprocessors share is per multiprocessor, dense operands
    count in words of 4 bytes. Weights and tiles, zeros counted, are what tensor cores multiply.
    """
    nonzeros, columns = float(lengths.sum()), n * itemsize / 4
    values = {
        "launch": 1.0,
        "products": nonzeros * columns / sms,
        "outputs": lengths.size * columns / sms,
        "nonzeros": nonzeros / sms,
        "longest": float(lengths.max(initial=0)),
        "depth": float(k),
        "weights": lengths.size * float(k) / sms,
        "tiles": lengths.size * float(k) * columns / sms,
    }
    return {f"{family}.{name}": value for name, value in values.items()}


def ranked_families(matrix: CSR, n: int, itemsize: int, sms: int) -> list[str]:
    """The families by predicted time for `n` columns, the fastest first; those that the rule knows nothing of left out.

    Raises `KeyError` where the rule was not fitted yet.
    """
    costs = cost_rule.load("family")

    def predicted(family: str) -> float:
        features = family_features(family, matrix.k, n, matrix.row_lengths, itemsize=itemsize, sms=sms)
        return costs.predict(features, family)

    return sorted((family for family in FAMILIES if family in costs.factors), key=predicted)
