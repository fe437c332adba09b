"""SparseRT, figure 8: unrolling, load balancing and tuning, one left out at a time.

python runners/sparsert_ablation.py --policy hot    as the paper times

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("sparsert_ablation")
