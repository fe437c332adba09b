"""Sputnik, figure 7: throughput against the imbalance of rows, with and without row swizzle.

python runners/sputnik_figure7.py --policy hot    as the paper times

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("sputnik_figure7")
