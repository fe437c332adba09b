"""How far the estimates of `nnzbench best --gpu` are off for recorded problems that they don't know: docs' table.

    python runners/trials/held_out.py [REPORTS] [--gpu nvidia-h200]

Holds out a fifth of the layer sizes, each experiment, and each width (to a factor of 1.4) in turn, and all widths below
or above one together, and estimates the hot times of SpMM in fp32 and fp16 from what is left. As in an answer, kernels
whose mean error for unseen layer sizes is above one half are left out, and so are those of which too little is left.
Prints a table of Markdown: mean and median of |estimate / measured - 1| over all times, and the mean over those of the
fastest sparse and the fastest dense kernel of each problem. Needs no GPU; takes a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnzbench import paths
from nnzbench.advise.model import Model
from nnzbench.advise.recorded import FEWEST, Recorded, certain_hot, load
from nnzbench.kernels.registry import about
from nnzbench.problems.problem import DType

DTYPES: tuple[DType, ...] = ("f32", "f16")
BELOW, ABOVE = 32, 256
"""Widths on whose other side all is held out: the narrowest of most kernels in fp32, the widest of some in fp16."""
KEPT = ["experiment", "problem", "n", "median_us"]
Parts = Iterable[NDArray[np.bool_]]


def _in_turn(parts: NDArray[Any]) -> Parts:
    return (parts == part for part in np.unique(parts))


WAYS: dict[str, Callable[[Model], Parts]] = {
    "a fifth of the layer sizes, each in turn": lambda model: _in_turn(model.folds),
    "each experiment in turn": lambda model: _in_turn(model.rows["experiment"].to_numpy()),
    "each width (to a factor of 1.4) in turn": lambda model: _in_turn(np.round(2 * np.log2(model.widths))),
    f"all widths below {BELOW} together": lambda model: [model.widths < BELOW],
    f"all widths above {ABOVE} together": lambda model: [model.widths > ABOVE],
}
"""Of each row of the table, which rows of a model are held out at a time."""


def errors(recorded: Recorded, way: str) -> pd.DataFrame:
    """A row per time that could be held out: what it was measured on, its time and its error."""
    found: list[pd.DataFrame] = []
    for dtype in DTYPES:
        for kernel, model in certain_hot(recorded.models("spmm", dtype), dtype):
            dense = about(kernel).work == "dense"
            for out in WAYS[way](model):
                if out.any() and np.count_nonzero(~out) >= FEWEST:
                    rows = model.rows.loc[out, KEPT]
                    found.append(rows.assign(dtype=dtype, dense=dense, error=model.errors(out)))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=[*KEPT, "dtype", "dense", "error"])


def fastest(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each problem the least time of the sparse kernels and of the dense ones."""
    least = rows.groupby(["experiment", "problem", "n", "dtype", "dense"])["median_us"].idxmin()
    found: pd.DataFrame = rows.loc[least]
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="?", type=Path, default=paths.reports())
    parser.add_argument("--gpu", default="nvidia-h200")
    given = parser.parse_args()
    recorded = load(given.gpu, [given.reports])
    print("| held out | times | mean error | median | mean of the fastest sparse and dense kernel of each problem |")
    print("| --- | --: | --: | --: | --: |")
    for way in WAYS:
        rows = errors(recorded, way)
        if rows.empty:
            continue
        errors_of = (rows["error"].mean(), rows["error"].median(), fastest(rows)["error"].mean())
        print(" | ".join([f"| {way}", f"{len(rows):,}", *(f"{100 * one:.0f} %" for one in errors_of)]), "|")


if __name__ == "__main__":
    main()
