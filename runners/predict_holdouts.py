"""Computes how far `nnzbench predict` is off on published numbers, and writes reports/prediction/.

    python runners/predict_holdouts.py [--matrices FILE] [--reports FOLDER]

FILE is the published table of four GPUs with a line per matrix, which is not part of this repository (its authors gave
no licence): without it, errors matrix by matrix stay as they were last computed. Needs no GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from nnzbench import paths
from nnzbench.predict import page
from nnzbench.predict.holdouts import errors


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0; a file that can't be read raises."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matrices", type=Path)
    parser.add_argument("--reports", type=Path, default=paths.reports())
    asked = parser.parse_args(arguments)
    print(page.write(asked.reports, errors(asked.reports, asked.matrices)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
