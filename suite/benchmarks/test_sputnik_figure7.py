"""Sputnik (SC 2020), figure 7: Throughput against the imbalance of rows."""

from __future__ import annotations

EXPERIMENT = "sputnik_figure7"


def test_sputnik_figure7(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
