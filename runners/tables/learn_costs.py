"""Writes `datasets/costs.csv`: what candidates cost and what tuning brought, by experiment and kernel.

    python runners/tables/learn_costs.py RESULTS...      folders of result sets, such as reports

A run with a time limit plans with it what earlier runs of its own have not told it.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from nnzbench import paths
from nnzbench.measure.costs import COLUMNS, learn, table


def main() -> int:
    """Learns from the folders that the command line names."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 0 if len(sys.argv) > 1 else 2
    if not any(any(Path(root).glob("*/*/tuning.csv")) for root in sys.argv[1:]):
        print(f"no tuning.csv lies in <gpu>/<experiment>/ below {' or '.join(sys.argv[1:])}")
        return 2
    path = paths.datasets() / "costs.csv"
    rows = list(table(learn(map(Path, sys.argv[1:]), True)))
    with paths.replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    print(f"{path}: {len(rows)} kernels of experiments")
    return 0


if __name__ == "__main__":
    sys.exit(main())
