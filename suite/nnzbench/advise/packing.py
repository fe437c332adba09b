"""What is paid once for a kernel (inspecting, packing, uploading, compiling), estimated from recorded rows."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nnzbench.advise.model import Sizes
from nnzbench.kernels.registry import about

ALIKE = 12
"""Rows of the nearest number of nonzeros (or weights) whose median is taken: one packing alone may take twice another,
and by its nearest row a library would pack for 44 ms at one width and for 261 at the next."""
AS_GIVEN = "_rowmajor"
"""In variants of a dense library that takes the weights as they lie. Others transpose them on the host first, which
nobody needs to do who has them in a dense array."""


def packing_ms(kernel: str, rows: pd.DataFrame, sizes: Sizes) -> float | None:
    """In proportion to what is packed (nonzeros, or all weights), but no less than any recorded.

    So is the compilation of programs that hold the weights; another takes as long as that of other problems.
    """
    known = rows[rows["prepare_ms"].notna()]
    dense, coded = about(kernel).work == "dense", about(kernel).weights_in_code
    as_given = known[known["variant"].str.contains(AS_GIVEN, regex=False)] if dense else known
    known = known if as_given.empty else as_given
    if known.empty:
        return None
    here = max(sizes.m * sizes.k if dense else sizes.nnz, 1)
    there = (known["m"] * known["k"] if dense else known["nnz"]).to_numpy(float).clip(min=1)
    alike = np.argsort(np.abs(np.log(there / here)), kind="stable")[:ALIKE]
    share = here / there[alike]

    def once(name: str, packed: bool) -> float:
        """The median of rows of about that many; what is packed in proportion to them."""
        ms = known[name].fillna(0.0).to_numpy(float)
        return max(float(np.median(ms[alike] * share)), float(ms.min())) if packed else float(np.median(ms[alike]))

    return once("prepare_ms", True) + once("compile_ms", coded)
