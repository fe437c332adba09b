"""Time per nonzero and column of sparse products from 1e5 to 1e8 nonzeros.

python runners/spmm_scaling.py --problem '*x128_*'    128 columns only

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("spmm_scaling")
