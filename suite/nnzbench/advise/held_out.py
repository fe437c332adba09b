"""How far the estimates of `nnzbench best --gpu` are off for recorded problems that they don't know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnzbench.advise.model import Model
from nnzbench.advise.recorded import Recorded, certain_hot
from nnzbench.kernels.registry import about
from nnzbench.problems.problem import DType

DTYPES: tuple[DType, ...] = ("f32", "f16")
FEWEST = 20
"""Rows that must be left to fit to."""
BELOW, ABOVE = 32, 256
"""Widths on whose other side all is held out: the narrowest of most kernels in fp32, the widest of some in fp16."""
KEPT = ["experiment", "problem", "n", "median_us"]


def _in_turn(parts: NDArray[np.generic]) -> Iterable[NDArray[np.bool_]]:
    return (parts == part for part in np.unique(parts))


WAYS: Mapping[str, Callable[[Model], Iterable[NDArray[np.bool_]]]] = {
    "a fifth of the layer sizes, each in turn": lambda model: _in_turn(model.folds),
    "each experiment in turn": lambda model: _in_turn(model.rows["experiment"].to_numpy()),
    "each width (to a factor of 1.4) in turn": lambda model: _in_turn(np.round(2 * np.log2(model.widths))),
    f"all widths below {BELOW} together": lambda model: [model.widths < BELOW],
    f"all widths above {ABOVE} together": lambda model: [model.widths > ABOVE],
}
"""Which rows of a model are held out at a time."""


def errors(recorded: Recorded, way: str) -> pd.DataFrame:
    """A row per hot time of SpMM that could be held out: `KEPT`, `dtype`, `dense`, and |estimate / measured - 1|.

    As in an answer, kernels whose mean error for unseen layer sizes is above one half are left out, and so are those of
    which too little is left.
    """
    found = [
        model.rows.loc[out, KEPT].assign(dtype=dtype, dense=about(kernel).work == "dense", error=model.errors(out))
        for dtype in DTYPES
        for kernel, model in certain_hot(recorded.models("spmm", dtype), dtype)
        for out in WAYS[way](model)
        if out.any() and np.count_nonzero(~out) >= FEWEST
    ]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=[*KEPT, "dtype", "dense", "error"])


def fastest(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each problem the least time of the sparse kernels and of the dense ones."""
    least = rows.groupby(["experiment", "problem", "n", "dtype", "dense"])["median_us"].idxmin()
    found: pd.DataFrame = rows.loc[least]
    return found
