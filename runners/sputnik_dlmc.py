"""Sputnik, figure 9 and table I: a sample of 60 of the 3,012 pruned matrices at two batch sizes, as SpMM and SDDMM.

python runners/sputnik_dlmc.py --full    all of them, which takes many hours

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("sputnik_dlmc")
