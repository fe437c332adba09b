"""Sputnik, figure 10: RNN, GRU and LSTM layers of 1k to 8k units.

python runners/sputnik_rnn.py --problem 'lstm1k_*'    some problems by name

Takes the options of `nnzbench run`.
"""

from __future__ import annotations

from run_and_report import run_and_report

if __name__ == "__main__":
    run_and_report("sputnik_rnn")
