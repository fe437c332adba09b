"""Balanced Sparsity (AAAI 2019), figure 4: A large matrix at eleven sparsities."""

from __future__ import annotations

EXPERIMENT = "balanced_figure4"


def test_balanced_figure4(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
