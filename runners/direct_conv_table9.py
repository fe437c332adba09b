"""Direct sparse convolution, table 9: sub-batch sizes.

python runners/direct_conv_table9.py --quick    the three smallest problems only

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("direct_conv_table9")
