"""Sputnik, table III and figure 11: the sparse products and the softmax of a sparse Transformer.

python runners/sputnik_attention.py --kernel sparse_softmax    the softmax only

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("sputnik_attention")
