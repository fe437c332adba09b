"""Sputnik (SC 2020), table II: Sputnik's optimisations, one left out at a time."""

from __future__ import annotations

EXPERIMENT = "sputnik_ablation"


def test_sputnik_ablation(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
