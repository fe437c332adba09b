"""Balanced Sparsity, tables 1 to 3: layers of VGG-16, PTB LSTM and CTC models.

python runners/balanced_models.py --kernel balanced    without its rivals

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("balanced_models")
