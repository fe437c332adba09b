"""SparseRT, table 1, figures 4 and 5: 1x1 convolutions and Transformer layers at 90 and 95 % sparsity.

python runners/sparsert_table1.py --quick    the three smallest problems only

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("sparsert_table1")
