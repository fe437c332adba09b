"""Accelerating Sparse Deep Neural Networks (2021), figure 3: 2:4 sparsity on tensor cores."""

from __future__ import annotations

EXPERIMENT = "nm_sparsity"


def test_nm_sparsity(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
