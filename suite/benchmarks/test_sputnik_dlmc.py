"""Sputnik (SC 2020), figure 9, table I: The collection of pruned deep-learning matrices."""

from __future__ import annotations

EXPERIMENT = "sputnik_dlmc"


def test_sputnik_dlmc(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
