"""Sputnik (SC 2020), figure 10: RNN, GRU and LSTM layers."""

from __future__ import annotations

EXPERIMENT = "sputnik_rnn"


def test_sputnik_rnn(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
