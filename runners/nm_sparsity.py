"""2:4 sparsity on tensor cores against the dense product.

python runners/nm_sparsity.py --quick    the three smallest problems only

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("nm_sparsity")
