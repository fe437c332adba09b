"""Sputnik, table IV and figure 12: the 1x1 convolutions of MobileNetV1.

python runners/sputnik_mobilenet.py --standin    generated patterns only

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("sputnik_mobilenet")
