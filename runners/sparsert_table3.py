"""SparseRT, table 3 and figure 7: the 3x3 convolutions of ResNet-50.

python runners/sparsert_table3.py --dtype f32    in fp32 only

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("sparsert_table3")
