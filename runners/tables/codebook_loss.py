"""Writes datasets/codebook_loss.csv: what EIE's codebook of 4-bit indices does to the real pruned weights."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nnzbench import paths
from nnzbench.matrices import codebook
from nnzbench.matrices.formats import CSR
from nnzbench.problems.sources import WEIGHTS_FILE, find_real

COLUMNS = ("array", "rows", "columns", "nonzeros", "weights_error", "outputs_error")
TABLE = "codebook_loss.csv"


def measured(weights: Path) -> Iterator[dict[str, str | int]]:
    """A line per pruned weight array of the file, in its order; depthwise filters and biases are not pruned."""
    with np.load(weights) as arrays:
        for name in sorted(arrays.files):
            if not name.endswith("_weight") or "_dw" in name:
                continue
            matrix = CSR.from_dense(arrays[name])
            lost = codebook.loss(matrix)
            sizes = {"rows": matrix.m, "columns": matrix.k, "nonzeros": matrix.nnz}
            errors = {"weights_error": f"{lost.weights:.4f}", "outputs_error": f"{lost.outputs:.4f}"}
            yield {"array": name, **sizes, **errors}


def main(arguments: list[str] | None = None) -> int:
    """Writes the table, or to `--out`; exit status 2 where the weights are not on disk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=paths.datasets() / TABLE)
    given = parser.parse_args(arguments)
    weights = find_real("weights:any")
    if weights is None:
        print(f"no {WEIGHTS_FILE} found: set NNZBENCH_DATA to the folder that holds it.", file=sys.stderr)
        return 2
    with given.out.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(measured(weights))
    return 0


if __name__ == "__main__":
    sys.exit(main())
