"""EIE, table IV: fully connected layers, the rows measured on GPUs.

python runners/eie_table4.py --policy cold    every launch reads its weights from memory

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("eie_table4")
