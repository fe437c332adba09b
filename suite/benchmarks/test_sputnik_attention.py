"""Sputnik (SC 2020), table III, figure 11: Sparse attention of a Transformer."""

from __future__ import annotations

EXPERIMENT = "sputnik_attention"


def test_sputnik_attention(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
