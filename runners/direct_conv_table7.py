"""Direct sparse convolution, table 7: the 1x1 convolutions of ResNet-50.

python runners/direct_conv_table7.py --quick    the three smallest problems only

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("direct_conv_table7")
