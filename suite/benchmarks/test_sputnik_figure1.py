"""Sputnik (SC 2020), figure 1: Sparsity from which sparse is faster than dense."""

from __future__ import annotations

EXPERIMENT = "sputnik_figure1"


def test_sputnik_figure1(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
