"""Sputnik, figure 1: the sparsity from which a sparse product is faster than the dense one.

python runners/sputnik_figure1.py --policy hot    as the paper times

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("sputnik_figure1")
