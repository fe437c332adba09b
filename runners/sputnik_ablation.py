"""Sputnik, table II: its optimisations, one left out at a time.

python runners/sputnik_ablation.py --kernel sputnik_ablation    SpMM only

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("sputnik_ablation")
