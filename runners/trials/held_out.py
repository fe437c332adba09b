"""How far the estimates of `nnzbench best --gpu` are off for recorded problems that they don't know: docs' table.

    python runners/trials/held_out.py [REPORTS] [--gpu nvidia-h200]

Holds out a fifth of the layer sizes, each experiment, and each width (to a factor of 1.4) in turn, and estimates the
hot times of SpMM in fp32 and fp16 from what is left. As in an answer, kernels whose mean error for unseen layer sizes
is above one half are left out. Prints a table of Markdown: mean of |estimate / measured - 1| over all times, and over
those of the fastest sparse and the fastest dense kernel of each problem. Needs no GPU; takes a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnzbench import paths
from nnzbench.advise.model import Model
from nnzbench.advise.recorded import Recorded, certain_hot, load
from nnzbench.kernels.registry import about
from nnzbench.problems.problem import DType

DTYPES: tuple[DType, ...] = ("f32", "f16")
WAYS: dict[str, Callable[[Model], NDArray[Any]]] = {
    "a fifth of the layer sizes, each in turn": lambda model: model.folds,
    "each experiment in turn": lambda model: model.rows["experiment"].to_numpy(),
    "each width (to a factor of 1.4) in turn": lambda model: np.round(2 * np.log2(model.rows["n"].to_numpy(float))),
}


def errors(recorded: Recorded, way: str) -> pd.DataFrame:
    """A row per time that could be held out: what it was measured on, its time and its error."""
    found: list[pd.DataFrame] = []
    for dtype in DTYPES:
        for kernel, model in certain_hot(recorded.models("spmm", dtype), dtype):
            dense, parts = about(kernel).work == "dense", WAYS[way](model)
            for out in (parts == part for part in np.unique(parts)):
                if not out.all():
                    rows = model.rows.loc[out, ["experiment", "problem", "n", "median_us"]]
                    found.append(rows.assign(dtype=dtype, dense=dense, error=model.errors(out)))
    return pd.concat(found, ignore_index=True)


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
    print("| held out | times | mean error | of the fastest sparse and the fastest dense kernel of each problem |")
    print("| --- | --: | --: | --: |")
    for way in WAYS:
        rows = errors(recorded, way)
        print(f"| {way} | {len(rows):,} | {rows['error'].mean():.0%} | {fastest(rows)['error'].mean():.0%} |")


if __name__ == "__main__":
    main()
