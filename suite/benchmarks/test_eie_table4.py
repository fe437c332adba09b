"""EIE (ISCA 2016), table IV: Fully connected layers, the GPU rows."""

from __future__ import annotations

EXPERIMENT = "eie_table4"


def test_eie_table4(benchmark, bench, problem, dtype, kernel, policy):
    bench.run(benchmark, EXPERIMENT, problem, dtype, kernel, policy)
