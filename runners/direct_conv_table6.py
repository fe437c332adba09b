"""Direct sparse convolution, table 6: the 3x3 convolutions of VGG-16.

python runners/direct_conv_table6.py --quick    the three smallest problems only

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("direct_conv_table6")
