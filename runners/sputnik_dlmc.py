"""Sputnik, figure 9 and table I: 3,012 pruned matrices at two batch sizes, as SpMM and SDDMM. Takes many hours.

python runners/sputnik_dlmc.py --resume    go on where an earlier run stopped

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("sputnik_dlmc")
