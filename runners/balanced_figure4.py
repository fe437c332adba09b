"""Balanced Sparsity, figure 4: a 16384 x 8192 matrix at eleven sparsities.

python runners/balanced_figure4.py --quick    the three smallest problems only

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("balanced_figure4")
